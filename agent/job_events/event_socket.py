"""The agent's socket: where prolog and epilog hand in their events. Only root (or the agent's own user) is heard."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import struct
from collections.abc import Callable
from pathlib import Path

from slurm_soda.wire.errors import SodaError
from slurm_soda.wire.event_delivery import MAX_EVENT_BYTES

READ_TIMEOUT_S = 2.0
MAX_CONNECTIONS = 64
_UCRED = struct.Struct("3i")


class EventSocketError(SodaError):
    """The socket cannot be opened; the text says why and what to do."""


ReceiveEvent = Callable[[bytes], str]
"""Takes one event line; gives the reason why not, or empty text."""


class EventSocket:
    """A unix stream socket: one JSON line in, ``ok`` or ``no REASON`` out."""

    def __init__(self, path: str, take: ReceiveEvent, taken: Callable[[], None]) -> None:
        self._path = Path(path)
        self._take = take
        self._taken = taken
        self._server: asyncio.Server | None = None
        self._open_connections = 0

    async def start(self) -> None:
        """Listen.

        Raises:
            EventSocketError: another agent listens there, or the path cannot be used.
        """
        try:
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._remove_stale()
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            before = os.umask(0o177)  # nobody else may connect, not even before a chmod
            try:
                listener.bind(str(self._path))
            finally:
                os.umask(before)
            self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=MAX_EVENT_BYTES + 1)
        except OSError as error:
            raise EventSocketError(f"socket {self._path}: {error.strerror or error}; check its directory") from error

    async def stop(self) -> None:
        """Stop listening and take the socket away."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _remove_stale(self) -> None:
        """Remove the socket of an agent that died; anything else in its place is left alone."""
        try:
            mode = self._path.lstat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(mode):
            raise EventSocketError(f"socket {self._path}: something else is there; remove it")
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        probe.settimeout(1.0)
        try:
            probe.connect(str(self._path))
        except OSError:
            self._path.unlink(missing_ok=True)
        else:
            raise EventSocketError(f"socket {self._path}: another agent listens there; stop it first")
        finally:
            probe.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open_connections += 1
        reason = "busy"
        try:
            if self._open_connections <= MAX_CONNECTIONS:
                reason = await self._answer(reader, writer)
            writer.write(b"ok\n" if not reason else b"no " + reason.encode("ascii", "backslashreplace") + b"\n")
            await asyncio.wait_for(writer.drain(), READ_TIMEOUT_S)
        except (OSError, TimeoutError):
            pass  # the caller went away: it keeps its event in the spool itself
        finally:
            self._open_connections -= 1
            writer.close()
        if not reason:
            self._taken()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        peer = writer.get_extra_info("socket")
        _, uid, _ = _UCRED.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        if uid not in (0, os.geteuid()):
            return f"uid {uid} may not speak here"
        try:
            line = await asyncio.wait_for(reader.readuntil(b"\n"), READ_TIMEOUT_S)
        except TimeoutError:
            return f"no line within {READ_TIMEOUT_S:g} s"
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return f"no whole line of at most {MAX_EVENT_BYTES} bytes"
        return self._take(line)
