"""What kind of job one is: to profiles by its hints and GPUs, to run times by all that is said when it is submitted."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_soda.daemon.store.kind_profiles import PastRunTime
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.snapshot import UNLIMITED_S
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.read import hostlist
from slurm_soda.slurm_ext.read.past_jobs import PastJob


def gpu_type_of(record: SlurmJob, gpu_types: Mapping[str, str]) -> str:
    """The type that it asks for, or runs on, or that all nodes have; empty where it may be one or another.

    ``gpu_types``: of each node with GPUs.
    """
    if record.gpu_type:
        return record.gpu_type
    try:
        names = hostlist.expand_hosts(record.node_names)
    except SodaError:
        return ""
    types = {gpu_types.get(name, "") for name in names or gpu_types}
    return types.pop() if len(types) == 1 else ""


def kind_of_listed_job(record: SlurmJob, gpu_types: Mapping[str, str]) -> JobKind | None:
    """Its kind; None if it names no model."""
    hints = record.hints
    if not hints.model:
        return None
    return JobKind(hints.model, hints.batch_size or 0, gpu_type_of(record, gpu_types), record.gpus)


def traits_of_record(record: SlurmJob) -> SubmissionTraits:
    """What a job's run time is predicted from, as Slurm lists it."""
    model = record.hints.model or ""
    return SubmissionTraits(record.user, record.gpus, record.partition, record.name, model, record.time_limit_s)


def traits_of_job(job: Job | PastRunTime) -> SubmissionTraits:
    """What a job's run time is predicted from, as the store has it: with the time limit that it had last.

    Nothing of ours changes limits, and owners can only lower theirs, to what they know better by then. One that an operator
    raised, or that Slurm lowered (``--time-min``), is missing in one group of those who submit the same limit, and counts
    in all groups that do not ask for it.
    """
    model, limit_s = str(job.hints.get("model", "")), UNLIMITED_S if job.time_limit_s is None else job.time_limit_s
    return SubmissionTraits(job.user, job.gpus, job.partition, job.name, model, limit_s)


def traits_of_past_job(job: PastJob) -> SubmissionTraits:
    """What a job tells of others like it that accounting alone knows: it has neither name nor model."""
    return SubmissionTraits(job.owner, job.gpus, job.partition, limit_s=job.limit_s)
