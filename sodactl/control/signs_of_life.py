"""Whether a sodad shows life, for those who would take its lifts back, and who may do that."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from sqlalchemy import select

from slurm_soda.daemon.cycle.epoch import LOCK_NAME
from slurm_soda.daemon.cycle.lease import LeaseTiming
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.tables.scheduling import NO_DAEMON, Epoch
from slurm_soda.slurm_ext.read.slurm_config import ask_config, config_of, slurm_user_id
from slurm_soda.sodactl.checks.check_result import CHECK_TIMEOUT_S
from slurm_soda.sodactl.live.view_source import is_daemon_alive
from slurm_soda.sodactl.site_access import SiteAccess, wake_daemon

_LOOK_EVERY_S = 0.5
_WATCHED_SHARE, _LOOKS = 1 / 6, 10
"""Share of the lease for which a sodad that seems paused is watched, and how often."""


def may_change_all_jobs(site: SiteAccess) -> bool:
    """Whether the caller is root or SlurmUser: Slurm shows and lets change all jobs to them, to others perhaps some."""
    uid, allowed = site.context.uid(), {0}
    with suppress(OSError):
        allowed.add(Path(site.settings.state_dir).stat().st_uid)
    # The directory may have changed hands, as after a backup that root brought back: just then no sodad can start.
    return uid in allowed or uid == _slurm_user(site)


def _slurm_user(site: SiteAccess) -> int | None:
    """What Slurm says; ``None`` where it does not answer."""
    return slurm_user_id(config_of(ask_config(site.context.runner(), CHECK_TIMEOUT_S)))


def fresh_heartbeat(last: Epoch, site: SiteAccess, now_s: float) -> str:
    """What the newest epoch tells of a sodad that lives; empty if it tells of none."""
    if last.pid == NO_DAEMON or last.ended_s is not None or not _is_fresh(last.heartbeat_s, site, now_s):
        return ""
    if last.host == site.context.host() and not site.context.pid_lives(last.pid):
        return ""
    return f"sodad lives (pid {last.pid} on {last.host}): its heartbeat is {_age_text(last.heartbeat_s, now_s)} old"


def watched_heartbeat(store: Store, site: SiteAccess, now_s: float) -> str:
    """What is seen of a sodad whose last heartbeat seems old, or of the future: perhaps the clock was set since.

    It writes one every tenth of its lease. A process that is paused writes none.
    """
    with store.read() as session:
        last = session.scalars(select(Epoch).order_by(Epoch.id.desc()).limit(1)).first()
    here = last is not None and last.host == site.context.host() and last.ended_s is None
    if last is None or not here or not site.context.pid_lives(last.pid) or _is_fresh(last.heartbeat_s, site, now_s):
        return ""
    for _ in range(_LOOKS):
        site.context.sleep(site.settings.cycle.lease_s * _WATCHED_SHARE / _LOOKS)
        with store.read() as session:
            if session.get_one(Epoch, last.id).heartbeat_s != last.heartbeat_s:
                return f"sodad lives (pid {last.pid}): it writes heartbeats, and the clock was set since the last one"
    return ""


def await_observing(store: Store, site: SiteAccess) -> bool:
    """Wait until a living sodad has ended the cycle in which it could change Slurm, once another mode is set.

    It looks at the mode before each chunk of changes, so that one at most is under way.

    Returns:
        Whether there was such a cycle: then Slurm may show changes that it did not show before.
    """
    most_s, waited_s = LeaseTiming.of(site.settings).command_s, 0.0
    while waited_s < most_s and _enforces(store, site):
        if not waited_s:
            wake_daemon(site)
        site.context.sleep(_LOOK_EVERY_S)
        waited_s += _LOOK_EVERY_S
    return waited_s > 0.0


def _enforces(store: Store, site: SiteAccess) -> bool:
    with store.read() as session:
        cycles = queries.recent_cycles(session, 1)
        alive = is_daemon_alive(session, queries.latest_epoch(session), site)
    return alive and bool(cycles) and cycles[0].mode == "enforce"


def dated_lock(site: SiteAccess) -> str:
    """What sodad's lock file tells of a sodad that lives, where the store cannot; where there is no lock, none does."""
    try:
        at_s = Path(site.settings.state_dir, LOCK_NAME).lstat().st_mtime
    except OSError:
        return ""
    pid = site.local_daemon_pid()
    if pid is None or not _is_fresh(at_s, site, site.now_s()):
        return ""
    return f"sodad lives (pid {pid}): it dated {LOCK_NAME} {_age_text(at_s, site.now_s())} ago"


def _is_fresh(heartbeat_s: float, site: SiteAccess, now_s: float) -> bool:
    """A heartbeat that the clock, once set back, takes for one of the future is none."""
    return abs(now_s - heartbeat_s) < site.settings.cycle.lease_s


def _age_text(at_s: float, now_s: float) -> str:
    """An age in whole seconds; the sign of life may have come after the look at the clock."""
    return f"{max(0.0, now_s - at_s):.0f} s"
