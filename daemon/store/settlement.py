"""What became of changes whose outcome nobody recorded, judged by what Slurm shows after them.

Slurm did not answer, or whoever sent the change was killed. sodad settles its own changes in its next cycle, and those of a
``sodactl`` that was killed; ``sodactl undo`` and ``release-all`` settle what they find open. So every change ends in a state
that says what is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store import audit_log
from slurm_soda.daemon.store.audit_log import UNDO_KIND, ChangeOutcome, UnsettledChange
from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.tables.scheduling import Action
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.read.job_states import waits_for_resources
from slurm_soda.slurm_ext.read.shown_request import is_same_value, shown_request
from slurm_soda.slurm_ext.write.job_changes import ARRAY_TASK, MEMORY_FIELDS

SETTLE_AFTER_S = 600.0
"""Nobody takes longer from recording a change to recording its outcome: what Slurm does not show by then, it never took."""

_NOT_IN_JOB_LIST = frozenset({"MinCPUsNode", *MEMORY_FIELDS, "TresPerSocket", "Extra", ARRAY_TASK})
"""A reading of all jobs does not tell of these; they go with the CPUs, or with the rest of a request for GPUs."""

_NOT_SHOWN = "Slurm does not show it; what is still wanted is sent again"
_NOT_TOLD = "the job no longer waits, and of such a job Slurm does not tell"


def judge_unsettled_changes(
    session: Session,
    unsettled: Sequence[UnsettledChange],
    jobs: Mapping[int, SlurmJob],
    site_factors: Mapping[int, int],
    now_s: float,
    *,
    in_daemon: bool,
) -> list[ChangeOutcome]:
    """What became of changes of unknown outcome, as far as it can be told now.

    Args:
        session: reads.
        unsettled: all of them, oldest first.
        jobs: all jobs that Slurm lists, read after the changes of a daemon were sent.
        site_factors: as :meth:`~slurm_soda.slurm_ext.client.SlurmClient.site_factors` gives them.
        now_s: the instant of that reading.
        in_daemon: by the one active daemon, which has no change on its way now; a change of somebody else, who may be at it,
            counts as not taken only :data:`SETTLE_AFTER_S` after it was recorded.

    Returns:
        Outcomes to record with :func:`~slurm_soda.daemon.store.audit_log.record_outcomes`, among them ``undone`` for what an
        undo has taken back.
    """
    outcomes: dict[int, ChangeOutcome] = {}
    replaced = _replaced_values(session, unsettled)
    for each in reversed(unsettled):  # the newest first: an undo settles what it takes back
        if each.action_id in outcomes:
            continue
        job = jobs.get(each.change.job_id)
        if job is not None and not job.was_submitted_at(each.submit_s):
            job = None
        shown = {} if job is None else shown_fields(job, site_factors) | replaced[each.action_id]
        may_come = not (in_daemon and each.by_daemon) and now_s < each.created_s + SETTLE_AFTER_S
        outcome = resolve_outcome(each, job, shown, now_s, may_come=may_come)
        if outcome is None:
            continue
        outcomes[each.action_id] = outcome
        if outcome.state == "done" and each.change.kind == UNDO_KIND:
            undone = _undone_action(session, each)
            outcomes |= {key: ChangeOutcome(key, "undone") for key in undone}
    return list(outcomes.values())


def shown_fields(job: SlurmJob, site_factors: Mapping[int, int]) -> dict[str, str]:
    """The fields that changes name, as Slurm shows them now and in its words; without a SiteFactor that it does not tell."""
    shown = {
        "NumCPUs": str(job.cpus),
        "CPUsPerTask": str(job.cpus_per_task),
        "Partition": job.partition,
        **shown_request(job),
    }
    if job.job_id in site_factors or (job.state == "PENDING" and waits_for_resources(job.reason)):
        shown["SiteFactor"] = str(site_factors.get(job.job_id, 0))
    return shown


def is_shown(new: Mapping[str, str], shown: Mapping[str, str]) -> bool | None:
    """Whether a change of these fields is what Slurm shows; ``None`` where Slurm does not tell."""
    wrote = {name: value for name, value in new.items() if name not in _NOT_IN_JOB_LIST}
    if any(name in shown and not is_same_value(name, value, shown[name]) for name, value in wrote.items()):
        return False
    return True if all(name in shown for name in wrote) else None


def resolve_outcome(
    unsettled: UnsettledChange, job: SlurmJob | None, shown: Mapping[str, str], now_s: float, *, may_come: bool = False
) -> ChangeOutcome | None:
    """What became of one change.

    Args:
        unsettled: the change.
        job: the job now; ``None`` if Slurm no longer lists it.
        shown: its fields after the change and before any later one.
        now_s: the instant of the reading.
        may_come: Slurm may yet take it.

    Returns:
        ``None`` while it cannot be told: the job is leaving its nodes, or Slurm does not tell that field of a job that is
        held or waits for its begin time.
    """
    key = unsettled.action_id
    if job is None:
        return ChangeOutcome(key, "void", "the job is gone")
    if unsettled.change.kind == "requeue" and job.state == "COMPLETING" and not _moved_on(unsettled, job):
        return None
    took = _took_effect(unsettled, job, shown, now_s)
    if took:
        return ChangeOutcome(key, "done")
    if took is None:
        return None if job.state == "PENDING" else ChangeOutcome(key, "void", _NOT_TOLD)
    return None if may_come else ChangeOutcome(key, "void", _NOT_SHOWN)


def _took_effect(unsettled: UnsettledChange, job: SlurmJob, shown: Mapping[str, str], now_s: float) -> bool | None:
    change = unsettled.change
    if change.kind == "requeue":
        return _moved_on(unsettled, job)
    if change.kind == "signal":
        return _moved_on(unsettled, job) or job.state not in ("RUNNING", "SUSPENDED")
    if (wrote := change.new.get("StartTime", "")).startswith("uts"):
        return job.eligible_s == float(wrote.removeprefix("uts")) if job.state == "PENDING" else None
    if "StartTime" in change.new:
        return not (job.state == "PENDING" and job.waits_for_begin_time(now_s))
    return is_shown(change.new, shown)


def _moved_on(unsettled: UnsettledChange, job: SlurmJob) -> bool:
    """The run that the change was about is over and followed by another."""
    return unsettled.restart is not None and job.restarts > unsettled.restart


def _replaced_values(session: Session, unsettled: Sequence[UnsettledChange]) -> dict[int, dict[str, str]]:
    """What Slurm showed before the next change of the same fields, by action: every change tells what it found."""
    found: dict[int, dict[str, str]] = {each.action_id: {} for each in unsettled}
    if not unsettled:
        return found
    job_ids = sorted({each.change.job_id for each in unsettled})
    later: dict[int, list[Action]] = {}
    for part in split_list(job_ids):
        query = select(Action).where(Action.job_id.in_(part), Action.id > unsettled[0].action_id)
        for action in session.scalars(query.order_by(Action.id.desc())):
            later.setdefault(action.job_id, []).append(action)
    for each in unsettled:
        for action in later.get(each.change.job_id, []):  # newest first, so that the next one after it wins
            # One that was recorded in the same instant goes by the same reading of Slurm.
            if action.submit_s == each.submit_s and action.created_s > each.created_s:
                found[each.action_id] |= action.old
    return found


def _undone_action(session: Session, undo: UnsettledChange) -> Iterable[int]:
    """The action that an undo takes back: the newest one before it that wrote what the undo found."""
    query = select(Action).where(
        Action.job_id == undo.change.job_id,
        Action.submit_s == undo.submit_s,
        Action.id < undo.action_id,
        Action.kind != UNDO_KIND,
        Action.state.in_(audit_log.STANDING_STATES),
    )
    for action in session.scalars(query.order_by(Action.id.desc())):
        if (action.new, action.old) == (dict(undo.change.old), dict(undo.change.new)):
            return [action.id]
    return []
