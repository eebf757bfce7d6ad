"""Gangs that are slower on more nodes than they need, and a policy that knows nothing of it, learns it, or is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.sharing.mechanism.mechanism import SLURM
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.generators.registry import generate_workload
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.runs.spread_knowledge import LEARNED, NONE, SPREAD_KNOWLEDGE, TRUTH
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.speed.pair_table import load_pairs
from slurm_soda.simulator.speed.unconsolidated_speed import UnconsolidatedSpeed
from slurm_soda.simulator.workload import Workload

SLOW, EVEN = "ResNet-18", "ResNet-50"
TABLE: dict[str, Any] = {
    "v100": {f"('{model} (batch size 32)', {size})": {"null": 10.0} for model in (SLOW, EVEN) for size in (1, 2, 4)},
    "v100_unconsolidated": {
        **{f"('{SLOW} (batch size 32)', {size})": {"null": 2.5} for size in (1, 2, 4)},
        **{f"('{EVEN} (batch size 32)', {size})": {"null": 10.0} for size in (1, 2, 4)},
    },
}  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "speeds.json"
    path.write_text(json.dumps(TABLE))
    return path


def job(submit_s: float, run_s: float, gpus: int, model: str = SLOW, user: str = "a", **more: Any) -> dict[str, Any]:
    return {"submit_s": submit_s, "run_s": run_s, "gpus": gpus, "model": model, "batch_size": 32, "user": user, **more}


def run(rows: list[dict[str, Any]], table: Path, knowledge: str, **more: Any) -> SimulationOutcome:
    workload = Workload.build("w", [{"preemptible": False, **row} for row in rows])
    scenario = Scenario(workload, parse_cluster("2x4:v100"), profiles=table, spread_knowledge=knowledge, **more)
    return scenario.run(scenario.policy("soda", {}))


def test_gangs_are_slower_once_they_are_on_more_nodes_than_they_need(table: Path) -> None:
    rows = [job(0, 10, 4), job(0, 10, 4, EVEN), job(0, 10, 6), job(0, 10, 1), job(0, 10, 4, "other")]
    speed = UnconsolidatedSpeed(load_pairs(table), Workload.build("w", rows), parse_cluster("4x4:v100"))

    def on(*gpus: int) -> list[NodeAllocation]:
        return [NodeAllocation(at, count, 1, 0) for at, count in enumerate(gpus)]

    assert [speed.ratio(row, on(4)) for row in (0, 1, 4)] == [1.0, 1.0, 1.0]
    assert [speed.ratio(row, on(2, 2)) for row in (0, 1, 4)] == [0.25, 1.0, 1.0]
    assert [speed.ratio(2, on(4, 2)), speed.ratio(2, on(2, 2, 2)), speed.ratio(3, on(1))] == [1.0, 0.25, 1.0]
    assert speed.ratio(0, [*on(4), NodeAllocation(3, 0, 8, 0)]) == 1.0, "a node without GPUs of it does not count"


def test_a_table_without_spread_gangs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "packed.json"
    path.write_text(json.dumps({"v100": TABLE["v100"]}))
    with pytest.raises(SimulatorError, match="has no GPU 'v100_unconsolidated'"):
        run([job(0, 10, 1)], path, NONE)


def fragmented(since_s: float = 0.0, user: str = "a") -> list[dict[str, Any]]:
    """From 1000 s on two GPUs are free on either node, from 3000 s on all are; a gang of four comes in between."""
    pairs = [job(since_s + at, run_s, 2, EVEN, user) for at, run_s in enumerate((1000, 3000, 999, 2998))]
    return [*pairs, job(since_s + 5, 2000, 4, SLOW, user)]


def test_who_knows_waits_for_one_node(table: Path) -> None:
    rows = fragmented()
    unknown, told = run(rows, table, NONE), run(rows, table, TRUTH)
    assert unknown.end_s[4] == 1001 + 4 * 2000, "it started on two nodes as soon as it could"
    assert told.end_s[4] == 3001 + 2000
    assert told.end_s[:4].tolist() == unknown.end_s[:4].tolist()


def test_what_earlier_jobs_showed_is_learned(table: Path) -> None:
    packed, spread = job(0, 200, 4), [*fragmented(1000)[:4], job(1005, 200, 4)]
    later = fragmented(9000)
    assert run([packed, *later], table, LEARNED).end_s[-1] == 10_001 + 8000, "on one node alone nothing was seen"
    assert run([packed, *spread, *later], table, LEARNED).end_s[-1] == 12_001 + 2000
    stranger = [packed, *spread, *fragmented(9000, "b")]
    assert run(stranger, table, LEARNED).end_s[-1] == 10_001 + 8000, "one owner does not speak for others"


@pytest.mark.parametrize("knowledge", [LEARNED, TRUTH])
def test_jobs_of_which_nothing_is_measured_run_as_without(knowledge: str, table: Path) -> None:
    workload = generate_workload("day-night", 3, 30, {"load_ratio": 1.1})
    workload = workload.with_columns(model=np.full(len(workload), -1))
    cluster = parse_cluster("4x4:v100")
    plain = Scenario(workload, cluster, profiles=table)
    outcomes = [one.run(one.policy("soda", {})) for one in (plain, replace(plain, spread_knowledge=knowledge))]
    assert outcomes[0].end_s.tolist() == outcomes[1].end_s.tolist()
    assert outcomes[0].preemptions.tolist() == outcomes[1].preemptions.tolist()


def test_where_slurm_chooses_the_nodes_knowledge_changes_nothing(table: Path) -> None:
    rules = SharingRules(slowdown=1.5, mechanism=SLURM)
    rows = fragmented()
    rows = [row | {"shares": False} for row in rows]
    ends = {run(rows, table, knowledge, sharing=rules).end_s[4] for knowledge in SPREAD_KNOWLEDGE}
    assert ends == {9001}
    ideal = run(rows, table, TRUTH, sharing=replace(rules, mechanism=SharingRules(slowdown=1.5).mechanism))
    assert ideal.end_s[4] == 5001


def test_other_policies_know_nothing_of_it(table: Path) -> None:
    rows = fragmented()
    workload = Workload.build("w", [{"preemptible": False, **row} for row in rows])
    scenario = Scenario(workload, parse_cluster("2x4:v100"), profiles=table, spread_knowledge=TRUTH)
    assert scenario.run(scenario.policy("srsf", {})).end_s[4] == 9001
