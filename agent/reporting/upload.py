"""Sends reports to sodad: HTTP, authenticated with MUNGE in both directions.

Sending a report twice does no harm, so a doubt is resolved by it.
"""

from __future__ import annotations

import asyncio
import io
import json
import pwd
import random
import re
import socket
from collections.abc import Sequence
from contextlib import closing, suppress
from email.message import Message
from http.client import HTTPException, HTTPResponse
from typing import Protocol, cast
from urllib.parse import urlsplit

from slurm_soda.wire.core_tuning import MAX_ANSWER_BYTES, ReportAnswer
from slurm_soda.wire.errors import MungeError, RecordError, SodaError
from slurm_soda.wire.munge import CREDENTIAL_HEADER, KNOWN_HEADER, Munge
from slurm_soda.wire.records import NodeReport

PATH = "/v1/reports"
FIRST_PAUSE_S = 1.0
_KNOWN = re.compile("[0-9a-f]{64}")
MOST_BYTES = MAX_ANSWER_BYTES + (64 << 10)
"""Of an answer with its headers."""


class UploadError(SodaError):
    """The controller did not take a report; the text says why."""


class Uploader(Protocol):
    """Takes reports to the controller."""

    async def send(self, report: NodeReport) -> ReportAnswer | None:
        """Deliver one report; the controller's answer, unless it has nothing to say.

        Raises:
            UploadError: it was not taken, or nobody knows whether it was.
        """
        ...


class HttpUploader:
    """Posts reports to one controller, one connection each: sodad closes idle ones after 5 s, before the next report is due.

    By the standard library alone, which cannot be led astray: it follows no redirect and no proxy variable of the site,
    so no report about jobs goes elsewhere.
    """

    def __init__(self, controller: str, munge: Munge, timeout_s: float, controller_user: str = "slurm") -> None:
        """``controller_user``, by name or number, is who runs sodad: only his answers, and root's, are believed."""
        self._url = controller.rstrip("/") + PATH
        self._munge = munge
        self._timeout_s = timeout_s
        self._controller_user = controller_user
        self._known = ""
        """What sodad gave this agent, to be told from others on this host."""

    async def send(self, report: NodeReport) -> ReportAnswer | None:
        body = json.dumps(report.to_dict(), separators=(",", ":"), allow_nan=False).encode("ascii")
        try:
            credential = await asyncio.to_thread(self._munge.encode, body)
            async with asyncio.timeout(self._timeout_s):
                headers = {CREDENTIAL_HEADER: credential, KNOWN_HEADER: self._known, "Content-Type": "application/json"}
                status, answer, answer_headers = await _post(self._url, headers, body)
        except MungeError as error:
            raise UploadError(str(error)) from error
        except TimeoutError as error:
            raise UploadError(f"{self._url}: no answer within {self._timeout_s:g} s") from error
        except (OSError, HTTPException, ValueError) as error:
            raise UploadError(f"{self._url}: {type(error).__name__} {error}".strip()) from error
        if not 200 <= status < 300:
            said = " ".join(answer.decode("utf-8", "replace").split())[:200]
            raise UploadError(f"{self._url} answered {status}: {said}")
        await asyncio.to_thread(self._check_answer, answer, answer_headers.get(CREDENTIAL_HEADER, ""), body)
        known = answer_headers.get(KNOWN_HEADER, "")
        self._known = known if _KNOWN.fullmatch(known) else ""
        try:
            return ReportAnswer.from_json(answer) if answer else None
        except RecordError:
            return None  # the report was taken; a controller of another version answers in its own way

    def _check_answer(self, answer: bytes, credential: str, report: bytes) -> None:
        """Raise UploadError unless this is sodad's answer to this very report: whoever has its port could say anything."""
        try:
            self._munge.check(answer, credential, {0, *_uids(self._controller_user)}, report)
        except MungeError as error:
            believed = f"only sodad, run by {self._controller_user} (controller_user) or root, is believed"
            raise UploadError(f"{self._url}: answer refused: {error}; {believed}") from error


class FirstThatAnswers:
    """Several controllers, of which one leads: the others take no reports. The one that took the last report comes first."""

    def __init__(self, uploaders: Sequence[Uploader], key: str) -> None:
        """``key`` of agent.toml says which these are."""
        self._uploaders, self._key, self._first = uploaders, key, 0

    async def send(self, report: NodeReport) -> ReportAnswer | None:
        refusals = []
        for turn in range(len(self._uploaders)):
            at = (self._first + turn) % len(self._uploaders)
            try:
                answer = await self._uploaders[at].send(report)
            except UploadError as error:
                refusals.append(str(error))
                continue
            self._first = at
            return answer
        raise UploadError(f"{'; '.join(refusals)} ({self._key} of /etc/slurm-soda/agent.toml says where sodad is)")


def _uids(user: str) -> tuple[int, ...]:
    """Of a user by name or number; none if this node does not know him."""
    try:
        return (int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid,)
    except KeyError:
        return ()


async def _post(url: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes, Message]:
    """Status, content and headers of the answer to one POST.

    Raises:
        OSError: there is no connection, or it broke.
        HTTPException, ValueError: what came is not HTTP, or is too long; or the address cannot be used.
    """
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port or (443 if secure else 80), ssl=secure or None
    )
    with closing(writer):
        fields = {"Host": parts.netloc.rpartition("@")[2], "Connection": "close", **headers}
        lines = [f"POST {parts.path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        writer.write("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode("latin-1") + body)
        with suppress(ConnectionError):  # a refusal may come before all is sent
            await writer.drain()
        received = bytearray()
        while part := await reader.read(1 << 16):
            received += part
            if len(received) > MOST_BYTES:
                raise ValueError(f"an answer of more than {MOST_BYTES} bytes")
    return _parsed(bytes(received))


class _Received:
    """What came, as http.client wants it: something that a file can be made of."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._content)


def _parsed(content: bytes) -> tuple[int, bytes, Message]:
    response = HTTPResponse(cast(socket.socket, _Received(content)), method="POST")
    response.begin()
    return response.status, response.read(), response.headers


class Backoff:
    """Pauses between attempts: doubling up to a limit, each varied by half so that nodes do not come in step."""

    def __init__(self, longest_s: float, source: random.Random) -> None:
        self._longest_s = longest_s
        self._random = source
        self._failures = 0

    @property
    def failing(self) -> bool:
        """The last attempt failed."""
        return self._failures > 0

    def failed(self) -> float:
        """Seconds to wait after one more failure."""
        pause_s = min(self._longest_s, FIRST_PAUSE_S * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return pause_s * self._random.uniform(0.5, 1.5)

    def succeeded(self) -> bool:
        """Start over; says whether there had been failures."""
        had, self._failures = self.failing, 0
        return had
