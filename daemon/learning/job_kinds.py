"""What kind of job one is that Slurm lists, by its hints and the GPUs that it asks for or has."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.read import hostlist


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
