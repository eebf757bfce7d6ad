"""Scenarios whose jobs share GPUs: who runs where, what goes with what, and what policies are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.sharing.job_kinds import TimeSlicingPrior
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.simulator.cluster import SimulatedCluster, parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.node.node_rules import NodeRules
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from tests.simulator.sharing.players import Scripted, seen, work


class TestScenario:
    """Who runs where."""

    def scenario(self, pairs: Path | None, **more: Any) -> Scenario:
        rules = None if pairs is None else SharingRules(pairs=pairs)
        return Scenario(work({"model": "A", "batch_size": 16}, {}), self.cluster(), sharing=rules, **more)

    def cluster(self) -> SimulatedCluster:
        return parse_cluster("1x1")

    def test_only_who_shares_runs_over_single_gpus(self, pairs: Path) -> None:
        scenario = self.scenario(pairs)
        assert scenario.run(make_policy("sjf", {})).sharing is None
        assert scenario.run(Scripted({1: [0], 2: [0]})).end_s.tolist() == pytest.approx([100.0, 120.0])
        forced = replace(scenario, engine="sharing").run(make_policy("sjf", {}))
        assert seen(forced).shared_s.tolist() == [0.0, 0.0]

    def test_predictions_of_run_times_and_of_slowdowns_go_with_it(self, pairs: Path) -> None:
        told: list[tuple[float, float]] = []

        def look(snapshot: SharingSnapshot) -> None:
            told.extend(zip(snapshot.jobs.remaining_s.tolist(), snapshot.sharing.iterations.tolist(), strict=True))

        rows = work({"iterations": 500.0, "submit_s": 1.0, "run_s": 50.0}, {"iterations": 200.0, "submit_s": 60.0})
        scenario = replace(self.scenario(pairs, predicted=True), workload=rows)
        scenario = replace(
            scenario, sharing=SharingRules(pairs=pairs, knowledge="predicted", predictor=TimeSlicingPrior())
        )
        outcome = scenario.run(Scripted({1: [0], 2: [0]}, look=look))
        assert np.isfinite(outcome.end_s).all()
        assert told[-1][0] != 100.0  # the second job is thought to take as long as the first one did
        assert told[-1][1] == pytest.approx(told[-1][0] / 100.0 * 200.0)

    @pytest.mark.parametrize(
        ("more", "problem"),
        [
            ({"engine": "nodes"}, "engine nodes cannot share GPUs"),
            ({"placement": "spread"}, "it says on which GPUs jobs are"),
            ({"nodes": NodeRules()}, "cores and sharing cannot be simulated together"),
        ],
    )
    def test_what_does_not_go_with_sharing_is_said(self, pairs: Path, more: Mapping[str, Any], problem: str) -> None:
        with pytest.raises(SimulatorError, match=f"policy scripted: {problem}"):
            self.scenario(pairs, **more).run(Scripted({}))

    def test_without_a_truth_nobody_shares(self) -> None:
        with pytest.raises(
            SimulatorError, match="policy scripted: nobody says what jobs do to each other: give --pairs"
        ):
            self.scenario(None).run(Scripted({}))
        with pytest.raises(SimulatorError, match="nobody says"):
            self.scenario(None, engine="sharing").run(make_policy("sjf", {}))


@pytest.mark.parametrize(
    ("start_s", "change_s"),
    [(0.0, 30.0), (27.0, 30.0), (100.0, 103.0)],
    ids=[
        "no start cost",
        "a start costs what a restart costs",
        "a start costs more: the job that takes the GPUs pays it",
    ],
)
def test_what_a_change_of_jobs_costs_is_told_to_policies_that_ask(pairs: Path, start_s: float, change_s: float) -> None:
    costs = Costs(checkpoint_s=3.0, restart_s=20.0, start_s=start_s)
    scenario = Scenario(work({"restart_s": 7.0}), parse_cluster("1x1"), costs, sharing=SharingRules(pairs=pairs))
    assert getattr(scenario.policy("srsf-share", {}), "change_s") == change_s  # noqa: B009 - policies are of many types
    assert getattr(scenario.policy("srsf-share", {"change_s": 1.0}), "change_s") == 1.0  # noqa: B009
