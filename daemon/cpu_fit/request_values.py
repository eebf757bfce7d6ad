"""Jobs, requests and recorded changes in the terms in which CPU fit decides."""

from __future__ import annotations

from slurm_soda.daemon.store.audit_log import UNSETTLED_STATES
from slurm_soda.daemon.store.tables.scheduling import Action
from slurm_soda.policies.cpu_fit.fit import CpuFitCandidate, EarlierChange, EarlierResize, JobForm, RequestDetail
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.read.job_request import JobRequest
from slurm_soda.slurm_ext.read.snapshot import is_ordinary_job


def candidate_of(job: SlurmJob, limit: str) -> CpuFitCandidate:
    """What a reading of all jobs shows of one; ``limit``: of accounting, that binds it."""
    hints = job.hints
    form = JobForm.ARRAY if job.array_rest else JobForm.PLAIN if is_ordinary_job(job) else JobForm.UNTOUCHABLE
    return CpuFitCandidate(
        job.gpus,
        job.nodes,
        job.tasks,
        job.cpus_per_task,
        job.cpus,
        hints.pipelined,
        hints.large_weights,
        hints.heavy_preprocessing,
        form,
        hints.category,
        hints.model,
        limit,
    )


def detail_of(request: JobRequest) -> RequestDetail:
    """What Slurm says of one job."""
    return RequestDetail(
        request.nodes,
        request.even_tasks_per_node,
        request.cpus,
        request.cpus_per_task,
        request.least_cpus_per_node,
        request.memory_per_cpu_mib,
        request.memory_per_node_mib,
        request.peculiar,
    )


_OUTCOMES = {
    **dict.fromkeys(UNSETTLED_STATES, EarlierResize.IN_FLIGHT),
    "undone": EarlierResize.UNDONE,
    "failed": EarlierResize.REFUSED,
}


def earlier_change_of(action: Action) -> EarlierChange:
    """What the audit log says of a change of CPUs."""

    def number(name: str) -> int:
        return int(action.new.get(name, "0"))

    return EarlierChange(
        outcome=_OUTCOMES.get(action.state, EarlierResize.STANDS),
        cpus=number("NumCPUs"),
        cpus_per_task=number("CPUsPerTask"),
        least_cpus_per_node=number("MinCPUsNode"),
        memory_per_cpu_mib=number("MinMemoryCPU"),
        error=action.error,
    )
