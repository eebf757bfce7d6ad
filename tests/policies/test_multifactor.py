"""The order of Slurm's own priority, with what it backfills."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from slurm_soda.policies.baselines.multifactor import CALC_PERIOD_S, Multifactor
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import ClusterSnapshot
from tests.policies.cases import NOW_S, cluster, mixed_nodes, running, waiting
from tests.policies.worlds import on_some_worlds, worlds


def test_the_largest_priority_goes_first_and_ties_go_by_submission() -> None:
    jobs = [
        running(1, (0, 2), preemptible=False), waiting(2, 2, priority=10, submit_s=1),
        waiting(3, 2, priority=20, submit_s=3), waiting(4, 2, priority=20, submit_s=2),
    ]  # fmt: skip
    plan = make_policy("multifactor").decide(cluster(jobs, mixed_nodes(4)))
    assert plan.order.tolist() == [4, 3, 2]
    assert plan.starts.tolist() == [4]
    assert plan.notes.score_name == "priority"
    assert plan.notes.score.tolist()[1:] == [10, 20, 20]


def test_a_requeued_job_is_behind_those_of_its_priority_as_in_slurm() -> None:
    jobs = [waiting(1, 4, priority=5, queued_s=9), waiting(2, 4, priority=5, queued_s=8)]
    assert make_policy("multifactor").decide(cluster(jobs, mixed_nodes(4))).order.tolist() == [2, 1]


def test_what_we_added_to_a_priority_does_not_count() -> None:
    jobs = [waiting(1, 4, priority=5000, site_factor=4999), waiting(2, 4, priority=2)]
    assert make_policy("multifactor").decide(cluster(jobs, mixed_nodes(4))).order.tolist() == [2, 1]


def test_tiers_go_before_priorities() -> None:
    nodes = replace(mixed_nodes(4), in_partition=np.ones((1, 3), dtype=np.bool_))
    jobs = [
        waiting(1, 4, priority=900), waiting(2, 4, priority=1, partition="p1"),
        waiting(3, 4, priority=5, partition="p0,p1"),
    ]  # fmt: skip
    snapshot = replace(cluster(jobs, nodes), partitions=("p0", "p1", "p0,p1"), tiers={"p0": 1, "p1": 2})
    assert make_policy("multifactor").decide(snapshot).order.tolist() == [3, 2, 1]


def test_jobs_behind_a_blocked_one_are_backfilled() -> None:
    jobs = [
        running(1, (0, 2), since_s=100, time_limit_s=200), waiting(2, 4, priority=50, time_limit_s=9),
        waiting(3, 2, priority=40, time_limit_s=101), waiting(4, 2, priority=30, time_limit_s=100),
    ]  # fmt: skip
    plan = make_policy("multifactor").decide(cluster(jobs, mixed_nodes(4)))
    assert plan.starts.tolist() == [4]
    assert plan.notes.of(2).reserved_in_s == 100


@pytest.mark.parametrize(
    ("jobs", "in_s"), [([running(1, (0, 4)), waiting(2, 4)], CALC_PERIOD_S), ([running(1, (0, 4))], np.inf)]
)
def test_priorities_are_computed_anew_while_somebody_waits(jobs: list[dict[str, Any]], in_s: float) -> None:
    plan = make_policy("multifactor").decide(cluster(jobs, mixed_nodes(4)))
    assert plan.next_event_s == NOW_S + in_s


@on_some_worlds
@given(snapshot=worlds())
def test_with_equal_priorities_it_is_backfill(snapshot: ClusterSnapshot) -> None:
    for reservations in (1, 3):
        by_priority = Multifactor(reservations=reservations).decide(snapshot)
        stock = make_policy("backfill", {"reservations": reservations}).decide(snapshot)
        assert by_priority.order.tolist() == stock.order.tolist()
        assert by_priority.places == stock.places
        np.testing.assert_array_equal(by_priority.notes.reserved_in_s, stock.notes.reserved_in_s)
