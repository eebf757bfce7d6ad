"""Dominant Resource Fairness, and SODA's baselines over CPU and GPU jobs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from slurm_soda.policies.baselines.drf import Drf
from slurm_soda.policies.engine.demand import group_snapshot_requests
from slurm_soda.policies.engine.placement import FreeNodes, NodeGroups
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState
from tests.policies.cases import cluster, mixed_nodes, running, waiting
from tests.policies.worlds import on_some_worlds, worlds


def tasks(first_id: int, count: int, user: str, **columns: Any) -> list[dict[str, Any]]:
    return [waiting(first_id + at, user=user, submit_s=float(at), **columns) for at in range(count)]


def test_the_example_of_the_paper() -> None:
    """9 CPUs and 18 GB; A's tasks take 1 CPU and 4 GB, B's 3 CPUs and 1 GB: 3 tasks of A and 2 of B (Section 4.1)."""
    jobs = tasks(1, 6, "a", gpus=0, cpus=1, memory_mib=4000) + tasks(11, 6, "b", gpus=0, cpus=3, memory_mib=1000)
    plan = make_policy("drf").decide(cluster(jobs, mixed_nodes(0, cpus=9, memory_mib=18_000)))
    # Table 1 begins with B, at equal shares; here the job that was submitted first begins, then the smaller id.
    assert plan.starts.tolist() == [1, 11, 2, 12, 3]
    assert plan.order.tolist()[5:] == [13, 4, 5, 14, 6, 15, 16]  # both at 2/3; then as the filling would go on


def test_shares_are_those_of_jobs_that_hold_something() -> None:
    """4 GPUs, 32 CPUs, 64 GB: a holds half the GPUs, b a quarter of the CPUs, c an eighth of the memory."""
    jobs = [
        running(1, (0, 2), user="a"), running(2, (0, 0), user="b", cpus=8, alloc=[(0, 0, 8)]),
        running(3, (0, 0), user="c", cpus=1, memory_mib=8000, state=JobState.COMPLETING),
        waiting(4, 1, user="a", submit_s=1), waiting(5, 1, user="b", submit_s=2), waiting(6, 1, user="c", submit_s=3),
    ]  # fmt: skip
    snapshot = cluster(jobs, mixed_nodes(4))
    plan = make_policy("drf").decide(snapshot)
    assert plan.notes.score.tolist() == [0.5, 0.25, 0.125, 0.5, 0.25, 0.125]
    assert plan.starts.tolist() == [6, 5]
    by_gpus = make_policy("kelp-drf").decide(snapshot)
    assert by_gpus.notes.score.tolist() == [0.5, 0.0, 0.0, 0.5, 0.0, 0.0]
    assert by_gpus.starts.tolist() == [5, 6]


# name, jobs on nodes of 4 and 4 GPUs, starts of drf, of kelp-drf, of kelp-fifo
CASES: list[tuple[str, list[dict[str, Any]], list[int], list[int], list[int]]] = [
    ("users take turns, however many jobs one has",
     [*tasks(1, 8, "a", gpus=1), *tasks(11, 2, "b", gpus=1)], [1, 11, 2, 12, 3, 4, 5, 6], [1, 11, 2, 12, 3, 4, 5, 6],
     [1, 11, 2, 12, 3, 4, 5, 6]),
    ("a user's next job that does not fit holds up the user's others and nobody else",
     [running(1, (0, 3), user="z"), waiting(2, 8, user="a", submit_s=1, nodes=2, gpus_per_node=4),
      waiting(3, 1, user="a", submit_s=2), waiting(4, 1, user="b", submit_s=3)], [4], [4], []),
    ("but not its jobs without GPUs",
     [running(1, (0, 3), user="z"), waiting(2, 8, user="a", submit_s=1), waiting(3, 0, user="a", submit_s=2)], [3], [3],
     [3]),
    ("nor those of other partitions",
     [running(1, (0, 3), user="z"), waiting(2, 8, user="a", submit_s=1),
      waiting(3, 1, user="a", submit_s=2, partition="p1")], [3], [3], [3]),
    ("jobs without GPUs count for drf alone",
     [running(1, (0, 0), user="a", cpus=24, alloc=[(0, 0, 24)]), waiting(2, 8, user="a", submit_s=1, cpus=2),
      waiting(3, 8, user="b", submit_s=2, cpus=2)], [3], [2], [2]),
    ("an impossible job holds up nobody",
     [waiting(1, 99, user="a", submit_s=1), waiting(2, 8, user="a", submit_s=2)], [2], [2], [2]),
    ("GPU jobs do not wait for jobs without GPUs",
     [waiting(1, 0, user="a", cpus=60, submit_s=1), waiting(2, 0, user="a", cpus=60, submit_s=2),
      waiting(3, 1, user="a", submit_s=3)], [1, 3], [1, 3], [1, 3]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("jobs", "drf", "kelp_drf", "kelp_fifo"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_starts(jobs: list[dict[str, Any]], drf: list[int], kelp_drf: list[int], kelp_fifo: list[int]) -> None:
    nodes = mixed_nodes(4, 4)
    nodes = type(nodes).uniform(2, 4, cpus=32, partitions=2)
    snapshot = cluster([*jobs, waiting(99, 1, partition="p1", state=JobState.BLOCKED)], nodes)
    names = ("drf", "kelp-drf", "kelp-fifo")
    assert [make_policy(name).decide(snapshot).starts.tolist() for name in names] == [drf, kelp_drf, kelp_fifo]


def plainly(snapshot: ClusterSnapshot, *, gpus_only: bool) -> list[int]:
    """Progressive filling as it is written: look at every user anew before each start."""
    jobs, nodes, demand = snapshot.jobs, snapshot.nodes, group_snapshot_requests(snapshot)
    pool = FreeNodes(NodeGroups(nodes), nodes.gpus_free, nodes.cpus_free, nodes.memory_free_mib)
    resources = ("gpus",) if gpus_only else ("gpus", "cpus", "memory_mib")
    totals = [int(getattr(nodes, name)[nodes.usable].sum()) for name in resources]
    views = [jobs.view(row) for row in range(len(jobs))]
    holding = [view for view in views if view.state not in (JobState.PENDING, JobState.BLOCKED)]
    verdict = Drf().decide(snapshot).notes
    queue = sorted(
        (
            view
            for view in views
            if view.state == JobState.PENDING and verdict.of(view.job_id).verdict != JobVerdict.TOO_LARGE
        ),
        key=lambda view: (view.submit_s, view.job_id),
    )
    started: list[int] = []
    while True:
        share = {
            user: max(
                sum(getattr(view, name) for view in holding if view.user == user) / total if total else 0.0
                for name, total in zip(resources, totals, strict=True)
            )
            for user in jobs.users
        }
        first: dict[tuple[str, str, bool], Any] = {}
        for view in queue:
            first.setdefault((view.user, view.partition, view.gpus > 0), view)
        for view in sorted(first.values(), key=lambda view: (share[view.user], view.submit_s, view.job_id)):
            pieces = pool.find(demand.shapes[int(demand.code[jobs.row(view.job_id)])])
            if pieces is not None:
                break
        else:
            return started
        pool.take(pieces)
        queue.remove(view)
        holding.append(view)
        started.append(view.job_id)


@pytest.mark.parametrize("name", ["drf", "kelp-drf"])
@on_some_worlds
@given(snapshot=worlds())
def test_starts_are_those_of_plain_progressive_filling(name: str, snapshot: ClusterSnapshot) -> None:
    plan = make_policy(name).decide(snapshot)
    assert plan.starts.tolist() == plainly(snapshot, gpus_only=name == "kelp-drf")
