"""Why a waiting job's request is left as it is, and where the number of a changed one comes from, in words for people."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.audit_log import UNSETTLED_STATES
from slurm_soda.daemon.store.tables.scheduling import Action
from slurm_soda.policies.cpu_fit.start_cores import StartCores
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.read.job_request import JobRequest
from slurm_soda.slurm_ext.read.snapshot import is_ordinary_job
from slurm_soda.slurm_ext.write.job_changes import JobChange

_IDS_PER_QUERY = 500

_SOURCE_TEXTS = {
    "model": "what earlier jobs of this owner and model needed",
    "category": "what earlier jobs of this owner and category needed",
    "owner": "what earlier jobs of this owner needed",
    "default": "usual for its category, as its owner has no earlier job like it",
}


def start_source_text(start: StartCores) -> str:
    """Where N_start comes from."""
    capped = "; as far as its nodes and memory allow" if start.capped else ""
    return _SOURCE_TEXTS[start.source] + capped


def why_kind_is_excluded(job: SlurmJob) -> str:
    """Why jobs of this kind are never changed; empty if they are."""
    if job.array_task:
        return "it is a job array, whose tasks share one request"
    return "" if is_ordinary_job(job) else "it is part of a heterogeneous job, or insists on nodes that are not there"


def why_request_is_excluded(request: JobRequest) -> str:
    """Why this request must not be changed; empty if it may."""
    if request.peculiar:
        return f"its CPUs are tied to something else ({request.peculiar})"
    if not request.even_tasks_per_node:
        return "how many tasks each node gets is open: --nodes and --ntasks-per-node would say it"
    if request.least_cpus_per_node > request.even_tasks_per_node * request.cpus_per_task:
        return "it asks for a minimum of CPUs on each node (--mincpus)"
    return ""


def newest_cpu_actions(session: Session, submit_of: Mapping[int, float]) -> dict[int, Action]:
    """Of each job the newest change of its CPUs that reached Slurm or may have, or that Slurm refused.

    Args:
        submit_of: first submission by job id.
    """
    found: dict[int, Action] = {}
    ids = list(submit_of)
    for at in range(0, len(ids), _IDS_PER_QUERY):
        query = select(Action).where(
            Action.job_id.in_(ids[at : at + _IDS_PER_QUERY]), Action.kind == "rewrite", Action.state != "void"
        )
        for action in session.scalars(query.order_by(Action.id)):
            if "NumCPUs" in action.new and action.submit_s == submit_of[action.job_id]:
                found[action.job_id] = action
    return found


def outcome_is_unknown(before: Action | None) -> bool:
    """Nobody knows yet what became of the last change."""
    return before is not None and before.state in UNSETTLED_STATES


def why_past_forbids(before: Action | None, change: JobChange) -> str:
    """Why a change must not be made after what was done before; empty if it may."""
    if before is None:
        return ""
    if before.state == "undone":
        return "a change of ours was taken back by hand"
    if before.state == "failed":
        return f"Slurm refused: {before.error}" if before.new == dict(change.new) else ""
    return (
        "" if before.new["NumCPUs"] == change.old["NumCPUs"] else "its request was changed after ours, and that stands"
    )
