"""``sodactl release-lifts``: what a dead or paused sodad lifted is taken back. Run by systemd, not by people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import click
from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.cycle.epoch import DaemonEpoch, SupersededError, supersede_daemon
from slurm_soda.daemon.cycle.release_stamp import forget_release, is_release_stamped, stamp_release
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.server import store_now_s
from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.daemon.store.store_failures import first_line
from slurm_soda.daemon.store.tables.scheduling import NO_DAEMON, Epoch
from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob, site_factors_if_any
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.write.guest_release import guest_release_changes, running_guests
from slurm_soda.slurm_ext.write.job_changes import JobChange, release_changes
from slurm_soda.slurm_ext.write.sending import CHUNK_UPDATES, JobChangeResult
from slurm_soda.sodactl import output
from slurm_soda.sodactl.control import manual_changes
from slurm_soda.sodactl.control.manual_changes import ManualChange
from slurm_soda.sodactl.control.missing_requeues import may_lack_requeue, missing_requeues
from slurm_soda.sodactl.control.signs_of_life import (
    dated_lock,
    fresh_heartbeat,
    may_change_all_jobs,
    watched_heartbeat,
)
from slurm_soda.sodactl.output import Document, format_duration
from slurm_soda.sodactl.site_access import SiteAccess, on_any_site

WATCH_S = 120.0
"""So long after Slurm first showed no lift it is looked at again: a command that the dead sodad had begun may still have
reached slurmctld, and a slurmctld that is killed forgets its last seconds."""

_MOST_PASSES = 3

_NEVER_CHANGED = (
    "this store has no change of the order of jobs: SiteFactors, if there are any, are the site's own "
    "(`sodactl doctor` tells of them)"
)

_NEVER_RAN = "no sodad has ever run with this store"

_REASON = "release-lifts: sodad shows no life"


@click.command("release-lifts")
@click.option("--unless-alive", is_flag=True, help="Do nothing while sodad shows life; so systemd runs it.")
@on_any_site
def release_lifts(site: SiteAccess, *, as_json: bool, unless_alive: bool) -> int:
    """Reset all SiteFactors, for a sodad that died.

    sodad's lifts are a lease. This command ends it: it takes the right to send from every sodad that was started before,
    also from one that is paused, and then resets the SiteFactor of every waiting job. sodad.service runs it whenever sodad
    has ended, and sodad-expiry.timer when its heartbeat is older than cycle.lease_s; a sodad that is started again lifts
    anew. Without a usable store it resets them too, and records nothing. To leave slurm-soda use `sodactl release-all`.
    A waiting job that sodad sent to GPUs of others gets its own request again, by what the job carries; one that runs there
    gets it when it waits again.
    A job that sodad asked to save its state, and that ended for it with an error, is requeued, while Slurm still lists it.
    Only root and SlurmUser may run it.
    Exit status: 0 if no SiteFactor is left, or if sodad lives, else 1.

    \b
    Examples:
      sodactl release-lifts --unless-alive
    """  # noqa: D301 - click reads the control character
    if not may_change_all_jobs(site):  # Slurm would refuse the others too, but later and job by job
        raise SodaError(
            f"{site.context.who()} may not end lifts; only root and SlurmUser may, who owns {site.settings.state_dir}"
        )
    with ExitStack() as stack:
        release, settled = _begin(stack, site, unless_alive=unless_alive)
        if release is None:
            document = _nothing_done(settled)
        elif settled:
            document = release.run_for_guests(settled)
        else:
            document = release.run()
    if as_json:
        output.print_json(document)
    else:
        _draw(document)
    return 0 if document["complete"] else 1


def _nothing_done(why: str) -> Document:
    return {"released": False, "why": why, "complete": True, "epoch": None, "warnings": [], "changes": []}


@dataclass(slots=True)
class _Release:
    """One release, from the epoch that it has begun to the last reading of Slurm."""

    site: SiteAccess
    client: SlurmClient
    store: Store | None
    epoch: DaemonEpoch | None
    warnings: list[str]
    records: bool = True
    """False once something could not be recorded. The store then still tells whether a sodad was started meanwhile."""
    results: dict[tuple[int, str], JobChangeResult] = field(default_factory=dict)
    """By job and kind of change; of several tries the last."""

    def run(self) -> Document:
        """Reset SiteFactors and requeue jobs until Slurm shows none.

        Raises:
            SlurmError: Slurm does not answer.
        """
        complete = False
        try:
            for at in range(_MOST_PASSES):
                if not self._pass(first=at == 0):
                    complete = self._end()
                    break
        except SupersededError:
            self.warnings.append("a sodad was started meanwhile; its lifts stay")
            complete = True
        rows = [manual_changes.result_document(result) for result in self.results.values()]
        epoch_id = self.epoch.epoch_id if self.epoch else None
        return {
            "released": True,
            "why": "",
            "complete": complete,
            "epoch": epoch_id,
            "warnings": self.warnings,
            "changes": rows,
        }

    @property
    def state_dir(self) -> Path:
        """Of sodad."""
        return Path(self.site.settings.state_dir)

    def _pass(self, *, first: bool) -> int:
        """Take back what Slurm shows now; how many changes that were."""
        jobs = self.client.jobs()
        shown = release_changes(jobs, site_factors_if_any(self.client))
        changes = [replace(change, reason=_REASON) for change in shown]
        # Slurm does not tell the SiteFactor of a job that is held, and neither that it was reset.
        unknown = [change for change in changes if not change.old]
        changes = [change for change in changes if change.old] + (self._once_lifted(unknown) if first else [])
        changes += self._guests(jobs)
        if first and (running := running_guests(jobs)):
            self.warnings.append(f"guests get their own requests once they wait again: {output.format_first(running)}")
        submit_s = manual_changes.first_submit_times(self.store, jobs)
        wanted = [ManualChange(change, submit_s[change.job_id]) for change in changes] + self._missing_requeues(jobs)
        for at in range(0, len(wanted), CHUNK_UPDATES):
            self._check()
            self._send(wanted[at : at + CHUNK_UPDATES])
        return len(wanted)

    def _guests(self, jobs: Sequence[SlurmJob]) -> list[JobChange]:
        """Slurm alone tells of them."""
        changes, said = guest_release_changes(self.client, jobs, _REASON)
        self.warnings += [line for line in said if line not in self.warnings]
        return changes

    def run_for_guests(self, why: str) -> Document:
        """Lifts are settled, for this reason; but guests that ran until now may have been sent back into the queue."""
        jobs = self.client.jobs()
        submit_s = manual_changes.first_submit_times(self.store, jobs)
        self._send([ManualChange(change, submit_s[change.job_id]) for change in self._guests(jobs)])
        rows = [manual_changes.result_document(result) for result in self.results.values()]
        complete = not any(result.error for result in self.results.values())
        done = _nothing_done(why) | {"warnings": self.warnings, "changes": rows, "complete": complete}
        return done | {"released": bool(rows)}

    def _missing_requeues(self, jobs: Sequence[SlurmJob]) -> list[ManualChange]:
        """Only the store knows of them."""
        if self.store is None:
            return []
        with suppress(SQLAlchemyError), self.store.read() as session:
            listed = {job.job_id: job for job in jobs}
            return missing_requeues(session, self.client, listed, _REASON, self.site.now_s())
        return []

    def _once_lifted(self, changes: Sequence[JobChange]) -> list[JobChange]:
        """Those whose last recorded SiteFactor is not 0; where nothing is recorded all, but only once."""
        if self.store is None:
            return [] if is_release_stamped(self.state_dir) else list(changes)
        try:
            with self.store.read() as session:
                lifted = queries.recorded_lifts(session, [change.job_id for change in changes])
        except SQLAlchemyError:
            return list(changes)
        return [change for change in changes if change.job_id in lifted]

    def _check(self) -> None:
        if self.store is None or self.epoch is None:
            return
        with suppress(SQLAlchemyError), self.store.read() as session:
            self.epoch.check(session)

    def _send(self, wanted: Sequence[ManualChange]) -> None:
        """What cannot be recorded is released all the same; that is said once."""
        store = self.store if self.records else None
        sent, unrecorded = manual_changes.send_even_unrecorded(store, self.client, wanted, self.site.now_s())
        if unrecorded:
            self.warnings.append(unrecorded)
            self.records = False
        self.results |= {(result.change.job_id, result.change.kind): result for result in sent}

    def _end(self) -> bool:
        """Slurm shows none any more: so nobody needs to look again for long, unless it refused for a job that it hides."""
        hidden = (result for (_, kind), result in self.results.items() if kind == "release" and not result.change.old)
        if any(result.error for result in hidden):
            return False
        # What Slurm refused and shows no more has started or ended.
        self.results = {key: result for key, result in self.results.items() if not result.error}
        if self.store is None:
            stamp_release(self.state_dir)
        elif self.epoch is not None:
            with suppress(StoreError, SQLAlchemyError), self.store.write() as session:
                epoch = session.get_one(Epoch, self.epoch.epoch_id)
                epoch.ended_s = epoch.ended_s or store_now_s(session, self.site.now_s())
        return True


def _begin(stack: ExitStack, site: SiteAccess, *, unless_alive: bool) -> tuple[_Release | None, str]:
    """Take the right to send from every sodad; or why there is nothing to do, or only for guests."""
    warnings: list[str] = []
    leaving, now_s, alive, settled = False, site.now_s(), _NEVER_RAN, ""

    def nothing_to_do(last: Epoch) -> bool:
        nonlocal alive, settled
        if not unless_alive:
            return False
        alive = fresh_heartbeat(last, site, now_s)
        settled = "" if leaving or alive else _settled(last, now_s)
        return bool(alive or settled)

    try:
        store = stack.enter_context(site.store())
        forget_release(Path(site.settings.state_dir))
        with store.read() as session:
            now_s = store_now_s(session, now_s)
            leaving = may_lack_requeue(session, since_s=now_s - WATCH_S, now_s=now_s)
            unchanged = unless_alive and not leaving and queries.newest_order(session) is None
            last = queries.latest_epoch(session) if unchanged else None
        if unless_alive and (seen := watched_heartbeat(store, site, now_s)):
            return None, seen
        if unchanged:  # the store may be new, or an older one: guests are told by Slurm alone
            seen = "" if last is None else fresh_heartbeat(last, site, now_s)
            return (None, seen) if seen else (_Release(site, site.slurm(), store, None, warnings), _NEVER_CHANGED)
        epoch = supersede_daemon(
            store,
            host=site.context.host(),
            version=version("slurm-soda"),
            now_s=site.now_s(),
            unless=nothing_to_do,
        )
    except (StoreError, SQLAlchemyError) as error:
        warnings.append(f"no sodad is kept from sending, and nothing is recorded: {first_line(error)}")
        if unless_alive and (seen := dated_lock(site)):
            return None, seen
        return _Release(site, site.slurm(), None, None, warnings), ""
    if epoch is None and unless_alive and not settled:
        if alive != _NEVER_RAN:
            return None, alive
        settled = _NEVER_RAN
    return _Release(site, site.slurm(), store, epoch, warnings), settled


def _settled(last: Epoch, now_s: float) -> str:
    if last.pid != NO_DAEMON or last.ended_s is None or abs(now_s - last.ended_s) <= WATCH_S:
        return ""
    return f"the lifts of the last sodad were taken back {format_duration(now_s - last.ended_s)} ago"


def _draw(document: Document) -> None:
    for line in document["warnings"]:
        output.warn(line)
    failed = [row for row in document["changes"] if row["error"]]
    if not document["released"]:
        output.print_line(f"nothing to do: {document['why']}")
        return
    for row in failed:
        output.warn(f"job {row['job_id']}: {row['error']}")
    kinds = Counter(row["kind"] for row in document["changes"] if not row["error"])
    output.print_line(f"{output.format_count(kinds['release'], 'SiteFactor')} reset")
    if kinds["unshare"]:
        output.print_line(f"{output.format_count(kinds['unshare'], 'waiting guest')} given the own request again")
    if kinds["requeue"]:
        output.print_line(f"{output.format_count(kinds['requeue'], 'job')} requeued after a checkpoint")
    if not document["complete"]:
        output.warn("some are left; run this again once Slurm answers")
