"""Addresses of hosts, asked for in threads: a name service that is slow delays no query and no report."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass

FRESH_S = 60.0
"""Then a name is asked for again; the address before is used meanwhile."""
RETRY_S = 5.0


@dataclass(slots=True)
class _Known:
    address: str = ""
    due_s: float = 0.0
    asked: bool = False


class HostAddresses:
    """What is known of each host."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def address(self, host: str) -> str:
        """Its IP address, IPv4 rather than IPv6; empty: not known yet, or no such host."""
        known = self._known.setdefault(host, _Known())
        if not known.asked and time.monotonic() >= known.due_s:
            known.asked = True
            threading.Thread(target=_look_up, args=(host, known), daemon=True).start()
        return known.address

    def forget_all_but(self, hosts: set[str]) -> None:
        """Nobody asks for others any more."""
        for host in self._known.keys() - hosts:
            del self._known[host]


def _look_up(host: str, known: _Known) -> None:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        addresses = sorted((family != socket.AF_INET, str(at[0])) for family, _, _, _, at in found)
        if known.address not in [address for _, address in addresses]:
            known.address = addresses[0][1]
        known.due_s = time.monotonic() + FRESH_S
    except (OSError, UnicodeError, IndexError):
        known.due_s = time.monotonic() + RETRY_S
    finally:
        known.asked = False
