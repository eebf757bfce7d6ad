"""What holds for every request and every answer at the page's address, whatever is asked for.

A browser is sent there only under names that are the page's own: a name that somebody lets lead to this address (DNS
rebinding) is refused. Only GET is answered, nobody else's page is told anything (no CORS), and nothing is kept in caches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import urlsplit

from fastapi.responses import PlainTextResponse

from slurm_soda.daemon.api.connection_limits import Application

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; sandbox",
}
"""Of every answer; the page itself has a policy of its own, by which its script may run."""

_ALWAYS_OWN = frozenset({"localhost", "127.0.0.1", "::1"})
"""What nobody's DNS can name; users come this way through ``ssh -L``."""


class PageGuard:
    """An application before that of the page."""

    def __init__(self, app: Application, own_hosts: Callable[[], Collection[str]]) -> None:
        """``own_hosts`` tells the names under which the page is reached, beside those of a loopback."""
        self._app, self._own_hosts = app, own_hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                added = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                kept = [pair for pair in added if pair[0] not in given]
                message = {**message, "headers": [*message["headers"], *kept]}
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Any) -> Application | None:
        if scope["method"] != "GET":
            return PlainTextResponse("only GET is answered here\n", 405, {"Allow": "GET"})
        named = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        host = _host_of(named[0]) if len(named) == 1 else ""
        if host in _ALWAYS_OWN or (host and host in self._own_hosts()):
            return None
        said = "this is not the page's address: `sodactl page` tells it, and page.url in sodad's configuration sets it"
        return PlainTextResponse(f"{said}\n", 421)


def _host_of(header: str) -> str:
    """The name or address in a Host header, without port; empty if it has none."""
    try:
        return (urlsplit(f"//{header}").hostname or "").rstrip(".")
    except ValueError:
        return ""
