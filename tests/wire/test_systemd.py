"""sd_notify(3): what systemd is told, and that nothing fails where it does not listen."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_soda.wire.systemd import SystemdNotifier


@pytest.fixture(params=["file", "abstract"])
def named(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """The address as systemd names it, and its end of it."""
    name = f"@soda-{secrets.token_hex(8)}" if request.param == "abstract" else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name.replace("@", "\0") if request.param == "abstract" else name)
        systemd.settimeout(10)
        yield name, systemd


def test_systemd_is_told(named: tuple[str, socket.socket]) -> None:
    name, systemd = named
    notifier = SystemdNotifier({"NOTIFY_SOCKET": name})
    notifier.ready()
    notifier.alive()
    notifier.status("3 jobs\nwait \udcff")
    notifier.stopping()
    said = [systemd.recv(99) for _ in range(4)]
    assert said == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1\nSTATUS=3 jobs wait \\udcff", b"STOPPING=1"]


@pytest.mark.parametrize("name", [None, "", "relative", "@", "/nobody/listens"])
def test_nothing_fails_without_systemd(name: str | None) -> None:
    SystemdNotifier({} if name is None else {"NOTIFY_SOCKET": name}).ready()
