"""``sodactl release-all``: give every job back to Slurm alone, whatever state slurm-soda itself is in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import click
from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.daemon.store.store_failures import first_line
from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob, site_factors_if_any
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.pools.pools_record import read_table
from slurm_soda.slurm_ext.write import job_changes
from slurm_soda.slurm_ext.write.guest_release import guest_release_changes, running_guests
from slurm_soda.slurm_ext.write.job_changes import JobChange
from slurm_soda.slurm_ext.write.sending import JobChangeResult
from slurm_soda.slurm_ext.write.start_leases import lease_release_changes
from slurm_soda.sodactl import output
from slurm_soda.sodactl.control import manual_changes, undo
from slurm_soda.sodactl.control.checkpoint_wait import (
    UnfinishedCheckpoints,
    find_unfinished,
    wait_for_checkpoints,
)
from slurm_soda.sodactl.control.manual_changes import ManualChange
from slurm_soda.sodactl.control.missing_requeues import missing_requeues
from slurm_soda.sodactl.control.signs_of_life import await_observing, may_change_all_jobs
from slurm_soda.sodactl.live.view_source import is_daemon_alive
from slurm_soda.sodactl.output import Column, Document
from slurm_soda.sodactl.site_access import SiteAccess, on_any_site

_MOST_PASSES = 4
_REQUEUE_SHOWS_S = 1.0
"""Pause after a pass: Slurm lists a job that was just requeued as pending."""


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
    one), gives waiting guests on GPUs of others their own requests again (by what their jobs carry, without the store too),
    ends the leases with which tasks of services wait,
    and restores requests for cores that it changed, unless someone changed them since. The two minutes that Slurm makes a
    requeued job wait stay. Waits for jobs that were asked to save their state, as long as their grace lasts. Without a
    running sodad it requeues jobs that ended for a preemption after their checkpoint, while Slurm still lists them.
    Names guests that run: they get their own requests once they wait again, and until then prolog and epilog must stay.
    Holds stay as they are: slurm-soda never holds a job, so each was set by a user or an admin.
    First the mode is set to observe, so that a running sodad does not make the same changes again, and its last changes
    are waited for; without a usable store this is skipped, with a warning.
    Pools stay in force, as they need no sodad: `sodactl pools revert` removes them.
    To leave slurm-soda run it again once sodad has stopped. Needs the rights of root or SlurmUser.
    Exit status: 0 if Slurm accepted everything, no job is left in the middle of its checkpoint, and no guest runs, else 1.

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
    failed = any(row["error"] for row in document["changes"])
    unseen = not document["sees_all_jobs"] and not document["changes"]
    return 1 if failed or unseen or document["running_guests"] or (document["unfinished"] and not dry_run) else 0


def _release(site: SiteAccess, *, dry_run: bool) -> Document:
    warnings = _pool_warnings(site)
    if not (sees_all := may_change_all_jobs(site)):
        warnings.append(f"{site.context.who()} may not see all jobs; root and SlurmUser do")
    with ExitStack() as stack:
        store = None if dry_run else _set_observe_mode(stack, site, warnings)
        run = _Run(site, site.slurm(), stack, store, warnings, dry_run=dry_run)
        unfinished = run.release()
    return {
        "dry_run": dry_run,
        "mode_set": "observe" if store else None,
        "sees_all_jobs": sees_all,
        "store_read": run.read_store is not None,
        "unfinished": list(unfinished.job_ids),
        "running_guests": run.guests,
        "warnings": list(dict.fromkeys(warnings)),
        "changes": [manual_changes.result_document(result) for result in run.results()],
    }


@dataclass(slots=True)
class _Run:
    """One release: passes over Slurm until nothing of ours is left."""

    site: SiteAccess
    client: SlurmClient
    stack: ExitStack
    store: Store | None
    """Where changes are recorded; ``None`` where that is impossible, or not wanted."""
    warnings: list[str]
    dry_run: bool
    read_store: Store | None = None
    """``None`` where it cannot be read."""
    guests: Sequence[str] = ()
    """Addresses of jobs that ran on GPUs of others when Slurm was read last."""
    _results: dict[tuple[int, str, tuple[tuple[str, str], ...]], JobChangeResult] = field(default_factory=dict)
    """By job, kind and fields; of several tries the last."""

    def release(self) -> UnfinishedCheckpoints:
        """Take everything back; the jobs that are left in the middle of their checkpoint.

        What waits for nobody comes first. Of a job that is requeued meanwhile, by sodad or from here, Slurm shows only then
        what is still to be taken back.
        """
        try:
            self.read_store = self.store or self.stack.enter_context(self.site.store())
        except (StoreError, SQLAlchemyError):
            self._cannot_read()
        again = self._pass()
        if self.dry_run:
            return self._unfinished()
        waited = self._await_observing()
        unfinished, saved = wait_for_checkpoints(self.site, self._unfinished)
        again = again or waited or saved
        for _ in range(_MOST_PASSES - 1):
            if not again:
                break
            self.site.context.sleep(_REQUEUE_SHOWS_S)
            again = self._pass()
        return unfinished

    def _await_observing(self) -> bool:
        try:
            return self.store is not None and await_observing(self.store, self.site)
        except (StoreError, SQLAlchemyError):
            return False

    def results(self) -> list[JobChangeResult]:
        """Of all changes, in the order in which they were first sent."""
        return list(self._results.values())

    def _pass(self) -> bool:
        """Take back what Slurm shows now; whether a job was requeued, of which there may be more to take back."""
        reading = _SlurmReading(self.client.jobs(), site_factors_if_any(self.client))
        self.guests = running_guests(reading.jobs)
        submit_s = manual_changes.first_submit_times(self.store, reading.jobs)
        wanted = [
            ManualChange(change, submit_s[change.job_id])
            for change in job_changes.release_changes(reading.jobs, reading.site_factors)
        ]
        guests, said = guest_release_changes(self.client, reading.jobs, "release-all")
        self.warnings += said
        leases = lease_release_changes(reading.jobs, self.site.now_s(), "release-all: it starts as any task")
        wanted = [ManualChange(change, submit_s[change.job_id]) for change in guests + leases] + wanted
        wanted = [entry for entry in self._changes_by_store(reading) + wanted if not self._taken(entry.change)]
        if self.dry_run:
            results = [JobChangeResult(entry.change) for entry in wanted]
        else:
            # Getting out must not depend on the store.
            results, unrecorded = manual_changes.send_even_unrecorded(
                self.store, self.client, wanted, self.site.now_s()
            )
            self.warnings += [unrecorded] if unrecorded else []
        self._results |= {_key(result.change): result for result in results}
        return any(result.change.kind == "requeue" and not result.error for result in results)

    def _taken(self, change: JobChange) -> bool:
        """Slurm took it in an earlier pass, and does not tell whether it is still in force."""
        before = self._results.get(_key(change))
        return not change.old and before is not None and not before.error

    def _unfinished(self) -> UnfinishedCheckpoints:
        if self.read_store is None:
            return UnfinishedCheckpoints()
        jobs = {job.job_id: job for job in self.client.jobs()}
        try:
            with self.read_store.read() as session:
                return find_unfinished(session, self.client, jobs, self.site)
        except (StoreError, SQLAlchemyError):
            self._cannot_read()
            return UnfinishedCheckpoints()

    def _changes_by_store(self, reading: _SlurmReading) -> list[ManualChange]:
        """Requests of waiting jobs as their users made them, and requeues that a dead sodad owes: the store knows those.

        Settles what became of changes whose outcome is unknown, so that those that Slurm took go back too.
        """
        store, site = self.read_store, self.site
        if store is None:
            return []
        listed = {job.job_id: job for job in reading.jobs}
        waiting = {job_id: job for job_id, job in listed.items() if job.state == "PENDING"}
        try:
            settled = manual_changes.settle(
                store, listed, reading.site_factors, site.now_s(), dry_run=self.store is None
            )
            with store.read() as session:
                standing = queries.standing_rewrites(session, list(waiting))
                verdicts = undo.check_undo(session, standing, waiting, {}, settled, lifts_end=False)
                alive = is_daemon_alive(session, queries.latest_epoch(session), site)
                requeues = [] if alive else missing_requeues(session, self.client, listed, "release-all", site.now_s())
        except (StoreError, SQLAlchemyError):
            self._cannot_read()
            return []
        restored = [ManualChange(v.change, v.action.submit_s, v.action.id) for v in verdicts if v.change is not None]
        return restored + requeues

    def _cannot_read(self) -> None:
        self.read_store = None
        self.warnings.append("requests for cores stay as they are: the store, which knows the old ones, cannot be read")


def _key(change: JobChange) -> tuple[int, str, tuple[tuple[str, str], ...]]:
    return change.job_id, change.kind, tuple(change.new.items())


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


def _draw(document: Document) -> None:
    for line in document["warnings"]:
        output.warn(line)
    rows, dry_run = document["changes"], document["dry_run"]
    if unfinished := document["unfinished"]:
        output.warn(
            f"asked to save their state, and not over yet: {output.format_first(unfinished)}. Once they have ended "
            "run `sodactl release-all` again, before Slurm forgets them (MinJobAge): it requeues those that a stopped sodad "
            "has not"
        )
    if guests := document["running_guests"]:
        output.warn(
            f"running on GPUs of other jobs: {output.format_first(guests)}. Leave prolog and epilog where they are until "
            "these have ended, or wait again (`scontrol requeue Incomplete JOB`, with JOB as it is named here); then run "
            "this again: only then they get their own requests"
        )
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
    output.print_line(sent if rows else _nothing_found(document))
    if failed:
        output.warn(f"{output.format_count(len(failed), 'change')} failed; run this again once Slurm answers")


def _nothing_found(document: Document) -> str:
    """No more than what was looked at."""
    if not document["sees_all_jobs"]:
        return "nothing of ours is in what this user may see: run this as root or SlurmUser"
    if document["running_guests"]:
        return "nothing of ours can be taken back now"
    if not document["store_read"]:
        return "no SiteFactor of ours is in Slurm; of requests for cores only the store tells"
    return "nothing of ours is in Slurm"
