"""FIFO: jobs and nodes in, starts out."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_soda.policies.registry.catalog import make_policy, policy_names
from slurm_soda.policies.snapshot import JobState
from tests.policies.cases import cluster, mixed_nodes, running, verdicts, waiting

# name, jobs on nodes of 4 and 4 GPUs, starts of fifo, starts of fifo-skip
CASES: list[tuple[str, list[dict[str, Any]], list[int], list[int]]] = [
    ("by submit time, not by id", [waiting(1, 4, submit_s=9), waiting(2, 4, submit_s=3), waiting(3, 4, submit_s=5)],
     [2, 3], [2, 3]),
    ("ties by job id", [waiting(7, 8), waiting(5, 8)], [5], [5]),
    ("the first that does not fit holds up the rest",
     [running(1, (0, 2)), waiting(2, 8, submit_s=1), waiting(3, 1, submit_s=2)], [], [3]),
    ("a job that can never run holds up nobody", [waiting(1, 9, submit_s=1), waiting(2, 1, submit_s=2)], [2], [2]),
    ("partitions do not hold each other up",
     [waiting(1, 8, partition="p0"), waiting(2, 8, partition="p0"), waiting(3, 0, cpus=1, partition="p1")],
     [1, 3], [1, 3]),
    ("held jobs are passed", [waiting(1, 4, state=JobState.BLOCKED), waiting(2, 8)], [2], [2]),
    ("what completing jobs hold is not free", [running(1, (0, 4), state=JobState.COMPLETING), waiting(2, 8)], [], []),
    ("jobs without GPUs take their turn too",
     [waiting(1, 0, cpus=64, submit_s=1), waiting(2, 0, cpus=1, submit_s=2), waiting(3, 1, submit_s=3)], [1], [1]),
]  # fmt: skip


@pytest.mark.parametrize(("jobs", "strict", "skipping"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_starts(jobs: list[dict[str, Any]], strict: list[int], skipping: list[int]) -> None:
    nodes = mixed_nodes(4, 4)
    nodes = type(nodes).uniform(2, 4, cpus=32, partitions=2)
    snapshot = cluster([{"partition": "p0", **job} for job in jobs] + [waiting(99, 1, partition="p1", state=1)], nodes)
    assert make_policy("fifo").decide(snapshot).starts.tolist() == strict
    assert make_policy("fifo-skip").decide(snapshot).starts.tolist() == skipping


def test_the_order_puts_starts_first_and_the_impossible_last() -> None:
    jobs = [waiting(1, 64, submit_s=1), waiting(2, 8, submit_s=2), running(3, (0, 2)), waiting(4, 2, submit_s=4)]
    plan = make_policy("fifo-skip").decide(cluster(jobs, mixed_nodes(4, 4)))
    assert plan.order.tolist() == [4, 2, 1]
    assert verdicts(plan) == {1: "TOO_LARGE", 2: "WAIT", 3: "RUN", 4: "START"}
    assert plan.notes.of(2).position == 2  # after job 3, which runs and was submitted at 0, and job 1
    assert plan.places[4][0].node == 0  # best fit beside job 3


@pytest.mark.parametrize("name", policy_names())
def test_an_empty_queue_and_an_empty_cluster(name: str) -> None:
    policy = make_policy(name)
    for nodes in (mixed_nodes(4), mixed_nodes()):
        assert policy.decide(cluster([], nodes)).order.tolist() == []
    assert verdicts(policy.decide(cluster([waiting(1)], mixed_nodes()))) == {1: "TOO_LARGE"}
