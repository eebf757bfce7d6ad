"""After the passing limit no later job passes or delays a waiting one: under every policy, whatever arrives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.registry.catalog import policy_names
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, SLURM
from slurm_soda.policies.waiting.overdue import find_sure_run_s
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.workload import Workload
from tests.sampling import examples

LIMIT_S = 50.0
SLOWDOWN = 1.5
CLUSTER = "4x2"
STRETCH = 5.0
"""Time limit over run time: more than jobs that share can need."""

WITHOUT = float("inf")

POLICIES = tuple(name for name in policy_names() if name != "multifactor")
"""A simulation's ``multifactor`` is stock Slurm, which bounds nothing."""


def run(
    policy: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    limit_s: float = LIMIT_S,
    cluster: str = CLUSTER,
    engine: str = "auto",
    mechanism: Any = IDEAL,
) -> SimulationOutcome:
    rows = [{"time_limit_s": STRETCH * row["run_s"], "model": "A", "batch_size": 16, **row} for row in rows]
    scenario = Scenario(
        Workload.build("w", rows),
        parse_cluster(cluster),
        passing_limit_s=limit_s,
        engine=engine,
        sharing=SharingRules(slowdown=SLOWDOWN, mechanism=mechanism),
    )
    return scenario.run(scenario.policy(policy, {}))


def waits(outcome: SimulationOutcome) -> list[tuple[float, float, int]]:
    """Begin, end and row of every wait."""
    found, since = [], outcome.workload.submit_s.tolist()
    parts = outcome.segments
    for row, start_s, end_s in sorted(
        zip(parts.job.tolist(), parts.start_s.tolist(), parts.end_s.tolist(), strict=True), key=lambda one: one[1]
    ):
        found.append((since[row], start_s, row))
        since[row] = end_s
    return found


def bound_s(found: Sequence[tuple[float, float, int]], one: tuple[float, float, int], longest_s: float) -> float:
    """The theorem: W, and for the job and each wait that began before its own and lasts then, the longest stay."""
    begin_s = one[0]
    before = sum(start_s > begin_s + LIMIT_S for since_s, start_s, _ in found if since_s < begin_s) + sum(
        start_s > begin_s + LIMIT_S for since_s, start_s, _ in found if since_s == begin_s
    )
    return LIMIT_S + max(before, 1) * longest_s


def check_bound(outcome: SimulationOutcome) -> None:
    work, found = outcome.workload, waits(outcome)
    assert np.isfinite(outcome.end_s).all()
    longest_s = max(find_sure_run_s(LIMIT_S), float(work.time_limit_s.max()))
    for one in found:
        assert one[1] - one[0] <= bound_s(found, one, longest_s) + 1e-6, one


@st.composite
def arrivals(draw: st.DrawFn) -> list[dict[str, Any]]:
    """More work than the cluster can do: gangs and single GPUs, jobs with and without GPUs, with and without consent."""
    rows, now_s = [], 0.0
    for at in range(draw(st.integers(8, 40))):
        now_s += draw(st.sampled_from([0.0, 1.0, 3.0, 9.0]))
        gpus = draw(st.sampled_from([1, 1, 1, 2, 4, 8, 0]))
        rows.append(
            {
                "submit_s": now_s,
                "run_s": draw(st.sampled_from([1.0, 7.0, 30.0, 90.0])),
                "gpus": gpus,
                "gpus_per_node": draw(st.sampled_from([0, 2])) if gpus > 1 else 0,
                "nodes": 1,
                "cpus": 1,
                "preemptible": draw(st.booleans()),
                "shares": draw(st.booleans()),
                "user": f"u{at % 3}",
            }
        )
    return rows


@pytest.mark.parametrize("policy", POLICIES)
@given(rows=arrivals(), mechanism=st.sampled_from([IDEAL, SLURM]))
@settings(max_examples=examples(15), deadline=None)
def test_no_wait_is_longer_than_the_bound(policy: str, rows: list[dict[str, Any]], mechanism: Any) -> None:
    check_bound(run(policy, rows, cluster="4x2/8c", mechanism=mechanism))


def test_a_gang_waits_for_a_guest_that_is_leaving() -> None:
    """A revoked guest holds its GPU for some tenths of a second more, also against an overdue job."""
    alike = {"submit_s": 0.0, "cpus": 1, "preemptible": False, "nodes": 1, "gpus_per_node": 0}
    rows: list[dict[str, Any]] = [
        {**alike, "run_s": 1.0, "gpus": 1, "shares": False, "user": f"u{at % 3}"} for at in range(24)
    ]
    rows[8] |= {"run_s": 90.0, "gpus": 2, "shares": True}
    rows[20] |= {"run_s": 90.0, "shares": True}
    gang = {**alike, "submit_s": 3.0, "run_s": 1.0, "gpus": 8, "shares": False, "user": "u1"}
    check_bound(run("sjf-ffs", [*rows, gang], cluster="4x2/8c", mechanism=SLURM))
