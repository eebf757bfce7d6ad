"""Tables of policy coda: who starts where, who gives back what (SODA, Section V-C)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.policy import Coda
from slurm_soda.policies.snapshot import JobState, NodeTable
from tests.policies.cases import cluster, preempted, running, verdicts, waiting

CORES, GPUS = 28, 5
CLASS = NodeClass("", GPUS, CORES)


def nodes(count: int, *, gpus: int = GPUS) -> NodeTable:
    return NodeTable.uniform(count, gpus, cpus=CORES)


def cpu(job_id: int, cpus: int, **columns: Any) -> dict[str, Any]:
    return waiting(job_id, 0, **{"preemptible": True, "cpus": cpus, **columns})


def holds(job_id: int, *alloc: tuple[int, int, int], since_s: float = 1000.0, **columns: Any) -> dict[str, Any]:
    """A preemptible job that runs on (node row, GPUs, cores)."""
    job = running(job_id, *((node, gpus) for node, gpus, _ in alloc), since_s=since_s)
    return {**job, "alloc": list(alloc), "cpus": sum(cores for _, _, cores in alloc), **columns}


def decided(jobs: list[dict[str, Any]], count: int, *, cores: int = 20, large: int = 0, **parameters: Any) -> Plan:
    """On so many nodes of 5 GPUs and 28 cores."""
    policy = Coda(shares={CLASS: PoolShare(cores, large)}, **parameters)
    return policy.decide(cluster(jobs, nodes(count)))


def places(plan: Plan) -> dict[int, list[tuple[int, int, int]]]:
    return {job: [(p.node, p.gpus, p.cpus) for p in pieces] for job, pieces in plan.places.items()}


def test_cpu_jobs_hold_their_share_of_each_node_first() -> None:
    plan = decided([cpu(1, 16), cpu(2, 16), cpu(3, 4)], 2)
    assert places(plan) == {1: [(0, 0, 16)], 2: [(1, 0, 16)], 3: [(0, 0, 4)]}


def test_beyond_their_share_they_borrow_if_they_can_be_aborted() -> None:
    jobs = [holds(1, (0, 0, 20)), cpu(2, 8), cpu(3, 8, preemptible=False)]
    assert verdicts(decided(jobs, 1)) == {1: "RUN", 2: "START", 3: "WAIT"}
    assert verdicts(decided([jobs[0], {**jobs[1], "preemptions": 3}], 1)) == {1: "RUN", 2: "WAIT"}


def test_a_job_larger_than_the_share_may_use_whole_nodes_all_the_same() -> None:
    """It would wait for ever: the share has 20 cores."""
    assert verdicts(decided([cpu(1, 28, preemptible=False)], 1)) == {1: "START"}
    assert verdicts(decided([cpu(1, 29, preemptible=False)], 1)) == {1: "TOO_LARGE"}


BORROWERS = [
    holds(1, (0, 0, 20), since_s=900.0),
    holds(2, (0, 0, 4), since_s=500.0),
    holds(3, (0, 0, 4), since_s=100.0),
]


@pytest.mark.parametrize(
    ("jobs", "cores", "gone"),
    [
        (BORROWERS, 3, [3]),
        (BORROWERS, 5, [3, 2]),
        (BORROWERS, 9, []),  # the share itself is not given back
        ([BORROWERS[0], {**BORROWERS[1], "preemptible": False}, BORROWERS[2]], 4, [3]),
        ([BORROWERS[0], BORROWERS[1], {**BORROWERS[2], "preemptions": 3}], 4, [2]),
        ([BORROWERS[0], holds(2, (0, 0, 6), since_s=500.0), holds(3, (0, 0, 2), since_s=100.0)], 5, [2]),
    ],
    ids=["the youngest", "as many as are needed", "no more than was borrowed", "who cannot be aborted is at home first",
         "and who was aborted often enough", "who turns out not to be needed stays"],
)  # fmt: skip
def test_a_gpu_job_gets_borrowed_cores_back(jobs: list[dict[str, Any]], cores: int, gone: list[int]) -> None:
    plan = decided([*jobs, waiting(9, 1, cpus=cores)], 1)
    assert [item.job_id for item in plan.preempts] == gone
    assert verdicts(plan)[9] == ("WAIT_FOR_PREEMPTION" if gone else "WAIT")
    assert all(item.for_jobs == (9,) for item in plan.preempts)


def test_the_node_that_costs_the_fewest_cores_is_chosen() -> None:
    jobs = [holds(1, (0, 0, 20)), holds(2, (0, 0, 8)), holds(3, (1, 0, 20)), holds(4, (1, 0, 5)), holds(5, (1, 0, 3))]
    assert preempted(decided([*jobs, waiting(9, 1, cpus=2)], 2)) == {5: (9,)}
    assert preempted(decided([*jobs, waiting(9, 1, cpus=4)], 2)) == {4: (9,)}
    assert preempted(decided([*jobs, waiting(9, 1, cpus=6)], 2)) == {2: (9,)}
    jobs[1] = holds(2, (0, 0, 7))
    assert preempted(decided([*jobs, waiting(9, 1, cpus=8)], 2)) == {2: (9,)}  # one core is free there


def test_who_gave_back_comes_first_again() -> None:
    jobs = [
        holds(1, (0, 0, 20)), cpu(2, 8, user="a", submit_s=1.0), cpu(3, 8, user="b", submit_s=9.0, preemptions=1),
    ]  # fmt: skip
    plan = decided(jobs, 1)
    assert plan.starts.tolist() == [3]
    assert plan.order.tolist() == [3, 2]


def test_a_gpu_job_does_not_abort_anew_for_what_is_being_vacated() -> None:
    leaving = {**BORROWERS[2], "state": JobState.COMPLETING}
    plan = decided([*BORROWERS[:2], leaving, waiting(9, 1, cpus=3)], 1)
    assert verdicts(plan)[9] == "WAIT_FOR_PREEMPTION"
    assert not plan.preempts


def test_each_pool_has_its_nodes_and_the_small_one_what_fours_leave() -> None:
    jobs = [waiting(1, 4), waiting(2, 1), waiting(3, 1)]
    plan = decided(jobs, 2, large=1)
    # Node 1 is the large pool's; its fifth GPU is the small pool's, and the smallest hole.
    assert places(plan) == {1: [(1, 4, 4)], 2: [(1, 1, 1)], 3: [(0, 1, 1)]}


def test_small_jobs_borrow_large_nodes_and_give_back() -> None:
    full = holds(1, (0, 3, 3), since_s=9.0), holds(2, (0, 2, 2), since_s=9.0)
    borrowed = decided([*full, waiting(3, 2, preemptible=True)], 2, large=1)
    assert places(borrowed) == {3: [(1, 2, 2)]}
    assert verdicts(decided([*full, waiting(3, 2)], 2, large=1))[3] == "WAIT"
    guests = [
        holds(3, (1, 1, 1), since_s=800.0),
        holds(4, (1, 2, 2), since_s=600.0),
        holds(5, (1, 1, 1), since_s=700.0),
    ]
    plan = decided([*full, *guests, waiting(9, 4)], 2, large=1)
    # The oldest one holds the GPU that is the small pool's; one more is free.
    assert preempted(plan) == {4: (9,), 5: (9,)}
    assert places(plan) == {9: [(1, 4, 4)]}


def test_large_jobs_use_small_nodes_before_anybody_is_aborted() -> None:
    plan = decided([holds(1, (1, 2, 2)), waiting(9, 4)], 2, large=1)
    assert places(plan) == {9: [(0, 4, 4)]}
    assert not plan.preempts


def test_what_is_the_small_pools_serves_its_jobs_before_large_ones_use_it() -> None:
    jobs = [waiting(number, 4, submit_s=1.0) for number in (1, 2)] + [waiting(3, 1), waiting(4, 2, gpus_per_node=2)]
    assert verdicts(decided(jobs, 2, large=1)) == {1: "START", 2: "WAIT", 3: "START", 4: "START"}
    assert verdicts(decided(jobs, 2, large=0)) == {1: "START", 2: "START", 3: "START", 4: "WAIT"}


def test_users_share_each_pool_by_itself() -> None:
    """User a holds most GPUs, which counts for nothing among CPU jobs, where b holds more."""
    jobs = [
        holds(1, (0, 3, 1), user="a"), holds(2, (0, 0, 12), user="b"),
        cpu(3, 8, user="b", submit_s=1.0), cpu(4, 8, user="a", submit_s=2.0),
        waiting(5, 2, user="a", submit_s=1.0), waiting(6, 2, user="b", submit_s=2.0),
    ]  # fmt: skip
    plan = decided(jobs, 1)
    assert plan.starts.tolist() == [6, 4]
    assert dict(zip(plan.notes.job_id.tolist(), plan.notes.score.tolist(), strict=True)) == {
        1: 0.6, 2: 0.6, 3: 0.6, 4: 0.4, 5: 0.6, 6: 0.4
    }  # fmt: skip
    assert plan.notes.queue.tolist() == [1, 2, 2, 2, 1, 1]


def test_each_gpu_type_has_pools_of_its_own() -> None:
    table = replace(nodes(2), gpu_type=np.array([0, 1]), gpu_types=("a100", "v100"))
    jobs = [waiting(1, 1, gpu_type="v100"), waiting(2, 4, gpu_type="a100"), waiting(3, 4)]
    plan = Coda().decide(cluster(jobs, table))
    assert places(plan) == {2: [(0, 4, 4)], 1: [(1, 1, 1)], 3: [(1, 4, 4)]}


def test_on_one_node_without_any_history_everything_can_run() -> None:
    plan = Coda().decide(cluster([waiting(1, 4), waiting(2, 1), cpu(3, 8, preemptible=False)], nodes(1)))
    assert set(verdicts(plan).values()) == {"START"}


def test_nodes_without_gpus_are_cpu_jobs_as_a_whole() -> None:
    plan = Coda().decide(cluster([cpu(1, 28, preemptible=False)], nodes(1, gpus=0)))
    assert verdicts(plan) == {1: "START"}


def test_reasons_name_what_was_borrowed() -> None:
    plan = decided([*BORROWERS, waiting(9, 1, cpus=3)], 1)
    assert [item.reason for item in plan.preempts] == ["it borrowed cores of the GPU pools, which job 9 needs"]
