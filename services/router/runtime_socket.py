"""HAProxy's runtime sockets: commands, and the statistics of servers (HAProxy 2.6 management guide, 9.1 and 9.3)."""

from __future__ import annotations

import csv
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from slurm_soda.services.router.errors import HaproxyError
from slurm_soda.services.router.haproxy_config import BACKEND, COMING, FRONTEND

TIMEOUT_S = 5.0
LONGEST_ANSWER = 8 << 20

_RUNNING = "2"
"""In the column ``srv_op_state`` (management guide, 9.3, ``show servers state``)."""
_HEALTHY = ("L4OK", "L6OK", "L7OK", "L7OKC")


@dataclass(frozen=True, slots=True)
class ServerStats:
    """One server."""

    status: str
    """As HAProxy has it: ``UP``, ``DOWN``, ``DRAIN``, ``MAINT``, with what it is on the way to."""
    check: str = ""
    """Last result of its check, such as ``L7OK`` or ``L7STS/503``; empty: none yet."""
    queries: int = 0
    """In flight."""
    address: str = ""
    """``HOST:PORT``."""
    most_queries: int = 0
    """At a time; 0: any number."""

    @property
    def answers_checks(self) -> bool:
        """Whether its last check found it well."""
        return self.check.partition("/")[0] in _HEALTHY

    @property
    def serves(self) -> bool:
        """Whether it gets queries."""
        return self.status.startswith("UP") and self.answers_checks


@dataclass(frozen=True, slots=True)
class HaproxyStats:
    """What HAProxy counted since its process began."""

    requests: int = 0
    """That came in."""
    queued: int = 0
    """Queries that wait for a server now."""
    comes: bool = False
    """Queries that find no server wait for one."""
    servers: dict[str, ServerStats] = field(default_factory=dict)


class RuntimeSocket:
    """One of HAProxy's sockets; each command has a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def ask(self, *commands: str) -> str:
        """What HAProxy answers to commands, one after the other without a gap.

        Raises:
            HaproxyError: there is no answer within :data:`TIMEOUT_S`.
        """
        until_s = time.monotonic() + TIMEOUT_S
        received = bytearray()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
                connection.settimeout(TIMEOUT_S)
                connection.connect(str(self._path))
                connection.sendall(";".join(commands).encode("ascii") + b"\n")
                with suppress(OSError):  # the master waits for it, a worker may be gone by then
                    connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(1 << 16):
                    received += part
                    if len(received) > LONGEST_ANSWER or time.monotonic() > until_s:
                        raise HaproxyError(f"HAProxy answers without an end to {commands[0]!r}")
        except OSError as error:
            raise HaproxyError(f"HAProxy does not answer to {commands[0]!r} ({error})") from error
        return received.decode("utf-8", "replace")

    def stats(self, prefix: str = "") -> HaproxyStats:
        """The statistics of the process behind this socket; of another one with the master's ``prefix``.

        Raises:
            HaproxyError: there are none.
        """
        return parse_stats(self.ask(f"{prefix}show stat"))

    def old_workers(self) -> tuple[int, ...]:
        """Of the master: processes that still answer queries from before a reload.

        Raises:
            HaproxyError: it does not tell.
        """
        _, _, old = self.ask("show proc").partition("# old workers")
        lines = [line.split() for line in old.partition("# programs")[0].splitlines()]
        return tuple(int(words[0]) for words in lines if len(words) > 1 and words[0].isdigit())


def parse_stats(text: str) -> HaproxyStats:
    """The answer to ``show stat``.

    Raises:
        HaproxyError: it is none.
    """
    head, _, body = text.strip().partition("\n")
    if not head.startswith("# pxname,svname"):
        raise HaproxyError(f"HAProxy's statistics cannot be read: {head[:100]!r}")
    requests, queued, comes, servers = 0, 0, False, {}
    for row in csv.DictReader(body.splitlines(), fieldnames=head[2:].split(",")):
        if row["pxname"] == FRONTEND and row["svname"] == "FRONTEND":
            requests = _number(row.get("req_tot"))
        elif row["pxname"] == BACKEND and row["svname"] == "BACKEND":
            queued = _number(row.get("qcur"))
        elif row["pxname"] == row["svname"] == COMING:
            comes = row["status"].startswith(("UP", "no check"))
        elif row["pxname"] == BACKEND:
            servers[row["svname"]] = _server(row)
    return HaproxyStats(requests, queued, comes, servers)


def healthy_servers(state: str) -> str:
    """Of the answer to ``show servers state`` the servers that are up.

    One that was down and leaves the configuration's ``disabled`` by such a file counts as up until its first check. Left
    out, it stays disabled, and is set as a new one is.
    """
    lines = state.splitlines()
    kept = [line for line in lines[2:] if (words := line.split()) and len(words) > 5 and words[5] == _RUNNING]
    return "\n".join([*lines[:2], *kept, ""])


def _server(row: dict[str, str]) -> ServerStats:
    check, code = (row.get("check_status") or "").removeprefix("* "), row.get("check_code") or ""
    shown = f"{check}/{code}" if code and not check.startswith("L7OK") else check
    return ServerStats(
        status=row["status"],
        check="" if check in ("INI", "UNK") else shown,
        queries=_number(row.get("scur")),
        address=row.get("addr") or "",
        most_queries=_number(row.get("slim")),
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
