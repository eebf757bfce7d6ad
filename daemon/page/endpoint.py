"""Where the page is: an address of its own, with limits of its own, because browsers have no MUNGE."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass

from fastapi import APIRouter

from slurm_soda.daemon.api.connection_limits import Application, ConnectionLimits
from slurm_soda.daemon.api.own_address import bind_own_address
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.page.guard import PageGuard
from slurm_soda.daemon.settings.addresses import PageSettings
from slurm_soda.slurm_ext.errors import SodaError

PAGE_LIMITS = ConnectionLimits(connections=64, per_peer=64, header_s=5.0, body_s=5.0, answer_s=30.0)
"""Of one address as many as of all: behind a proxy, or through ssh, everybody has the same."""


@dataclass(frozen=True, slots=True)
class PageEndpoint:
    """A bound address and what is shown there."""

    socket: socket.socket
    router: APIRouter
    own_hosts: Callable[[], Collection[str]]
    limits: ConnectionLimits = PAGE_LIMITS

    def guard(self, app: Application) -> Application:
        """The application with what holds for every request."""
        return PageGuard(app, self.own_hosts)


@dataclass(frozen=True, slots=True)
class BoundPage:
    """The address, if one is configured."""

    socket: socket.socket | None = None
    problems: tuple[str, ...] = ()
    """Why there is none although one is configured, for people."""


def bind_page(settings: PageSettings) -> BoundPage:
    """Bind what is configured. An address that cannot be bound keeps no job from being scheduled: it is said, and all else
    goes on.
    """
    try:
        return BoundPage(bind_own_address("page", settings.listen, settings.address))
    except SodaError as error:
        log(logging.ERROR, "no-page", error=error)
        return BoundPage(problems=(str(error),))
