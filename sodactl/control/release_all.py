"""``sodactl release-all``: give every job back to Slurm alone, whatever state slurm-soda itself is in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click
from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.engine import Store, StoreError
from slurm_soda.daemon.store.store_failures import first_line
from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.pools.pools_record import read_table
from slurm_soda.slurm_ext.write import job_changes
from slurm_soda.slurm_ext.write.sending import JobChangeResult
from slurm_soda.sodactl import output
from slurm_soda.sodactl.control import manual_changes, undo
from slurm_soda.sodactl.control.manual_changes import ManualChange
from slurm_soda.sodactl.control.missing_requeues import missing_requeues
from slurm_soda.sodactl.live.view_source import is_daemon_alive
from slurm_soda.sodactl.output import Column, Document
from slurm_soda.sodactl.site_access import SiteAccess, on_any_site


@dataclass(frozen=True, slots=True)
class _SlurmReading:
    jobs: Sequence[SlurmJob]
    site_factors: Mapping[int, int]


@click.command("release-all")
@click.option("--dry-run", "-n", is_flag=True, help="Only show what would be sent.")
@on_any_site
def release_all(site: SiteAccess, *, as_json: bool, dry_run: bool) -> int:
    """Undo all changes, even with sodad down.

    Leaves every job to Slurm alone: resets every SiteFactor (also of held jobs, where Slurm does not say whether there is
    one), ends the wait of jobs that slurm-soda requeued, and restores requests for cores that it changed, unless someone
    changed them since. Without a running sodad it requeues jobs that ended for a preemption after their checkpoint, while
    Slurm still lists them. Holds stay as they are: slurm-soda never holds a job, so each was set by a user or an admin.
    First the mode is set to observe, so that a running sodad does not make the same changes again; without a usable store
    this is skipped, with a warning. Pools stay in force, as they need no sodad: `sodactl pools revert` removes them.
    Needs the rights of root or SlurmUser.
    Exit status: 0 if Slurm accepted everything, else 1.

    \b
    Examples:
      sodactl release-all -n     what would be sent
      sodactl release-all
    """  # noqa: D301 - click reads the control character
    document = _release(site, dry_run=dry_run)
    if as_json:
        output.print_json(document)
    else:
        _draw(document)
    return 0 if not any(row["error"] for row in document["changes"]) else 1


def _release(site: SiteAccess, *, dry_run: bool) -> Document:
    warnings = _pool_warnings(site)
    with ExitStack() as stack:
        store = None if dry_run else _set_observe_mode(stack, site, warnings)
        client = site.slurm()
        reading = _SlurmReading(client.jobs(), client.site_factors())
        submit_s = manual_changes.first_submit_times(store, reading.jobs)
        wanted = [
            ManualChange(change, submit_s[change.job_id])
            for change in job_changes.release_changes(reading.jobs, reading.site_factors, now_s=site.now_s())
        ]
        wanted += _changes_by_store(stack, site, store, reading, warnings)
        results: Sequence[JobChangeResult]
        if dry_run:
            results = [JobChangeResult(entry.change) for entry in wanted]
        else:
            results = _send(store, client, wanted, site.now_s(), warnings)
    rows = [manual_changes.result_document(result) for result in results]
    return {"dry_run": dry_run, "mode_set": "observe" if store else None, "warnings": warnings, "changes": rows}


def _changes_by_store(
    stack: ExitStack, site: SiteAccess, store: Store | None, reading: _SlurmReading, warnings: list[str]
) -> list[ManualChange]:
    """Requests of waiting jobs as their users made them, and requeues that a dead sodad owes; only the store knows those.

    Settles what became of changes whose outcome is unknown, so that those that Slurm took go back too.
    """
    listed = {job.job_id: job for job in reading.jobs}
    waiting = {job_id: job for job_id, job in listed.items() if job.state == "PENDING"}
    try:
        dry_run, store = store is None, store or stack.enter_context(site.store())
        settled = manual_changes.settle(store, listed, reading.site_factors, site.now_s(), dry_run=dry_run)
        with store.read() as session:
            standing = queries.standing_rewrites(session, list(waiting))
            verdicts = undo.check_undo(session, standing, waiting, {}, settled, lifts_end=False)
            alive = is_daemon_alive(session, queries.latest_epoch(session), site)
            requeues = [] if alive else missing_requeues(session, listed, "release-all", site.now_s())
    except (StoreError, SQLAlchemyError):
        warnings.append("requests for cores stay as they are: the store, which knows the old ones, cannot be read")
        return []
    return [ManualChange(v.change, v.action.submit_s, v.action.id) for v in verdicts if v.change is not None] + requeues


def _pool_warnings(site: SiteAccess) -> list[str]:
    """Pools are Slurm's own partitions: they do no harm without sodad, but who wants out wants to know."""
    try:
        divided = read_table(Path(site.settings.state_dir)).bases
    except SlurmError as error:
        return [str(error)]
    return [f"pools of {', '.join(divided)} stay in force; `sodactl pools revert` takes them back"] if divided else []


def _set_observe_mode(stack: ExitStack, site: SiteAccess, warnings: list[str]) -> Store | None:
    """The store with the mode set to observe, or ``None`` where that is impossible."""
    try:
        store = stack.enter_context(site.store())
        with store.write() as session:
            queries.put_admin_setting(
                session, "mode", "observe", now_s=site.now_s(), by=f"{site.context.who()} (release-all)"
            )
    except (StoreError, SQLAlchemyError) as error:
        warnings.append(f"the mode stays as it is and nothing is recorded: {first_line(error)}")
        return None
    return store


def _send(
    store: Store | None, client: SlurmClient, wanted: Sequence[ManualChange], now_s: float, warnings: list[str]
) -> list[JobChangeResult]:
    """What cannot be recorded is still released: getting out must not depend on the store."""
    try:
        return manual_changes.send_manual_changes(store, client, wanted, now_s)
    except (StoreError, SQLAlchemyError) as error:
        warnings.append(f"the changes are not recorded: {str(getattr(error, 'orig', error)).splitlines()[0]}")
        return manual_changes.send_manual_changes(None, client, wanted, now_s)


def _draw(document: Document) -> None:
    for line in document["warnings"]:
        output.warn(line)
    rows, dry_run = document["changes"], document["dry_run"]
    if document["mode_set"]:
        output.print_line("mode observe: sodad will change nothing more")
    failed = [row for row in rows if row["error"]]
    shown = rows if dry_run else failed
    if shown:
        columns = [Column("job", right=True), Column("sends"), Column("was"), Column("error")]
        cells = [
            (
                str(r["job_id"]),
                manual_changes.format_fields(r["new"]) if r["kind"] != "requeue" else "requeue",
                manual_changes.format_fields(r["old"]),
                r["error"],
            )
            for r in shown
        ]
        output.print_table(columns, cells)
    sent = f"{output.format_count(len(rows) - len(failed), 'change')} {'would be ' if dry_run else ''}sent"
    output.print_line(sent if rows else "nothing of ours is in Slurm")
    if failed:
        output.warn(f"{output.format_count(len(failed), 'change')} failed; run this again once Slurm answers")
