"""Tells systemd how the agent is (sd_notify(3)): a datagram to the socket that it named; nothing where there is none."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping


def notify(environ: Mapping[str, str], message: str) -> None:
    """Send ``READY=1``, ``WATCHDOG=1`` or the like."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.connect(address)
        sender.sendall(message.encode())
