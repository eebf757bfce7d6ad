"""Asks a sodad on this host over HTTP, at an address where it wants no credential."""

from __future__ import annotations

import http.client
import ipaddress
from contextlib import closing

_TIMEOUT_S = 2.0
"""For each wait; docs/metrics.md says what an answer costs."""
_MOST_BYTES = 16 * 1024 * 1024


def get_local(host: str, port: int, path: str) -> tuple[int, bytes]:
    """Status and body.

    Raises:
        OSError: nobody answers.
        http.client.HTTPException: not in HTTP.
    """
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared
    with closing(http.client.HTTPConnection(here, port, timeout=_TIMEOUT_S)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(_MOST_BYTES)


def is_loopback(host: str) -> bool:
    """Whether only this host reaches it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
