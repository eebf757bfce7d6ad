"""sodad's HTTP side with stand-ins for MUNGE and Slurm."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import uvicorn.server
from fastapi import APIRouter

from slurm_soda.daemon.api.connection_limits import ConnectionLimits
from slurm_soda.daemon.api.credential_checks import CredentialChecks
from slurm_soda.daemon.api.report_routes import ReportRoutes
from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.api.routes import ViewRoutes
from slurm_soda.daemon.api.server import DEFAULT_LIMITS, ApiServer
from slurm_soda.daemon.api.view_access import ViewAccess
from slurm_soda.daemon.api.viewers import ViewerRights
from slurm_soda.daemon.clock import Clock, SystemClock
from slurm_soda.daemon.metrics.endpoint import MetricsEndpoint
from slurm_soda.daemon.page.link_route import PageLinkRoute
from slurm_soda.daemon.page.served_page import ServedPage
from slurm_soda.daemon.settings.addresses import ApiSettings
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.engine import Store
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge
from tests.wire.fake_munged import FakeMunged


class _Hasty:
    """asyncio for uvicorn, which looks only every 0.1 s whether it shall end: a fifth of a second for each server."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.01))


uvicorn.server.asyncio = _Hasty()  # type: ignore[attr-defined]


@dataclass
class FakeRights:
    """scontrol and sacctmgr, as far as privacy goes."""

    private: str = "none"
    levels: dict[str, str] = field(default_factory=dict)
    """AdminLevel by user."""
    coordinated: dict[str, str] = field(default_factory=dict)
    """Accounts by coordinator, with commas."""
    is_down: bool = False
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def __call__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        self.asked.append(tuple(argv))
        if self.is_down:
            return CompletedCommand(tuple(argv), 1, b"", b"Unable to contact slurm controller")
        if argv[0] == "scontrol":
            said = f"PrivateData             = {self.private}\nSlurmUser               = slurm(64030)\n"
            return CompletedCommand(tuple(argv), 0, said.encode(), b"")
        (user,) = (word.removeprefix("name=") for word in argv if word.startswith("name="))
        said = f"{user}|{self.levels.get(user, 'None')}|{self.coordinated.get(user, '')}\n"
        return CompletedCommand(tuple(argv), 0, said.encode(), b"")


def view_access(munged: FakeMunged, clock: Clock, slurm: FakeRights | None = None) -> ViewAccess:
    """Who asks, by a stand-in for MUNGE."""
    return ViewAccess(CredentialChecks(Munge(run=munged), clock), ViewerRights(slurm or FakeRights(), clock))


def api_server(
    store: Store,
    writer: ReportWriter,
    munged: FakeMunged,
    api: ApiSettings,
    limits: ConnectionLimits = DEFAULT_LIMITS,
    *,
    clock: Clock | None = None,
    settings: Callable[[], Settings] = Settings,
    slurm: FakeRights | None = None,
    metrics: MetricsEndpoint | None = None,
    page: socket.socket | None = None,
) -> ApiServer:
    """All sides of it."""
    access = view_access(munged, clock or SystemClock(), slurm)
    reports = ReportRoutes(writer, Munge(run=munged), access.checks, api)
    views = ViewRoutes(store, clock or SystemClock(), access, settings)
    served = None if page is None else ServedPage(page, views, access, clock or SystemClock(), lambda: settings().page)
    shown = APIRouter()
    shown.include_router(views.routes())
    shown.include_router(PageLinkRoute(views.admit, Munge(run=munged), served).routes())
    endpoint = None if served is None else served.endpoint()
    return ApiServer(reports.routes(), shown, api, limits, metrics=metrics, page=endpoint)


def signed(munged: FakeMunged, path: str) -> dict[str, str]:
    """The headers of a GET by this munged's user."""
    target = path if "?" in path else f"{path}?"
    return {CREDENTIAL_HEADER: Munge(run=munged).encode_request(f"GET {target}".encode())}
