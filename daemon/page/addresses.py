"""Under which addresses and names the page is reached; sodactl asks too, where there is no web server's library."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from slurm_soda.daemon.settings.addresses import PageSettings

_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared


def page_url(settings: PageSettings, port: int | None = None) -> str:
    """Where browsers find the page, with a slash at the end.

    Args:
        settings: with an address.
        port: as bound, where the configuration leaves that open.
    """
    if settings.url:
        return settings.url.rstrip("/") + "/"
    host, configured = settings.address or ("127.0.0.1", 0)
    name = socket.gethostname() if host in _ANY_ADDRESS else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port or configured}/"


def own_hosts(settings: PageSettings) -> frozenset[str]:
    """Names under which the page is reached, as a Host header may have them, without ports."""
    listens = settings.address[0] if settings.address else ""
    named = urlsplit(page_url(settings)).hostname or ""
    return frozenset({named, listens.lower(), socket.gethostname().lower()} - {""})
