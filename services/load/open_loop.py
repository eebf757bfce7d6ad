"""Sends queries at planned times and measures what becomes of each."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable

from slurm_soda.services.load.http_client import AnswerError, ConnectionLostError, HttpClient
from slurm_soda.services.load.load_report import SentQuery

MOST_IN_FLIGHT = 500
"""Queries that are due beyond this wait for an answer; their latency counts all the same from when they were due."""


def run_load(
    url: str,
    times_s: Iterable[float],
    *,
    body: bytes | None = None,
    content_type: str = "application/json",
    timeout_s: float = 30.0,
) -> list[SentQuery]:
    """Send one query at each of ``times_s``, and return once all are answered or given up.

    Args:
        url: ``http://HOST:PORT/PATH``.
        times_s: seconds from now, ascending.
        body: posted with each query; None: a GET.
        content_type: of the body.
        timeout_s: after which a query counts as an error, from when it was due.

    Raises:
        PatternError: the URL cannot be used.
    """
    return asyncio.run(send_load(url, times_s, body=body, content_type=content_type, timeout_s=timeout_s))


async def send_load(
    url: str,
    times_s: Iterable[float],
    *,
    body: bytes | None = None,
    content_type: str = "application/json",
    timeout_s: float = 30.0,
) -> list[SentQuery]:
    """:func:`run_load` inside of a running event loop. Cancelled, it drops what is in flight."""
    client = HttpClient(url, body, content_type)
    sender = _Sender(client, timeout_s)
    try:
        async with asyncio.TaskGroup() as group:
            for at_s in times_s:
                await asyncio.sleep(max(0.0, at_s - sender.now_s()))
                await sender.free.acquire()
                group.create_task(sender.send(at_s))
    finally:
        await client.close()
    return sorted(sender.sent, key=lambda query: query.planned_s)


class _Sender:
    def __init__(self, client: HttpClient, timeout_s: float) -> None:
        self._client, self._timeout_s = client, timeout_s
        self._start_s = time.perf_counter()
        self.free = asyncio.Semaphore(MOST_IN_FLIGHT)
        self.sent: list[SentQuery] = []

    def now_s(self) -> float:
        return time.perf_counter() - self._start_s

    async def send(self, planned_s: float) -> None:
        sent_s, error = self.now_s(), ""
        try:
            async with asyncio.timeout(max(0.0, planned_s + self._timeout_s - sent_s)):
                status = await self._client.query()
            error = "" if 200 <= status < 300 else f"status {status}"
        except TimeoutError:
            error = "timeout"
        except ConnectionLostError:
            error = "closed"
        except AnswerError:
            error = "broken answer"
        except ConnectionRefusedError:
            error = "refused"
        except ConnectionResetError:
            error = "reset"
        except OSError as failed:
            error = os.strerror(failed.errno) if failed.errno else type(failed).__name__
        finally:
            self.free.release()
        self.sent.append(SentQuery(planned_s, sent_s - planned_s, self.now_s() - planned_s, error))
