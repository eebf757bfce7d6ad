"""The page of one sodad: its sessions, its routes, its address."""

from __future__ import annotations

import socket
from collections.abc import Callable

from slurm_soda.daemon.api.routes import ViewRoutes
from slurm_soda.daemon.api.view_access import ViewAccess
from slurm_soda.daemon.clock import Clock
from slurm_soda.daemon.page.addresses import own_hosts, page_url
from slurm_soda.daemon.page.endpoint import PAGE_LIMITS, PageEndpoint
from slurm_soda.daemon.page.routes import PageRoutes
from slurm_soda.daemon.page.sessions import PageSessions
from slurm_soda.daemon.settings.addresses import PageSettings


class ServedPage:
    """What belongs together."""

    def __init__(
        self,
        bound: socket.socket,
        views: ViewRoutes,
        access: ViewAccess,
        clock: Clock,
        settings: Callable[[], PageSettings],
    ) -> None:
        """``bound``: where it is served; ``settings`` may be read anew while sodad runs."""
        self._bound, self._settings = bound, settings
        self.sessions = PageSessions(clock, lambda: settings().session_hours)
        self._routes = PageRoutes(views, access, self.sessions, clock, settings)

    def url(self) -> str:
        """Where browsers find it."""
        return page_url(self._settings(), int(self._bound.getsockname()[1]))

    def endpoint(self) -> PageEndpoint:
        """For the server."""
        return PageEndpoint(self._bound, self._routes.routes(), lambda: own_hosts(self._settings()), PAGE_LIMITS)
