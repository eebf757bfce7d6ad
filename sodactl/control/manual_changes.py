"""Changes made by hand with sodactl: sent to Slurm, and recorded like the daemon's own, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.store import audit_log, queries
from slurm_soda.daemon.store.audit_log import ActionState, ChangeOutcome, IntendedChange
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.preemptions import note_requeued
from slurm_soda.daemon.store.settlement import judge_unsettled_changes
from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.daemon.store.store_failures import first_line
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob, site_factors_if_any
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.write.job_changes import JobChange
from slurm_soda.slurm_ext.write.sending import JobChangeResult, apply_changes
from slurm_soda.sodactl.live.job_identity import find_stored_job

_QUEUED_ALREADY = "Job is pending execution"
"""How Slurm refuses to requeue a job that waits: sodad, another command or its owner has requeued it in the meantime."""


@dataclass(frozen=True, slots=True)
class ManualChange:
    """One change to make, of the job submitted at ``submit_s``; ``undone_action_id`` names the action that it takes back."""

    change: JobChange
    submit_s: float
    undone_action_id: int | None = None
    preemption_id: int | None = None
    """The preemption that it carries on."""


def send_manual_changes(
    store: Store, client: SlurmClient, wanted: Sequence[ManualChange], now_s: float
) -> list[JobChangeResult]:
    """Send changes in order, and record them.

    Where Slurm did not answer, it is asked what it shows: a change that it took all the same has no error. Others of unknown
    outcome stay open, for sodad or a later command to settle.
    """
    if not wanted:
        return []
    action_ids = _record_intents(store, wanted, now_s)
    results = apply_changes(client, [entry.change for entry in wanted])
    _record_results(store, wanted, action_ids, results, now_s)
    return _settle_unanswered(store, client, action_ids, results, now_s)


def send_even_unrecorded(
    store: Store | None, client: SlurmClient, wanted: Sequence[ManualChange], now_s: float
) -> tuple[list[JobChangeResult], str]:
    """As :func:`send_manual_changes`, but whatever fails in the store, each change is sent, and once.

    Returns:
        The results, and what could not be recorded, and why; empty where everything was, or where there is no store.
    """
    changes = [entry.change for entry in wanted]
    if store is None or not wanted:
        return apply_changes(client, changes), ""
    try:
        action_ids = _record_intents(store, wanted, now_s)
    except (StoreError, SQLAlchemyError) as error:
        return apply_changes(client, changes), f"the changes are not recorded: {first_line(error)}"
    results = apply_changes(client, changes)
    try:
        _record_results(store, wanted, action_ids, results, now_s)
        return _settle_unanswered(store, client, action_ids, results, now_s), ""
    except (StoreError, SQLAlchemyError) as error:
        return results, f"the changes are sent, and what became of them is not recorded: {first_line(error)}"


def _record_intents(store: Store, wanted: Sequence[ManualChange], now_s: float) -> list[int]:
    """Record what is about to be sent; the actions' ids."""
    intents = [
        IntendedChange(entry.change, entry.submit_s, entry.preemption_id, takes_back=entry.undone_action_id is not None)
        for entry in wanted
    ]
    with store.write() as session:
        return audit_log.record_intents(session, intents, epoch_id=None, cycle_id=None, now_s=now_s)


def _settle_unanswered(
    store: Store, client: SlurmClient, action_ids: Sequence[int], results: list[JobChangeResult], now_s: float
) -> list[JobChangeResult]:
    """The results, without the error where Slurm did not answer and shows the change all the same."""
    results = [replace(result, error="") if _is_queued_already(result) else result for result in results]
    if all(result.answered for result in results):
        return results
    try:
        settled = settle(store, {job.job_id: job for job in client.jobs()}, site_factors_if_any(client), now_s)
    except SlurmError:
        return results
    return [
        replace(result, error="") if settled.get(action_id) == "done" else result
        for action_id, result in zip(action_ids, results, strict=True)
    ]


def _record_results(
    store: Store,
    wanted: Sequence[ManualChange],
    action_ids: Sequence[int],
    results: Sequence[JobChangeResult],
    now_s: float,
) -> None:
    """Record what became of them; what they take back becomes ``undone`` where Slurm took the change."""
    outcomes, requeued = [], []
    for entry, action_id, result in zip(wanted, action_ids, results, strict=True):
        state: ActionState = "done" if not result.error else "failed" if result.answered else "sent"
        if _is_queued_already(result):
            state = "void"
        outcomes.append(ChangeOutcome(action_id, state, result.error))
        if entry.undone_action_id is not None and not result.error:
            outcomes.append(ChangeOutcome(entry.undone_action_id, "undone"))
        if entry.preemption_id is not None and not result.error:
            requeued.append(entry.preemption_id)
    with store.write() as session:
        audit_log.record_outcomes(session, outcomes, now_s)
        if requeued:
            note_requeued(session, requeued, now_s)


def _is_queued_already(result: JobChangeResult) -> bool:
    return result.change.kind == "requeue" and result.answered and _QUEUED_ALREADY in result.error


def first_submit_times(store: Store | None, jobs: Sequence[SlurmJob]) -> dict[int, float]:
    """First submission by job id, which with the id names a job in the store; Slurm moves it at every requeue."""
    known: dict[int, list[Job]] = {}
    if store is not None:
        with suppress(SQLAlchemyError), store.read() as session:
            # Also those that had ended when sodad last saw them: a requeued one waits again.
            for job in queries.find_jobs(session, [record.job_id for record in jobs]):
                known.setdefault(job.job_id, []).append(job)
    found = ((record, find_stored_job(known.get(record.job_id, []), record)) for record in jobs)
    return {record.job_id: record.submit_s if job is None else job.submit_s for record, job in found}


def settle(
    store: Store,
    jobs: Mapping[int, SlurmJob],
    site_factors: Mapping[int, int],
    now_s: float,
    *,
    dry_run: bool = False,
) -> dict[int, ActionState]:
    """Find out what became of changes of unknown outcome; their states by action, recorded unless ``dry_run``."""
    with store.read() as session:
        unsettled = audit_log.unsettled_changes(session)
        outcomes = judge_unsettled_changes(session, unsettled, jobs, site_factors, now_s, in_daemon=False)
    if outcomes and not dry_run:
        with store.write() as session:
            audit_log.record_outcomes(session, outcomes, now_s)
    return {outcome.action_id: outcome.state for outcome in outcomes}


def result_document(result: JobChangeResult) -> dict[str, Any]:
    """One change and what became of it, as plain data."""
    change = result.change
    return {
        "job_id": change.job_id,
        "kind": change.kind,
        "new": dict(change.new),
        "old": dict(change.old),
        "error": result.error,
    }


def format_fields(fields: Mapping[str, str]) -> str:
    """Fields on one line, in Slurm's words."""
    return " ".join(f"{name}={value}" for name, value in fields.items())
