"""The last stage of a decision: waiting jobs ask for the CPUs that they need (SODA, Section V-B)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from types import MappingProxyType

from slurm_soda.policies.cpu_fit.fit import (
    UNREADABLE,
    CpuFitNote,
    RequestDetail,
    RequestFit,
    after_earlier,
    fit_with_detail,
    fit_without_detail,
    resize_reason,
    wanted_of,
)
from slurm_soda.policies.cpu_fit.request_resize import ResizedRequest
from slurm_soda.policies.cpu_fit.requests import CpuRequests, WaitingCase
from slurm_soda.policies.pipeline.actions import RequestedCpus, ResizeRequest
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class CpuFit:
    """Adds a :class:`.ResizeRequest` for every waiting job that asks for other CPUs than N_start, and says why others stay.

    Jobs come most urgent first. Of a job whose request Slurm has not shown in detail yet, or whose earlier change is still
    on its way, nothing is said: its turn comes in a later cycle. O(n) for n jobs, of which those that are alike are judged
    once; O(1) for the requests of the cycle before.
    """

    name: str = "cpu-fit"

    def apply(self, snapshot: ClusterSnapshot, plan: Plan) -> Plan:
        """The plan with these actions and notes added."""
        actions, notes = _fits(snapshot.cpu_requests)
        return replace(plan, actions=(*plan.actions, *actions), cpu_fits=notes) if notes else plan


@lru_cache(maxsize=1)
def _fits(requests: CpuRequests) -> tuple[Sequence[ResizeRequest], Mapping[int, CpuFitNote]]:
    """What follows for each job.

    The last answer is remembered by the object that it is for: a reader gives the same one as long as nothing changes, and
    neither it nor the answer can be changed.
    """
    details, earlier = requests.details.by_job(), requests.earlier.by_job()
    cases = requests.distinct.cases()
    first = [fit_without_detail(*case) for case in cases]
    second: dict[tuple[int, RequestDetail | None], tuple[RequestFit, partial[ResizeRequest] | None]] = {}
    notes: dict[int, CpuFitNote] = {}
    actions = []
    for job_id, at in zip(requests.job_id.tolist(), requests.request.tolist(), strict=True):
        fit = first[at]
        if fit is None and job_id in details:
            detail = details[job_id]
            if (at, detail) not in second:
                second[at, detail] = _fit_with_detail(cases[at], detail)
            fit, resize = second[at, detail]
            if detail is not None and resize is not None:
                fit = after_earlier(fit, detail, earlier.get(job_id))
                if fit is not None and fit.resized is not None:
                    again = resize if fit is second[at, detail][0] else _resize(detail, fit.resized)
                    actions.append(again(job_id))
        if fit is not None:
            notes[job_id] = fit.note
    return tuple(actions), MappingProxyType(notes)


def _fit_with_detail(
    case: WaitingCase, detail: RequestDetail | None
) -> tuple[RequestFit, partial[ResizeRequest] | None]:
    """What follows for jobs of this request, and, if it shall change, what makes the action from a job's id."""
    if detail is None or case.node is None:
        return UNREADABLE, None
    fit = fit_with_detail(case.job, detail, case.node, case.history)
    return fit, None if fit.resized is None else _resize(detail, fit.resized)


def _resize(detail: RequestDetail, resized: ResizedRequest) -> partial[ResizeRequest]:
    cpus, cpus_per_task, per_node, per_cpu_mib = wanted_of(resized, detail)
    return partial(
        ResizeRequest,
        tasks_per_node=detail.tasks_per_node,
        cpus_per_task=cpus_per_task,
        cpus=cpus,
        least_cpus_per_node=per_node,
        before=RequestedCpus(
            cpus=detail.cpus,
            cpus_per_task=detail.cpus_per_task,
            least_cpus_per_node=detail.least_cpus_per_node,
            memory_per_cpu_mib=detail.memory_per_cpu_mib,
            memory_per_node_mib=detail.memory_per_node_mib,
        ),
        reason=resize_reason(resized, detail),
        memory_per_cpu_mib=per_cpu_mib or None,
    )
