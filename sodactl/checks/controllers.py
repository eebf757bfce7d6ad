"""Checks of a site with several controllers: one store for all, a sodad on each, and no second store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import Session

from slurm_soda.daemon.api.views import StatusView
from slurm_soda.daemon.settings.config_file import CONFIG_FILE
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.server import has_password, store_now_s
from slurm_soda.daemon.store.tables.scheduling import Epoch
from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig
from slurm_soda.sodactl.checks.check_result import CheckResult
from slurm_soda.sodactl.live.sodad_http import controller_urls
from slurm_soda.sodactl.live.status import STANDBY_SILENT_S
from slurm_soda.sodactl.live.view_source import status_at
from slurm_soda.sodactl.site_access import SiteAccess

_OTHERS_MAY_READ = 0o004


def check_controllers(store: Store, session: Session, site: SiteAccess, config: SlurmConfig) -> Iterator[CheckResult]:
    """Everything about several controllers; nothing at a site with one, whose store is a file."""
    controllers = controller_urls(config, site.settings.api.port)
    for name, url in controllers:
        found = None if _short(name) == _short(site.context.host()) else status_at(site, url)
        if found is not None and not _knows(session, found):
            where = "" if found.head.epoch is None else f" (pid {found.head.epoch.pid} on {found.head.epoch.host})"
            yield CheckResult(
                "controllers",
                "fail",
                f"the sodad on {name}{where} has another store than this one",
                "the same store.url, on PostgreSQL, on every controller",
            )
    if store.is_shared:
        yield _check_standbys(session, site, [name for name, _ in controllers])
    elif len(controllers) > 1:
        yield CheckResult(
            "controllers",
            "warn",
            f"{len(controllers)} controllers, and a store that only this one has",
            "a store on PostgreSQL: docs/operations.md, High availability",
        )


def check_password(site: SiteAccess) -> Iterator[CheckResult]:
    """A password in the configuration is nobody else's business; nothing where there is none."""
    path = site.config_path or Path(CONFIG_FILE)
    try:
        if has_password(site.settings.store.url) and path.stat().st_mode & _OTHERS_MAY_READ:
            found = f"{path} holds a password, and everybody may read it"
            yield CheckResult("password", "fail", found, f"chown slurm: {path}; chmod 600 {path}; and a new password")
    except (OSError, ArgumentError):
        return  # whoever opens the store says what is wrong


def _short(host: str) -> str:
    return host.partition(".")[0]


def _knows(session: Session, found: StatusView) -> bool:
    """Whether another sodad's newest epoch is in this store."""
    told = found.head.epoch
    if told is None:
        return True
    own = session.scalars(select(Epoch).where(Epoch.id == told.id)).first()
    return own is not None and (own.host, own.pid, own.version) == (told.host, told.pid, told.version)


def _check_standbys(session: Session, site: SiteAccess, names: list[str]) -> CheckResult:
    """Besides the one that leads, a sodad waits on every controller."""
    now_s, leader = store_now_s(session, site.now_s()), queries.latest_epoch(session)
    waiting = {_short(one.host) for one in queries.standbys(session) if now_s - one.seen_s <= STANDBY_SILENT_S}
    leads = {_short(leader.host)} if leader is not None else set()
    if missing := [name for name in names if _short(name) not in waiting | leads]:
        return CheckResult(
            "controllers", "warn", f"no sodad waits on {', '.join(missing)}", "systemctl enable --now sodad there"
        )
    if not waiting:
        return CheckResult("controllers", "warn", "no sodad waits to take over", "start one on another controller")
    found = f"{', '.join(sorted(leads)) or 'none'} leads, {', '.join(sorted(waiting))} waits"
    return CheckResult("controllers", "ok", found)
