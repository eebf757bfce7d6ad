"""A small HTTP/1.1 client for many queries at once, all alike, over connections that are kept."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit

from slurm_soda.services.load.arrivals import PatternError

LARGEST_ANSWER = 64 * 1024 * 1024


def content_type_of(name: str) -> str:
    """What a file with a query holds, by its name."""
    return "application/json" if name.endswith(".json") else "application/octet-stream"


class AnswerError(Exception):
    """No answer that is HTTP."""


class ConnectionLostError(AnswerError):
    """The connection ended before the first byte of an answer."""


class HttpClient:
    """Queries to one URL. Used in one event loop."""

    def __init__(self, url: str, body: bytes | None, content_type: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise PatternError(f"the URL is {url!r}; it needs http://HOST:PORT/PATH")
        try:
            self._host, self._port = parts.hostname, parts.port or 80
        except ValueError as error:
            raise PatternError(f"the URL is {url!r}: {error}") from error
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"Host: {parts.netloc}"]
        if body is not None:
            lines += [f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
        self._request = "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")
        self._idle: list[_Connection] = []

    async def query(self) -> int:
        """Send the query and read the answer whole; its status.

        Raises:
            AnswerError: what came is no HTTP, or ended early.
            OSError: nobody listens.
        """
        while self._idle:
            # One that the server has closed meanwhile tells nothing about the server: the query was not taken.
            with suppress(ConnectionLostError):
                return await self._query_on(self._idle.pop())
        return await self._query_on(_Connection(*await asyncio.open_connection(self._host, self._port)))

    async def close(self) -> None:
        """Close what is kept."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _query_on(self, connection: _Connection) -> int:
        kept = False
        try:
            status, kept = await connection.ask(self._request)
        finally:
            if kept:
                self._idle.append(connection)
            else:
                connection.close()
        return status


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def close(self) -> None:
        self._writer.close()

    async def ask(self, request: bytes) -> tuple[int, bool]:
        """Status of the answer, and whether the connection can be used again."""
        try:
            self._writer.write(request)
            await self._writer.drain()
            line = await self._reader.readline()
        except OSError as error:
            raise ConnectionLostError(str(error)) from error
        if not line:
            raise ConnectionLostError("the connection was closed")
        try:
            return await self._rest(line)
        except (ValueError, IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise AnswerError(f"no HTTP: {error}") from error
        except OSError as error:
            raise AnswerError(str(error)) from error

    async def _rest(self, line: bytes) -> tuple[int, bool]:
        version, status = line.split()[:2]
        headers: dict[bytes, bytes] = {}
        while (header := await self._reader.readline()) not in (b"\r\n", b"\n"):
            if not header:
                raise AnswerError("the answer ended in its headers")
            name, _, value = header.partition(b":")
            headers[name.strip().lower()] = value.strip().lower()
        kept = version == b"HTTP/1.1" and headers.get(b"connection") != b"close"
        if b"chunked" in headers.get(b"transfer-encoding", b""):
            while size := int((await self._reader.readline()).partition(b";")[0], 16):
                await self._reader.readexactly(min(size, LARGEST_ANSWER) + 2)
            await self._reader.readline()
        elif b"content-length" in headers:
            await self._reader.readexactly(min(int(headers[b"content-length"]), LARGEST_ANSWER))
        else:
            await self._reader.read(LARGEST_ANSWER)
            kept = False
        return int(status), kept
