"""CPU fit as a stage: which requests of a snapshot are changed, to what, and what is said of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.cpu_fit.fit import (
    CpuFitCandidate,
    CpuFitNote,
    EarlierChange,
    EarlierResize,
    JobForm,
    RequestDetail,
)
from slurm_soda.policies.cpu_fit.requests import CpuRequests, EarlierResizes, RequestDetails
from slurm_soda.policies.cpu_fit.stage import CpuFit
from slurm_soda.policies.cpu_fit.start_cores import FitHistory, NodeCapacity, PastFit
from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.pipeline.actions import PreemptJob, RequestedCpus, ResizeRequest
from slurm_soda.policies.pipeline.stages import Pipeline, empty_plan
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.snapshot import ClusterSnapshot, NodeTable

NODE = NodeCapacity(28, 64_000)
CV = CpuFitCandidate(gpus=1, nodes=1, tasks=1, cpus_per_task=20, cpus=20, category="cv")
TOLD = RequestDetail(nodes=1, tasks_per_node=1, cpus=20, cpus_per_task=20, least_cpus_per_node=20)
THREE = EarlierChange(EarlierResize.STANDS, cpus=3, cpus_per_task=3, least_cpus_per_node=3)
WIDE = CV._replace(gpus=4, nodes=2, tasks=4, cpus_per_task=10, cpus=40)
WIDE_TOLD = RequestDetail(2, 2, 40, 10, 20)


def snapshot(
    job: CpuFitCandidate = CV,
    detail: RequestDetail | str = TOLD,
    *,
    node: NodeCapacity | None = NODE,
    past: tuple[PastFit, ...] = (),
    earlier: EarlierChange | None = None,
) -> ClusterSnapshot:
    """One waiting job with the id 7; ``detail`` may be "unasked" or "unreadable"."""
    known = {} if detail == "unasked" else {7: None if isinstance(detail, str) else detail}
    base = CpuRequests.build([7], [0], [("alice", node, job)], {"alice": FitHistory(past)})
    requests = replace(
        base,
        details=RequestDetails.build(known),
        earlier=EarlierResizes.build({} if earlier is None else {7: earlier}),
    )
    return ClusterSnapshot(0.0, build_job_table([]), NodeTable.uniform(1, 1), cpu_requests=requests)


def planned(**case: Any) -> Plan:
    return Pipeline((CpuFit(),)).decide(snapshot(**case))


@pytest.mark.parametrize(
    ("case", "cpus", "per_task", "per_node", "memory_mib", "source"),
    [
        ({}, 3, 3, 3, None, "default"),
        ({"past": (PastFit("cv", None, 7, 1),)}, 7, 7, 7, None, "category"),
        ({"past": (PastFit("nlp", None, 7, 1),)}, 3, 3, 3, None, "default"),
        ({"job": CV._replace(pipelined=True)}, 2, 2, 2, None, "default"),
        ({"job": CV._replace(large_weights=True)}, 2, 2, 2, None, "default"),
        ({"job": CV._replace(heavy_preprocessing=True)}, 4, 4, 4, None, "default"),
        ({"job": CV._replace(model="vgg16"), "past": (PastFit("cv", "vgg16", 2, 1),)}, 2, 2, 2, None, "model"),
        ({"node": NodeCapacity(2)}, 2, 2, 2, None, "default"),
        ({"detail": TOLD._replace(memory_per_cpu_mib=1000)}, 3, 3, 3, 6_666, "default"),
        ({"detail": TOLD._replace(memory_per_node_mib=8000)}, 3, 3, 3, None, "default"),
        ({"detail": TOLD._replace(memory_per_node_mib=8000), "node": NodeCapacity(28, 64_000, 1000)},
         8, 8, 8, None, "default"),
        ({"job": WIDE, "detail": WIDE_TOLD}, 12, 3, 6, None, "default"),
        # What became of an earlier change leaves a new one standing.
        ({"earlier": EarlierChange(EarlierResize.REFUSED, 5, 5, 5, 0, "no")}, 3, 3, 3, None, "default"),
        ({"earlier": THREE._replace(cpus=20)}, 3, 3, 3, None, "default"),
    ],
)  # fmt: skip
def test_a_request_is_changed(
    case: dict[str, Any], cpus: int, per_task: int, per_node: int, memory_mib: int | None, source: str
) -> None:
    plan = planned(**case)
    (action,) = plan.actions
    assert isinstance(action, ResizeRequest)
    assert (action.id, action.job_id) == ("resize:7", 7)
    assert (action.cpus, action.cpus_per_task, action.least_cpus_per_node) == (cpus, per_task, per_node)
    assert action.memory_per_cpu_mib == memory_mib
    told = case.get("detail", TOLD)
    assert action.tasks_per_node == told.tasks_per_node
    assert action.before == RequestedCpus(
        told.cpus, told.cpus_per_task, told.least_cpus_per_node, told.memory_per_cpu_mib, told.memory_per_node_mib
    )
    assert plan.cpu_fits == {7: CpuFitNote(per_node, source)}


@pytest.mark.parametrize(
    ("case", "cores", "why"),
    [
        # Right as they are, with and without a look at the detail.
        ({"job": CV._replace(cpus_per_task=3, cpus=3), "detail": "unasked"}, 3, ""),
        ({"detail": TOLD, "past": (PastFit("cv", None, 20, 1),)}, 20, ""),
        ({"job": WIDE._replace(tasks=3, cpus=30), "detail": RequestDetail(2, 1, 30, 6, 6)}, 6, ""),
        # Said without the detail.
        ({"job": CV._replace(form=JobForm.ARRAY), "detail": "unasked"}, None, "several waiting tasks of an array"),
        ({"job": CV._replace(form=JobForm.UNTOUCHABLE), "detail": "unasked"}, None, "heterogeneous"),
        ({"node": None, "detail": "unasked"}, None, "no node has its GPUs"),
        ({"job": CV._replace(cpus_per_task=0, cpus=0), "detail": "unasked"}, None, "makes no sense"),
        # Said of the detail.
        ({"detail": "unreadable"}, None, "cannot be read"),
        ({"detail": TOLD._replace(cpus=8)}, None, "Slurm says 20 CPUs in one place and 8 in another"),
        ({"detail": TOLD._replace(tied_to="--cpus-per-gpu")}, None, "tied to something else (--cpus-per-gpu)"),
        ({"detail": TOLD._replace(tasks_per_node=0)}, None, "--ntasks-per-node"),
        ({"detail": TOLD._replace(least_cpus_per_node=24)}, None, "--mincpus"),
        ({"detail": TOLD._replace(cpus_per_task=0, least_cpus_per_node=0)}, None, "makes no sense"),
        # What became of an earlier change.
        ({"earlier": THREE}, 3, "changed after ours"),
        ({"earlier": THREE._replace(outcome=EarlierResize.UNDONE)}, 3, "taken back by hand"),
        ({"earlier": THREE._replace(outcome=EarlierResize.REFUSED, error="no")}, 3, "Slurm refused: no"),
    ],
)  # fmt: skip
def test_a_request_is_left_alone_and_says_why(case: dict[str, Any], cores: int | None, why: str) -> None:
    plan = planned(**case)
    assert plan.actions == ()
    note = plan.cpu_fits[7]
    assert note.cores == cores
    assert why in note.left_alone
    assert bool(why) == bool(note.left_alone)


@pytest.mark.parametrize("case", [{"detail": "unasked"}, {"earlier": THREE._replace(outcome=EarlierResize.IN_FLIGHT)}])
def test_nothing_is_said_of_a_job_before_all_of_it_is_known(case: dict[str, Any]) -> None:
    plan = planned(**case)
    assert (plan.actions, plan.cpu_fits) == ((), {})


def test_the_plan_before_stays_and_jobs_come_most_urgent_first() -> None:
    first = PreemptJob(1, (2,), "why")
    before = replace(empty_plan(), actions=(first,))
    base = CpuRequests.build([9, 7, 8], [1, 0, 1], [("alice", NODE, CV), ("bob", NODE, CV)], {})
    told = RequestDetails.build({7: TOLD, 8: None, 9: TOLD._replace(tied_to="--exclusive")})
    requests = replace(base, details=told)
    world = ClusterSnapshot(0.0, build_job_table([]), NodeTable.uniform(1, 1), cpu_requests=requests)
    plan = CpuFit().apply(world, before)
    assert [action.id for action in plan.actions] == ["preempt:1", "resize:7"]
    assert list(plan.cpu_fits) == [9, 7, 8]
    again = CpuFit().apply(world, before)
    assert (again.actions, again.cpu_fits) == (plan.actions, plan.cpu_fits)


def test_without_requests_the_plan_is_the_same_object() -> None:
    plan = empty_plan()
    assert CpuFit().apply(ClusterSnapshot(0.0, build_job_table([]), NodeTable.uniform(1, 1)), plan) is plan


def test_tables_give_back_what_they_were_built_from() -> None:
    jobs = [CV, WIDE._replace(model="bat", pipelined=True, form=JobForm.ARRAY), CV._replace(category=None)]
    past = FitHistory((PastFit("cv", None, 7, 1),))
    table = CpuRequests.build(
        [3, 1, 2, 4], [0, 1, 2, 0], list(zip("aba", [NODE, None, NodeCapacity(4)], jobs, strict=True)), {"a": past}
    )
    assert table.job_id.tolist() == [3, 1, 2, 4]
    assert table.request.tolist() == [0, 1, 2, 0]
    cases = table.distinct.cases()
    assert [case.job for case in cases] == jobs
    assert [case.node for case in cases] == [NODE, None, NodeCapacity(4)]
    assert [case.history for case in cases] == [past, FitHistory(()), past]
    details = {5: TOLD, 4: None, 6: TOLD._replace(tied_to="--exclusive", memory_per_cpu_mib=1)}
    assert RequestDetails.build(details).by_job() == details
    earlier = {4: THREE, 9: EarlierChange(EarlierResize.REFUSED, 1, 2, 3, 4, "no")}
    assert EarlierResizes.build(earlier).by_job() == earlier


def test_what_is_remembered_of_requests_cannot_be_changed_by_a_caller() -> None:
    world = snapshot()
    first = CpuFit().apply(world, empty_plan())
    with pytest.raises(TypeError):
        first.cpu_fits[7] = CpuFitNote(99, "default")  # type: ignore[index]
    for table in (world.cpu_requests, world.cpu_requests.distinct, world.cpu_requests.details):
        for name in ("job_id", "request", "gpus", "cpus"):
            if hasattr(table, name):
                with pytest.raises(ValueError, match="read-only"):
                    getattr(table, name)[0] = 5
    assert CpuFit().apply(world, empty_plan()).cpu_fits == {7: CpuFitNote(3, "default")}


def test_columns_that_their_owner_still_writes_are_copied() -> None:
    ids = np.array([7], dtype=np.int64)
    world = snapshot()
    mine = replace(world, cpu_requests=replace(world.cpu_requests, job_id=ids))
    before = CpuFit().apply(mine, empty_plan())
    ids[0] = 8
    assert CpuFit().apply(mine, empty_plan()).cpu_fits == before.cpu_fits
    assert mine.cpu_requests.job_id.tolist() == [7]
