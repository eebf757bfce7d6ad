"""Sends reports to sodad: HTTP, authenticated with MUNGE. Sending one twice does no harm, so a doubt is resolved by it."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Protocol

import httpx

from slurm_soda.wire.core_tuning import ReportAnswer
from slurm_soda.wire.errors import MungeError, RecordError, SodaError
from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge
from slurm_soda.wire.records import NodeReport

PATH = "/v1/reports"
FIRST_PAUSE_S = 1.0


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

    async def close(self) -> None:
        """Let go of the connection."""
        ...


class HttpUploader:
    """Posts reports to one controller over a kept-alive connection."""

    def __init__(self, controller: str, munge: Munge, timeout_s: float) -> None:
        self._url = controller.rstrip("/") + PATH
        self._munge = munge
        # trust_env: a proxy variable of the site must not send reports about jobs elsewhere.
        self._client = httpx.AsyncClient(timeout=timeout_s, trust_env=False, follow_redirects=False)

    async def send(self, report: NodeReport) -> ReportAnswer | None:
        body = json.dumps(report.to_dict(), separators=(",", ":"), allow_nan=False).encode("ascii")
        try:
            credential = await asyncio.to_thread(self._munge.encode, body)
            headers = {CREDENTIAL_HEADER: credential, "Content-Type": "application/json"}
            response = await self._client.post(self._url, content=body, headers=headers)
        except MungeError as error:
            raise UploadError(str(error)) from error
        except httpx.HTTPError as error:
            raise UploadError(f"{self._url}: {type(error).__name__} {error}".strip()) from error
        if not response.is_success:
            said = " ".join(response.text.split())[:200]
            raise UploadError(f"{self._url} answered {response.status_code}: {said}")
        try:
            return ReportAnswer.from_json(response.content) if response.content else None
        except RecordError:
            return None  # the report was taken; a controller of another version answers in its own way

    async def close(self) -> None:
        await self._client.aclose()


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
