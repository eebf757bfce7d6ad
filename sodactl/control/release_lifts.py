"""``sodactl release-lifts``: what a dead or paused sodad lifted is taken back. Run by systemd, not by people."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import click
from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.cycle.epoch import LOCK_NAME, DaemonEpoch, SupersededError, supersede_daemon
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.engine import Store, StoreError
from slurm_soda.daemon.store.server import store_now_s
from slurm_soda.daemon.store.store_failures import first_line
from slurm_soda.daemon.store.tables.scheduling import NO_DAEMON, Epoch
from slurm_soda.slurm_ext.client import SlurmClient
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.write.job_changes import JobChange, release_changes
from slurm_soda.slurm_ext.write.sending import CHUNK_UPDATES, JobChangeResult
from slurm_soda.sodactl import output
from slurm_soda.sodactl.control import manual_changes
from slurm_soda.sodactl.control.manual_changes import ManualChange
from slurm_soda.sodactl.output import Document
from slurm_soda.sodactl.site_access import SiteAccess, on_any_site

WATCH_S = 120.0
"""So long after Slurm first showed no lift it is looked at again: a command that the dead sodad had begun may still have
reached slurmctld, and a slurmctld that is killed forgets its last seconds."""

_MOST_PASSES = 3

_REASON = "release-lifts: sodad shows no life, so its lifts end"


@click.command("release-lifts")
@click.option("--unless-alive", is_flag=True, help="Do nothing while sodad shows life; so systemd runs it.")
@on_any_site
def release_lifts(site: SiteAccess, *, as_json: bool, unless_alive: bool) -> int:
    """Reset all SiteFactors, for a sodad that died.

    sodad's lifts are a lease. This command ends it: it takes the right to send from every sodad that was started before,
    also from one that is paused, and then resets the SiteFactor of every waiting job. sodad.service runs it whenever sodad
    has ended, and sodad-expiry.timer when its heartbeat is older than cycle.lease_s; a sodad that is started again lifts
    anew. Without a usable store it resets them too, and records nothing. To leave slurm-soda use `sodactl release-all`.
    Only root and SlurmUser may run it.
    Exit status: 0 if no SiteFactor is left, or if sodad lives, else 1.

    \b
    Examples:
      sodactl release-lifts --unless-alive
    """  # noqa: D301 - click reads the control character
    _check_user(site)
    with ExitStack() as stack:
        release = _begin(stack, site, unless_alive=unless_alive)
        if release is None:
            document: Document = {"released": False, "complete": True, "epoch": None, "warnings": [], "changes": []}
        else:
            document = release.run()
    if as_json:
        output.print_json(document)
    else:
        _draw(document)
    return 0 if document["complete"] else 1


def _check_user(site: SiteAccess) -> None:
    """Slurm would refuse the others too, but later and job by job."""
    allowed = {0}
    with suppress(OSError):
        allowed.add(Path(site.settings.state_dir).stat().st_uid)
    if site.context.uid() not in allowed:
        raise SodaError(
            f"{site.context.who()} may not end lifts; only root and SlurmUser may, who owns {site.settings.state_dir}"
        )


@dataclass(slots=True)
class _Release:
    """One release, from the epoch that it has begun to the last reading of Slurm."""

    site: SiteAccess
    client: SlurmClient
    store: Store | None
    epoch: DaemonEpoch | None
    warnings: list[str]
    results: dict[int, JobChangeResult] = field(default_factory=dict)
    """By job; of several tries the last."""

    def run(self) -> Document:
        """Reset SiteFactors until Slurm shows none.

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
        rows = [
            {"job_id": r.change.job_id, "new": dict(r.change.new), "old": dict(r.change.old), "error": r.error}
            for r in self.results.values()
        ]
        epoch_id = self.epoch.epoch_id if self.epoch else None
        return {
            "released": True,
            "complete": complete,
            "epoch": epoch_id,
            "warnings": self.warnings,
            "changes": rows,
        }

    def _pass(self, *, first: bool) -> int:
        """Reset what Slurm shows now; how many jobs that were."""
        jobs = self.client.jobs()
        shown = release_changes(jobs, self.client.site_factors(), now_s=self.site.now_s())
        changes = [replace(change, reason=_REASON) for change in shown if "SiteFactor" in change.new]
        # Slurm does not tell the SiteFactor of a job that is held, and neither that it was reset.
        unknown = [change for change in changes if not change.old]
        changes = [change for change in changes if change.old] + (self._once_lifted(unknown) if first else [])
        submit_s = manual_changes.first_submit_times(self.store, jobs)
        for at in range(0, len(changes), CHUNK_UPDATES):
            self._check()
            self._send([ManualChange(change, submit_s[change.job_id]) for change in changes[at : at + CHUNK_UPDATES]])
        return len(changes)

    def _once_lifted(self, changes: Sequence[JobChange]) -> list[JobChange]:
        """Those whose last recorded SiteFactor is not 0; all where nothing is recorded."""
        if self.store is None:
            return list(changes)
        try:
            with self.store.read() as session:
                recorded = queries.last_site_factors(session, [change.job_id for change in changes])
        except SQLAlchemyError:
            return list(changes)
        return [change for change in changes if recorded.get(change.job_id, "0") != "0"]

    def _check(self) -> None:
        if self.store is None or self.epoch is None:
            return
        with suppress(SQLAlchemyError), self.store.read() as session:
            self.epoch.check(session)

    def _send(self, wanted: Sequence[ManualChange]) -> None:
        """What cannot be recorded is released all the same."""
        try:
            sent = manual_changes.send_manual_changes(self.store, self.client, wanted, self.site.now_s())
        except SQLAlchemyError as error:
            self.warnings.append(f"the changes are not recorded: {first_line(error)}")
            self.store = None
            sent = manual_changes.send_manual_changes(None, self.client, wanted, self.site.now_s())
        self.results |= {result.change.job_id: result for result in sent}

    def _end(self) -> bool:
        """Slurm shows none any more: so nobody needs to look again for long, unless it refused for a job that it hides."""
        if any(result.error and not result.change.old for result in self.results.values()):
            return False
        # What Slurm refused and shows no more has started or ended.
        self.results = {job_id: result for job_id, result in self.results.items() if not result.error}
        if self.store is not None and self.epoch is not None:
            with suppress(SQLAlchemyError), self.store.write() as session:
                epoch = session.get_one(Epoch, self.epoch.epoch_id)
                epoch.ended_s = epoch.ended_s or store_now_s(session, self.site.now_s())
        return True


def _begin(stack: ExitStack, site: SiteAccess, *, unless_alive: bool) -> _Release | None:
    """Take the right to send from every sodad; ``None`` where there is nothing to do."""
    warnings: list[str] = []

    try:
        store = stack.enter_context(site.store())
        with store.read() as session:
            now_s = store_now_s(session, site.now_s())
            if unless_alive and not queries.has_ordered(session):
                return None  # a sodad that only observes leaves a site its own SiteFactors
        epoch = supersede_daemon(
            store,
            host=site.context.host(),
            version=version("slurm-soda"),
            now_s=site.now_s(),
            unless=lambda last: unless_alive and (_lives(last, site, now_s) or _is_settled(last, now_s)),
        )
    except (StoreError, SQLAlchemyError) as error:
        warnings.append(f"no sodad is kept from sending, and nothing is recorded: {first_line(error)}")
        if unless_alive and _lives_by_lock(site):
            return None
        return _Release(site, site.slurm(), None, None, warnings)
    if epoch is None and unless_alive:
        return None
    return _Release(site, site.slurm(), store, epoch, warnings)


def _lives(last: Epoch, site: SiteAccess, now_s: float) -> bool:
    if last.pid == NO_DAEMON or last.ended_s is not None or not _is_fresh(last.heartbeat_s, site, now_s):
        return False
    return last.host != site.context.host() or site.context.pid_lives(last.pid)


def _is_settled(last: Epoch, now_s: float) -> bool:
    return last.pid == NO_DAEMON and last.ended_s is not None and abs(now_s - last.ended_s) > WATCH_S


def _lives_by_lock(site: SiteAccess) -> bool:
    """What sodad's lock file tells of it where the store cannot; a site without one has no sodad, and no lifts."""
    try:
        at_s = Path(site.settings.state_dir, LOCK_NAME).lstat().st_mtime
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return _is_fresh(at_s, site, site.now_s()) and site.local_daemon_pid() is not None


def _is_fresh(heartbeat_s: float, site: SiteAccess, now_s: float) -> bool:
    """A heartbeat that the clock, once set back, takes for one of the future is none."""
    return abs(now_s - heartbeat_s) < site.settings.cycle.lease_s


def _draw(document: Document) -> None:
    for line in document["warnings"]:
        output.warn(line)
    failed = [row for row in document["changes"] if row["error"]]
    if not document["released"]:
        output.print_line("nothing to do: sodad shows life, or its lifts are gone already")
        return
    for row in failed:
        output.warn(f"job {row['job_id']}: {row['error']}")
    output.print_line(f"{len(document['changes']) - len(failed)} SiteFactors reset")
    if not document["complete"]:
        output.warn("some are left; run this again once Slurm answers")
