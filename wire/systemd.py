"""Telling systemd how sodad or the agent is (sd_notify(3)); without systemd nothing happens."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping


class SystemdNotifier:
    """Sends states to the socket that systemd named in the environment."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = ""
        if address.startswith(("/", "@")):
            self._address = "\0" + address[1:] if address[0] == "@" else address

    def send(self, **states: str) -> None:
        """Send states such as ``READY="1"`` or ``STATUS="3 jobs"``; never fails."""
        if not self._address:
            return
        text = "\n".join(f"{name}={value.translate({10: ' '})}" for name, value in states.items())
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
            to.sendto(text.encode("utf-8", "backslashreplace"), self._address)

    def ready(self) -> None:
        """The daemon acts now."""
        self.send(READY="1")

    def alive(self) -> None:
        """Feed the watchdog."""
        self.send(WATCHDOG="1")

    def status(self, text: str) -> None:
        """One line for ``systemctl status``."""
        self.send(WATCHDOG="1", STATUS=text)

    def stopping(self) -> None:
        """The daemon ends on purpose."""
        self.send(STOPPING="1")
