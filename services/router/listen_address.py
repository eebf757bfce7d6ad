"""Where the router serves, and a socket that keeps other users from that port as long as the router lives."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

from slurm_soda.services.router.errors import RouterError

ANY = "0.0.0.0"  # noqa: S104 - queries come from other nodes
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """``HOST:PORT``."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """``HOST:PORT``, ``[IPV6]:PORT``, ``:PORT`` or ``PORT``; port 0 is any free one.

        Raises:
            RouterError: it is none of them.
        """
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not port.isdecimal() or int(port) > 65535 or not _HOST.fullmatch(host or ANY):
            raise RouterError(f"--listen is {text!r}; allowed is HOST:PORT, such as 0.0.0.0:8080 (port 0: a free one)")
        return cls(host or ANY, int(port))

    @property
    def text(self) -> str:
        """As HAProxy has it."""
        return f"{self.host}:{self.port}"

    @property
    def endpoint(self) -> str:
        """As clients on other nodes reach it."""
        host = socket.getfqdn() if self.host in (ANY, "::") else self.host
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ReservedPort:
    """A port that is bound, but not listened to: HAProxy of the same user listens there beside it (SO_REUSEPORT)."""

    address: ListenAddress
    socket: socket.socket

    @classmethod
    def reserve(cls, wanted: ListenAddress, rather: int = 0) -> ReservedPort:
        """Take the port; of port 0 ``rather`` if it is free, else any free one.

        Raises:
            RouterError: it is taken, or not for this user.
        """
        if not wanted.port and rather:
            try:
                return cls.reserve(ListenAddress(wanted.host, rather))
            except RouterError:
                pass
        try:
            family, kind, _, _, at = socket.getaddrinfo(wanted.host, wanted.port, type=socket.SOCK_STREAM)[0]
            _refuse_listener(family, at)
            held = socket.socket(family, kind | socket.SOCK_CLOEXEC)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            held.bind(at)
        except OSError as error:
            raise RouterError(
                f"cannot listen on {wanted.text} ({error.strerror}); choose another with --listen"
            ) from error
        return cls(ListenAddress(wanted.host, held.getsockname()[1]), held)

    def release(self) -> None:
        """Leave the port to others."""
        self.socket.close()


def _refuse_listener(family: int, at: tuple[object, ...]) -> None:
    """Raise OSError if another process listens there, also one of this user's that would share the port."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(at)
