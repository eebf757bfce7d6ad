"""soda by what was learned of the cost of preemptions: whom it stops, what it says, and that it is as before without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.explanation.job_position import explain_position
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.preemption_costs.learned_costs import LearnedCosts
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.sharing.soda.policy import Soda
from slurm_soda.policies.sharing.soda.preemption_price import find_prices_s, find_start_costs_s
from slurm_soda.policies.snapshot import ClusterSnapshot, NodeTable
from slurm_soda.policies.snapshot_file.document import SnapshotDump, plan_bytes, read_dump, write_dump
from slurm_soda.policies.snapshot_file.values import EncodingError
from tests.policies.cases import cluster, mixed_nodes, preempted, running, verdicts, waiting
from tests.policies.sharing.scenes import Table, scene
from tests.policies.sharing.test_soda_properties import odd_scenes
from tests.sampling import examples

SODA = Soda()


def with_costs(snapshot: ClusterSnapshot, *learned_s: float, weight: float = 1.0, most_s: float = 1e9) -> Any:
    """The snapshot with these costs, by row; NaN: nothing was learned."""
    column = np.array(learned_s)
    known = np.isfinite(column)
    costs = LearnedCosts(np.where(known, column, 0.0), np.where(known, weight, 0.0), np.full(len(column), most_s))
    return replace(snapshot, preemption_costs=costs)


def two_run_one_waits() -> ClusterSnapshot:
    """Job 2 has a little less left than job 1; each of them has the GPU that job 3 needs."""
    jobs = [
        running(1, (0, 1), remaining_s=5000.0),
        running(2, (1, 1), remaining_s=4900.0),
        waiting(3, remaining_s=900.0),
    ]
    return cluster(jobs, mixed_nodes(1, 1))


def test_who_is_too_dear_stays_and_the_other_one_leaves() -> None:
    snapshot = two_run_one_waits()
    assert set(preempted(SODA.decide(snapshot))) == {1}
    assert set(preempted(SODA.decide(with_costs(snapshot, 3000.0, 5.0, np.nan)))) == {2}
    assert not preempted(SODA.decide(with_costs(snapshot, 3000.0, 3000.0, np.nan)))


def test_no_price_exceeds_its_bound_or_the_policys_number() -> None:
    snapshot = two_run_one_waits()
    assert set(preempted(SODA.decide(with_costs(snapshot, 1e8, 1e8, np.nan, most_s=0.0)))) == {1}
    assert not preempted(SODA.decide(with_costs(snapshot, 1e8, 1e8, np.nan)))


def test_the_price_of_a_preemption_is_in_its_reason_and_in_what_people_are_told() -> None:
    plan = SODA.decide(with_costs(two_run_one_waits(), 30.0, 3000.0, np.nan))
    assert plan.preempts[0].reason.endswith("which ranks before it; to stop it costs 30 s on each of its GPUs")
    assert "To stop it costs 30 s on each of its GPUs" in told(plan, 1)
    assert "more than those that wait gain, 3,000 s on each of its GPUs" in told(
        SODA.decide(with_costs(two_run_one_waits(), 3000.0, 3000.0, np.nan)), 2
    )
    unknown = SODA.decide(two_run_one_waits())
    assert "on each" not in unknown.preempts[0].reason + told(unknown, 1)


def told(plan: Plan, job_id: int) -> str:
    snapshot = two_run_one_waits()
    return explain_position(plan.notes.of(job_id), snapshot.jobs.view(snapshot.jobs.row(job_id)), SODA).text


def test_jobs_that_are_dear_to_start_start_later() -> None:
    """So nobody gains by a claim that his preemptions are dear."""
    snapshot = cluster([waiting(1, remaining_s=900.0), waiting(2, remaining_s=1000.0)], mixed_nodes(1))
    assert verdicts(SODA.decide(snapshot))[1] == "START"
    assert verdicts(SODA.decide(with_costs(snapshot, 600.0, np.nan)))[2] == "START"


def test_a_guest_that_is_dear_to_move_stays_beside_its_host() -> None:
    rows = [
        {"job_id": 1, "remaining_s": 5000.0, "on": (0,), "preemptible": False},
        {"job_id": 2, "remaining_s": 5000.0, "on": (0,), "preemptible": True},
    ]
    snapshot = scene(rows, NodeTable.uniform(1, 2), Table(else_xi=1.2))
    assert set(preempted(SODA.decide(snapshot))) == {2}
    assert not preempted(SODA.decide(with_costs(snapshot, np.nan, 5000.0)))


@given(snapshot=odd_scenes(), change_s=st.sampled_from([0.0, 60.0, 61.3]), weight=st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=examples(60), deadline=None)
def test_where_all_cost_the_same_the_plan_is_the_same_to_the_bit(
    snapshot: SharingSnapshot, change_s: float, weight: float
) -> None:
    same = with_costs(snapshot, *[change_s] * len(snapshot.jobs), weight=weight, most_s=0.0)
    plan, without = Soda(change_s).decide(same), Soda(change_s).decide(snapshot)
    told = [item.reason.partition("; to stop it costs")[0] for item in plan.preempts]
    assert told == [item.reason for item in without.preempts]
    for name in ("order", "starts", "next_event_s", "places", "facts", "devices"):
        assert repr(getattr(plan, name)) == repr(getattr(without, name))
    assert plan.notes.score.tolist() == without.notes.score.tolist()
    assert plan.notes.verdict.tolist() == without.notes.verdict.tolist()


@given(st.lists(st.floats(0.0, 1e9), min_size=1), st.floats(0.0, 1e4))
def test_costs_of_a_start_are_few_and_near_the_prices(prices_s: list[float], change_s: float) -> None:
    found = find_start_costs_s(np.array(prices_s), change_s)
    for price_s, cost_s in zip(prices_s, found.tolist(), strict=True):
        assert cost_s == price_s == change_s or abs(cost_s - price_s) <= max(0.13 * price_s, 1.0)


def test_files_keep_what_was_learned() -> None:
    snapshot = with_costs(two_run_one_waits(), 30.0, 3000.0, np.nan, weight=0.5)
    dump = SnapshotDump(snapshot, SODA)
    again = read_dump(write_dump(replace(dump, plan=dump.decide())))
    assert again.plan is not None
    assert plan_bytes(again.plan) == plan_bytes(again.decide()) == plan_bytes(dump.decide())
    assert find_prices_s(again.snapshot, 60.0).tolist() == [45.0, 1530.0, 60.0]


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("learned_s", [1.0, 2.0], r"preemption_costs.learned_s has 2 values: expected 0 or 3"),
        ("weight", [1.0], r"preemption_costs.weight has 1 values: expected 3"),
        ("weight", [0.0, 1.5, 0.0], r"preemption_costs.weight\[1\] = 1.5: expected a number from 0 to 1"),
        ("learned_s", [0.0, -1.0, 0.0], r"preemption_costs.learned_s\[1\] = -1.0: expected a number from 0"),
        ("most_s", [0.0, np.nan, 0.0], r"preemption_costs.most_s\[1\] = nan: expected a number from 0"),
    ],
)
def test_files_in_which_it_cannot_be_are_refused(name: str, column: list[float], message: str) -> None:
    snapshot = with_costs(two_run_one_waits(), 30.0, 30.0, 30.0)
    costs = replace(snapshot.preemption_costs, **{name: np.array(column)})
    with pytest.raises(EncodingError, match=message):
        read_dump(write_dump(SnapshotDump(replace(snapshot, preemption_costs=costs), SODA)))
