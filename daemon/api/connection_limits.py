"""Bounds on what anybody on the network can make sodad hold: connections, requests and their time, in all and of one peer.

uvicorn by itself bounds the size of a header, FastAPI that of a body. A connection serves one request. Where there is no
room for a new connection, the oldest one that waits for its client gives way: clients that send their request at once are
served also while others keep connections open without using them. What is refused is counted, and logged once a minute.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from fastapi.responses import PlainTextResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from slurm_soda.daemon.logs import LOGGER, log

MAX_EXAMPLE_LENGTH = 300

Application = Callable[[Any, Any, Any], Awaitable[None]]
"""As ASGI has it: scope, receive, send."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections there may be, and how long each may take, in seconds from its beginning."""

    connections: int = 256
    per_peer: int = 64
    """Of one address. As many requests of one address are answered at a time, also if nobody waits for the answer;
    three quarters as many that only look, so that users of a node leave room for its agent.
    """
    header_s: float = 5.0
    """To the end of the header."""
    body_s: float = 15.0
    """To the end of the body."""
    answer_s: float = 60.0
    """Until the client has read the answer."""

    def within_descriptors(self, servers: int = 1) -> ConnectionLimits:
        """The same with at most a quarter of the files that this process may open, for so many servers together: Slurm's
        commands need descriptors.
        """
        most_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most_files == resource.RLIM_INFINITY:
            return self
        connections = max(min(self.connections, most_files // (4 * servers)), 1)
        return replace(self, connections=connections, per_peer=min(self.per_peer, connections))


class RefusalCounts(logging.Handler):
    """What was refused, by reason, for one line of the log a minute. As a handler of a server's log it counts that too."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._counts: Counter[str] = Counter()
        self._latest = ""
        self._counting = threading.Lock()

    def count(self, reason: str, example: str) -> None:
        """Count one refusal; ``example`` says more about it."""
        with self._counting:
            self._counts[reason] += 1
            self._latest = example[:MAX_EXAMPLE_LENGTH]

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage().strip()
        self.count(record.name.replace(".", "_"), f"{text}: {error!r}" if error else text)
        LOGGER.debug("%s", record.name, exc_info=record.exc_info)

    def log_counts(self) -> None:
        """Log what was counted since the last time, if anything."""
        with self._counting:
            counts, self._counts = self._counts, Counter()
        if counts:
            log(logging.WARNING, "requests-refused", **dict(sorted(counts.items())), latest=self._latest)


class OpenConnections:
    """The open connections, oldest first."""

    def __init__(self, limits: ConnectionLimits, refusals: RefusalCounts) -> None:
        self.limits, self.refusals = limits, refusals
        self._open: dict[LimitedProtocol, None] = {}

    def make_protocol(self, **arguments: Any) -> LimitedProtocol:
        """What uvicorn asks for at each new connection."""
        return LimitedProtocol(self, **arguments)

    def add(self, new: LimitedProtocol) -> None:
        """Enter a connection; where there is no room for it, one gives way."""
        self._open[new] = None
        of_peer = [connection for connection in self._open if connection.peer == new.peer]
        if len(of_peer) > self.limits.per_peer:
            self._make_room(of_peer, new)
        elif len(self._open) > self.limits.connections:
            self._make_room(list(self._open), new)

    def remove(self, connection: LimitedProtocol) -> None:
        """Forget a connection."""
        self._open.pop(connection, None)

    def _make_room(self, held: list[LimitedProtocol], new: LimitedProtocol) -> None:
        next((one for one in held if one.waits_for_client()), new).drop("connections")


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol for one connection, with deadlines."""

    def __init__(self, connections: OpenConnections, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._connections = connections
        self._deadlines: list[asyncio.TimerHandle] = []
        self.peer = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.peer = _address(self.client)
        limits = self._connections.limits
        self._deadlines = [
            self.loop.call_later(limits.header_s, self._end_without_header),
            self.loop.call_later(limits.body_s, self._end_without_body),
            self.loop.call_later(limits.answer_s, self.drop, "answer_deadline"),
        ]
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        for deadline in self._deadlines:
            deadline.cancel()
        self._connections.remove(self)
        super().connection_lost(exc)

    def waits_for_client(self) -> bool:
        """Nothing is being done for it: its request is not complete, or its answer is not read."""
        return self.cycle is None or self.cycle.more_body or self.cycle.response_complete

    def drop(self, reason: str) -> None:
        """End the connection at once."""
        self._connections.refusals.count(reason, self.peer)
        self._connections.remove(self)
        self.transport.abort()

    def _end_without_header(self) -> None:
        if self.cycle is None:
            self.drop("header_deadline")

    def _end_without_body(self) -> None:
        if self.cycle is not None and self.cycle.more_body:  # one without a header may have been dropped just now
            self.drop("body_deadline")


class LimitedApp:
    """An ASGI application that answers so many requests of one address at a time, and counts its refusals.

    A request counts until it is answered: a client that goes away does not end what it asked for. Anybody on a node may
    look, but only agents send anything that is taken: looks are three quarters of the requests at most.
    """

    def __init__(self, app: Application, per_peer: int, refusals: RefusalCounts) -> None:
        self._app, self._per_peer, self._refusals = app, per_peer, refusals
        self._answering: Counter[str] = Counter()
        self._looks: Counter[str] = Counter()
        """Those of them that only look."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        peer, status = _address(scope["client"]), 0

        async def send_and_count(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif status >= 400:
                said = message.get("body", b"").decode("utf-8", "backslashreplace")
                self._refusals.count(f"status_{status}", f"{peer}: {said}")
            await send(message)

        most_looks, look = max(self._per_peer * 3 // 4, 1), Counter([peer] if scope["method"] == "GET" else ())
        if self._answering[peer] >= self._per_peer or self._looks[peer] + look[peer] > most_looks:
            count = self._answering[peer]
            refusal = PlainTextResponse(f"{count} requests of {peer} are being answered; ask again later", 503)
            await refusal(scope, receive, send_and_count)
            return
        self._answering[peer] += 1
        self._looks += look
        try:
            await self._app(scope, receive, send_and_count)
        finally:
            self._answering -= Counter([peer])  # keeps no zeros
            self._looks -= look


def _address(client: tuple[str, int] | None) -> str:
    return client[0] if client else ""
