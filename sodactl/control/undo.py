"""``sodactl undo``: put back what a change replaced, where that can be done."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import click
from sqlalchemy.orm import Session

from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.audit_log import STANDING_STATES, UNDO_KIND, UNSETTLED_STATES, ActionState
from slurm_soda.daemon.store.settlement import is_shown, shown_fields
from slurm_soda.daemon.store.tables.scheduling import Action
from slurm_soda.slurm_ext.client import SlurmJob, site_factors_if_any
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES
from slurm_soda.slurm_ext.read.shown_request import REQUEST_FIELDS, is_same_value
from slurm_soda.slurm_ext.write.job_changes import MEMORY_FIELDS, JobChange, JobChangeKind, known_change
from slurm_soda.sodactl import output
from slurm_soda.sodactl.control import manual_changes
from slurm_soda.sodactl.live.job_identity import JOB_ID
from slurm_soda.sodactl.live.view_source import is_daemon_alive
from slurm_soda.sodactl.output import Column, Document
from slurm_soda.sodactl.simulation.inputs.parameter_types import MOST_ROWS
from slurm_soda.sodactl.site_access import SiteAccess, on_site

_COMPARED = ("NumCPUs", "SiteFactor", "Partition", "TresPerNode", "TresPerJob")
"""Fields that Slurm shows as they were written, but for the order of a list: the partition that a job ran in comes first."""

_UNDONE_BY: Mapping[str, JobChangeKind] = {"rewrite": "rewrite", "share": "unshare", "lease": "lease"}
_NOT_UNDOABLE = {
    "unshare": "sodad lets a job share GPUs again if it is better so",
    "signal": "a signal cannot be taken back",
    "requeue": "a requeue cannot be taken back: the run has ended",
    "start-now": "a started wait cannot be put back, and nothing depends on it",
    "release": "a lift that has ended is not put back: nothing would end it; an enforcing sodad lifts what its plan needs",
}
_OFFERED_NOT = (UNDO_KIND, "release")
"""Kinds of changes that are not looked at unless somebody names one by its id."""


SettledStates = Mapping[int, ActionState]
"""By action the state of one whose outcome was unknown until now."""


@dataclass(frozen=True, slots=True)
class UndoCheck:
    """Whether one action can be undone: ``change`` if so, else the ``refusal``."""

    action: Action
    change: JobChange | None
    refusal: str = ""


@click.command()
@click.argument("action_id", type=click.IntRange(1, MOST_ROWS), metavar="[ACTION_ID]", required=False)
@click.option("--job", "-j", "job_id", type=JOB_ID, help="Every change to this job that is still in force.")
@click.option("--last", type=click.IntRange(1, MOST_ROWS), help="The newest N changes.")
@click.option("--dry-run", "-n", is_flag=True, help="Only show what would be sent.")
@on_site
def undo(
    site: SiteAccess, *, as_json: bool, action_id: int | None, job_id: int | None, last: int | None, dry_run: bool
) -> int:
    """Undo changes to jobs.

    Restores the old value through Slurm and records that as a manual change. `sodactl explain JOB` shows the ids
    of actions. What cannot be undone is refused with the reason; so is the end of a lift (`release`), and without a
    living sodad whatever would lift a job again. A sodad that enforces sets its order again: switch to
    `sodactl mode advise` first. Exit status: 0 if all was undone, 1 if something was refused or failed.

    \b
    Examples:
      sodactl undo 4711             one change
      sodactl undo --job 12         all that was done to job 12, newest first
      sodactl undo --last 20 -n     what undoing the newest 20 would send
    """  # noqa: D301 - click reads the control character
    if sum(value is not None for value in (action_id, job_id, last)) != 1:
        raise click.UsageError("give exactly one of ACTION_ID, --job and --last")
    document = _undo(site, action_id, job_id, last, dry_run=dry_run)
    if as_json:
        output.print_json(document)
    else:
        _draw(document)
    return 0 if all(row["outcome"] in ("undone", "would undo") for row in document["actions"]) else 1


def _undo(site: SiteAccess, action_id: int | None, job_id: int | None, last: int | None, *, dry_run: bool) -> Document:
    client = site.slurm()
    with site.store() as store:
        records = {record.job_id: record for record in client.jobs()}
        site_factors = site_factors_if_any(client)
        settled = manual_changes.settle(store, records, site_factors, site.now_s(), dry_run=dry_run)
        with store.read() as session:
            chosen = _select_actions(session, settled, action_id, job_id, last)
            warning = _warning(session, site)
            alive = is_daemon_alive(session, queries.latest_epoch(session), site)
            verdicts = check_undo(session, chosen, records, site_factors, settled, lifts_end=alive)
        wanted = [
            manual_changes.ManualChange(verdict.change, verdict.action.submit_s, verdict.action.id)
            for verdict in verdicts
            if verdict.change is not None
        ]
        errors: dict[int, str] = {}
        if not dry_run:
            results = manual_changes.send_manual_changes(store, client, wanted, site.now_s())
            errors = {entry.undone_action_id or 0: result.error for entry, result in zip(wanted, results, strict=True)}
    rows = [_row(verdict, errors.get(verdict.action.id, ""), dry_run=dry_run) for verdict in verdicts]
    return {"dry_run": dry_run, "warnings": [warning] if warning else [], "actions": rows}


def _select_actions(
    session: Session, settled: SettledStates, action_id: int | None, job_id: int | None, last: int | None
) -> Sequence[Action]:
    """The actions meant, newest first, so that each finds the value that it wrote."""
    if action_id is not None:
        action = session.get(Action, action_id)
        if action is None:
            raise SodaError(f"there is no action {action_id}; `sodactl explain JOB` lists a job's actions")
        return [action]
    if job_id is not None:
        job = queries.find_job(session, job_id)
        if job is None:
            raise SodaError(f"the store knows no job {job_id}; `sodactl history` lists finished jobs")
        actions = reversed(queries.actions_of(session, job))
        return [action for action in actions if action.kind not in _OFFERED_NOT and _stands(action, settled)]
    standing = queries.standing_actions(session)
    return list(islice((a for a in standing if a.kind not in _OFFERED_NOT and _stands(a, settled)), last))


def _warning(session: Session, site: SiteAccess) -> str:
    setting = queries.admin_settings(session).get("mode")
    mode = site.settings.mode if setting is None else setting.value
    enforcing = mode == "enforce" and is_daemon_alive(session, queries.latest_epoch(session), site)
    return "sodad enforces and will set its order again; `sodactl mode advise` stops that" if enforcing else ""


def _stands(action: Action, settled: SettledStates) -> bool:
    """Slurm took the change, or may have, and nobody took it back."""
    return settled.get(action.id, action.state) in STANDING_STATES


def check_undo(
    session: Session,
    chosen: Sequence[Action],
    records: Mapping[int, SlurmJob],
    site_factors: Mapping[int, int],
    settled: SettledStates,
    *,
    lifts_end: bool,
) -> list[UndoCheck]:
    """Whether each action can be undone, in the order in which they would be: each finds what those before it restore.

    Args:
        session: reads.
        chosen: the actions, newest first.
        records: Slurm's jobs.
        site_factors: as Slurm tells them.
        settled: states that :func:`.manual_changes.settle` has found.
        lifts_end: a sodad lives, so that what it lifted ends with it. Otherwise nothing is lifted again: of several changes
            each sets SiteFactor 0 at once, and one before which the job was lifted already is refused.
    """
    together = {action.id for action in chosen}
    first = {} if lifts_end else _first_site_factors(chosen)
    shown = {job_id: shown_fields(record, site_factors) for job_id, record in records.items()}
    verdicts = []
    for action in chosen:
        refusal = (
            _not_undoable(action, settled.get(action.id, action.state))
            or _job_gone(action, records.get(action.job_id))
            or _changed_again(session, action, together, shown[action.job_id], settled)
            or _not_in_force(action, shown[action.job_id], settled)
            or _would_lift(action, first)
        )
        if refusal:
            verdicts.append(UndoCheck(action, None, refusal))
            continue
        kind = _UNDONE_BY.get(action.kind, "order")
        restored = action.old | ({} if lifts_end or "SiteFactor" not in action.old else {"SiteFactor": "0"})
        if _is_memory_changed(action, records[action.job_id]):  # the CPUs go back, the owner's memory stays
            restored = {name: value for name, value in restored.items() if name not in MEMORY_FIELDS}
        change = known_change(action.job_id, kind, restored, action.new, f"action {action.id} taken back by hand")
        verdicts.append(UndoCheck(action, change))
        shown[action.job_id] |= {name: action.old[name] for name in action.old if name in shown[action.job_id]}
    return verdicts


def _not_undoable(action: Action, state: str) -> str:
    if state not in STANDING_STATES:
        return f"it is {state}, so there is nothing to undo"
    if action.kind == UNDO_KIND:
        return "it takes a change back itself"
    if action.kind in _NOT_UNDOABLE:
        return _NOT_UNDOABLE[action.kind]
    return "" if action.old else "the value before it is not known"


def _first_site_factors(chosen: Sequence[Action]) -> dict[tuple[int, float], str]:
    """By job the SiteFactor before the oldest of these changes."""
    return {(a.job_id, a.submit_s): a.old["SiteFactor"] for a in chosen if "SiteFactor" in a.old}


def _would_lift(action: Action, first: Mapping[tuple[int, float], str]) -> str:
    before = first.get((action.job_id, action.submit_s), "0")
    if "SiteFactor" not in action.old or before == "0":
        return ""
    return (
        f"no sodad lives that would end the lift before it (SiteFactor {before}); "
        "`sodactl release-lifts` sets SiteFactor 0"
    )


def _job_gone(action: Action, record: SlurmJob | None) -> str:
    if record is None or record.state in ENDED_STATES or not record.was_submitted_at(action.submit_s):
        return f"job {action.job_id} has ended"
    if record.state != "PENDING":
        return f"job {action.job_id} is {record.state.lower()}: only a waiting job's place and request can be changed"
    return ""


def _changed_again(
    session: Session,
    action: Action,
    together: Collection[int],
    shown: Mapping[str, str],
    settled: SettledStates,
) -> str:
    for later in queries.later_actions(session, action):
        if later.id in together or later.kind == UNDO_KIND or not set(later.new) & set(action.old):
            continue
        if _stands(later, settled) and not _awaits_answer(later, shown, settled):
            if later.kind == "release":
                return f"action {later.id} has ended the lift already"
            return f"action {later.id} changed the same again since; undo that first, or use --job {action.job_id}"
    return ""


def _awaits_answer(action: Action, shown: Mapping[str, str], settled: SettledStates) -> bool:
    """Slurm was asked a moment ago, did not answer, and does not show the change."""
    return settled.get(action.id, action.state) in UNSETTLED_STATES and is_shown(action.new, shown) is False


def _not_in_force(action: Action, shown: Mapping[str, str], settled: SettledStates) -> str:
    if _awaits_answer(action, shown, settled):
        return f"it is {action.state}: Slurm has not answered and does not show it, so there is nothing to undo yet"
    compared = (
        () if action.kind == "lease" else _COMPARED
    )  # a lift that it ended is not put back, and may be there again
    for name in compared:
        wrote, now = action.new.get(name), shown.get(name)
        if wrote is not None and now is not None and sorted(wrote.split(",")) != sorted(now.split(",")):
            return f"{name} is now {now}, not the {wrote} that it wrote: somebody else changed it"
    for name in REQUEST_FIELDS:
        wrote, now = action.new.get(name), shown.get(name)
        if wrote is not None and now is not None and not is_same_value(name, wrote, now):
            return (
                f"{name} is now {now or 'empty'}, not the {wrote or 'nothing'} that it wrote: somebody else changed it"
            )
    return ""


def _is_memory_changed(action: Action, record: SlurmJob) -> bool:
    """Whether the job asks for other memory than the change gave each of its nodes."""
    wrote = action.new.get("MinMemoryNode")
    return wrote is not None and record.memory_mib != int(wrote) * max(record.nodes, 1)


def _row(verdict: UndoCheck, error: str, *, dry_run: bool) -> Document:
    action = verdict.action
    outcome = "refused" if verdict.change is None else "failed" if error else "would undo" if dry_run else "undone"
    return {
        "action_id": action.id,
        "job_id": action.job_id,
        "kind": action.kind,
        "restores": {} if verdict.change is None else dict(verdict.change.new),
        "outcome": outcome,
        "reason": verdict.refusal or error,
    }


def _draw(document: Document) -> None:
    for line in document["warnings"]:
        output.warn(line)
    if not document["actions"]:
        output.print_line("no change stands that could be undone")
        return
    columns = [
        Column("action", right=True),
        Column("job", right=True),
        Column("kind"),
        Column("outcome"),
        Column("restores"),
        Column("reason"),
    ]
    output.print_table(
        columns,
        [
            (
                str(r["action_id"]),
                str(r["job_id"]),
                r["kind"],
                r["outcome"],
                manual_changes.format_fields(r["restores"]),
                r["reason"],
            )
            for r in document["actions"]
        ],
    )
