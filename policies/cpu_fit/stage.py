"""The last stage of a decision: waiting jobs ask for the CPUs that they need (SODA, Section V-B)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from slurm_soda.policies.cpu_fit.fit import (
    UNREADABLE,
    CpuFitNote,
    EarlierChange,
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
    on its way, nothing is said: its turn comes in a later cycle.
    """

    name: str = "cpu-fit"

    def apply(self, snapshot: ClusterSnapshot, plan: Plan) -> Plan:
        """The plan with these actions and notes added."""
        requests = snapshot.cpu_requests
        details, earlier = requests.details.by_job(), requests.earlier.by_job()
        notes: dict[int, CpuFitNote] = {}
        actions = []
        for job_id, case, first in fits_without_detail(requests):
            known = first is not None or job_id not in details
            fit = first if known else _fit_with_detail(case, details[job_id], earlier.get(job_id))
            if fit is None:
                continue
            notes[job_id] = fit.note
            detail = details.get(job_id)
            if fit.resized is not None and detail is not None:
                actions.append(_action(job_id, detail, fit.resized))
        return replace(plan, actions=(*plan.actions, *actions), cpu_fits=notes) if notes else plan


def fits_without_detail(requests: CpuRequests) -> Iterator[tuple[int, WaitingCase, RequestFit | None]]:
    """Every job, in order, with what can be said of it before Slurm is asked; see :func:`.fit_without_detail`."""
    judged = [(case, fit_without_detail(*case)) for case in requests.distinct.cases()]
    for job_id, at in zip(requests.job_id.tolist(), requests.request.tolist(), strict=True):
        yield (job_id, *judged[at])


def _fit_with_detail(
    case: WaitingCase, detail: RequestDetail | None, earlier: EarlierChange | None
) -> RequestFit | None:
    if detail is None or case.node is None:
        return UNREADABLE
    return after_earlier(fit_with_detail(case.job, detail, case.node, case.history), detail, earlier)


def _action(job_id: int, detail: RequestDetail, resized: ResizedRequest) -> ResizeRequest:
    cpus, cpus_per_task, per_node, memory_mib = wanted_of(resized, detail)
    return ResizeRequest(
        job_id=job_id,
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
        memory_per_node_mib=memory_mib or None,
    )
