"""``sodactl undo``: put back what a change replaced, where that can be done."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import click
from sqlalchemy.orm import Session

from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.tables.scheduling import Action
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES, waits_for_resources
from slurm_soda.slurm_ext.write.job_changes import JobChange, JobChangeKind, known_change
from slurm_soda.sodactl import output
from slurm_soda.sodactl.control import manual_changes
from slurm_soda.sodactl.live.job_identity import is_same_job
from slurm_soda.sodactl.live.view_source import is_daemon_alive
from slurm_soda.sodactl.output import Column, Document
from slurm_soda.sodactl.simulation.inputs.parameter_types import JOB_ID, MOST_ROWS
from slurm_soda.sodactl.site_access import SiteAccess, on_site

_NOT_UNDOABLE = {
    "signal": "a signal cannot be taken back",
    "requeue": "a requeue cannot be taken back: the run has ended",
    "start-now": "a started wait cannot be put back, and nothing depends on it",
}


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
    of actions. What cannot be undone is refused with the reason. A sodad that enforces sets its order again: switch to
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
        with store.read() as session:
            chosen = _select_actions(session, action_id, job_id, last)
            warning = _warning(session, site)
            records = {record.job_id: record for record in client.jobs()}
            verdicts = check_undo(session, chosen, records, client.site_factors())
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


def _select_actions(session: Session, action_id: int | None, job_id: int | None, last: int | None) -> Sequence[Action]:
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
        standing = [action for action in queries.actions_of(session, job) if action.state == "done"]
        return [action for action in reversed(standing) if action.kind != manual_changes.UNDO_KIND]
    return queries.newest_actions(session, last or 0, without=manual_changes.UNDO_KIND)


def _warning(session: Session, site: SiteAccess) -> str:
    setting = queries.admin_settings(session).get("mode")
    mode = site.settings.mode if setting is None else setting.value
    enforcing = mode == "enforce" and is_daemon_alive(queries.latest_epoch(session), site, site.now_s())
    return "sodad enforces and will set its order again; `sodactl mode advise` stops that" if enforcing else ""


def check_undo(
    session: Session, chosen: Sequence[Action], records: Mapping[int, SlurmJob], site_factors: Mapping[int, int]
) -> list[UndoCheck]:
    """Whether each action can be undone, in the order in which they would be: each finds what those before it restore."""
    together = {action.id for action in chosen}
    present = {(job_id, "SiteFactor"): str(factor) for job_id, factor in site_factors.items()}
    present |= {(job_id, "NumCPUs"): str(record.cpus) for job_id, record in records.items()}
    verdicts = []
    for action in chosen:
        refusal = (
            _not_undoable(action)
            or _job_gone(action, records.get(action.job_id))
            or _changed_again(session, action, together)
            or _changed_by_others(action, records[action.job_id], present)
        )
        if refusal:
            verdicts.append(UndoCheck(action, None, refusal))
            continue
        kind: JobChangeKind = "rewrite" if action.kind == "rewrite" else "order"
        change = known_change(action.job_id, kind, action.old, action.new, f"action {action.id} taken back by hand")
        verdicts.append(UndoCheck(action, change))
        present |= {(action.job_id, name): value for name, value in action.old.items()}
    return verdicts


def _not_undoable(action: Action) -> str:
    if action.state != "done":
        return f"it is {action.state}, so there is nothing to undo"
    if action.kind == manual_changes.UNDO_KIND:
        return "it takes a change back itself"
    if action.kind in _NOT_UNDOABLE:
        return _NOT_UNDOABLE[action.kind]
    return "" if action.old else "the value before it is not known"


def _job_gone(action: Action, record: SlurmJob | None) -> str:
    if record is None or record.state in ENDED_STATES or not is_same_job(action.submit_s, record):
        return f"job {action.job_id} has ended"
    if record.state != "PENDING":
        return f"job {action.job_id} is {record.state.lower()}: only a waiting job's place and request can be changed"
    return ""


def _changed_again(session: Session, action: Action, together: Collection[int]) -> str:
    for later in queries.later_actions(session, action):
        if later.id not in together and later.kind != manual_changes.UNDO_KIND and set(later.new) & set(action.old):
            return f"action {later.id} changed the same again since; undo that first, or use --job {action.job_id}"
    return ""


def _changed_by_others(action: Action, record: SlurmJob, present: Mapping[tuple[int, str], str]) -> str:
    # Slurm does not tell the SiteFactor of a job that waits for something else than resources.
    told = ("NumCPUs", "SiteFactor") if waits_for_resources(record.reason) else ("NumCPUs",)
    for name in told:
        wrote, now = action.new.get(name), present.get((action.job_id, name), "0")
        if wrote not in (None, now):
            return f"{name} is now {now}, not the {wrote} that it wrote: somebody else changed it"
    return ""


def _row(verdict: UndoCheck, error: str, *, dry_run: bool) -> Document:
    action = verdict.action
    refused = verdict.change is None
    outcome = "refused" if refused else "failed" if error else "would undo" if dry_run else "undone"
    return {
        "action_id": action.id,
        "job_id": action.job_id,
        "kind": action.kind,
        "restores": {} if refused else dict(action.old),
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
