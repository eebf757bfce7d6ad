"""The yardsticks: one sort key each."""

from __future__ import annotations

import pytest

from slurm_soda.policies.registry.catalog import make_policy
from tests.policies.cases import cluster, mixed_nodes, preempted, running, waiting

JOBS = [
    waiting(1, 1, submit_s=1, executed_s=900.0, remaining_s=100.0),
    waiting(2, 4, submit_s=2, remaining_s=60.0),
    waiting(3, 2, submit_s=3, remaining_s=70.0),
    waiting(4, 3, submit_s=4),
    waiting(5, 1, submit_s=0, executed_s=900.0, remaining_s=100.0),
]


@pytest.mark.parametrize(
    ("name", "order"),
    [("sjf", [2, 3, 5, 1, 4]), ("smallest", [5, 1, 3, 4, 2]), ("srtf", [2, 3, 5, 1, 4]), ("srsf", [5, 1, 3, 2, 4])],
)
def test_order(name: str, order: list[int]) -> None:
    """Unknown run times last; equal keys by submit time."""
    notes = make_policy(name).decide(cluster(JOBS, mixed_nodes(8))).notes
    ranked = sorted(notes.job_id.tolist(), key=lambda job_id: notes.of(job_id).position)
    assert ranked == order


@pytest.mark.parametrize(
    ("name", "gives_way"), [("sjf", {}), ("smallest", {}), ("srtf", {9: (2,)}), ("srsf", {9: (2,)})]
)
def test_only_the_remaining_time_policies_preempt(name: str, gives_way: dict[int, tuple[int, ...]]) -> None:
    jobs = [running(9, (0, 4), remaining_s=500.0), waiting(2, 4, remaining_s=60.0)]
    assert preempted(make_policy(name).decide(cluster(jobs, mixed_nodes(4)))) == gives_way
