"""Starts a service's command on this machine and measures how long it takes for a batch of queries."""

from __future__ import annotations

import asyncio
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from slurm_soda.services.load.http_client import AnswerError, HttpClient
from slurm_soda.services.percentile import percentile
from slurm_soda.services.profiling.bandwidth import bandwidth_gb_s, transferred_bytes
from slurm_soda.services.profiling.batch_search import MeasuredBatch
from slurm_soda.services.slurm_soda_serve import RunningCommand, is_healthy
from slurm_soda.wire.errors import SodaError
from slurm_soda.wire.services.service_file import ServiceFile

HOST = "127.0.0.1"
WARM_UP_ROUNDS = 2
LEAST_ROUNDS, MOST_ROUNDS, ROUNDS_S = 5, 20, 3.0
"""Batches that are timed: until one of the last two is reached, and at least the first."""
HOPELESS = 4.0
"""A batch that takes so many times as long as it may is timed no further."""
LONGEST_TAIL = 400


class ProfileError(SodaError):
    """The service could not be measured; says what its command or its queries did, and what to do."""


@dataclass(frozen=True, slots=True)
class Query:
    """One query, as it is sent."""

    path: str
    body: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class BatchMeter:
    """Measures batches of one service on one device. Each starts the command anew, with that batch and number of cores."""

    service: ServiceFile
    device: str
    query: Query
    directory: str
    """In which the command runs."""
    start_limit_s: float = 120.0
    idle_gb_s: float = 0.0

    def measure(self, batch: int, cores: int) -> MeasuredBatch:
        """How long a batch takes: from sending so many queries at once to the last of their answers.

        Raises:
            ProfileError: the command does not become healthy, or does not answer a single query.
        """
        values = {"device": self.device, "batch": batch, "window_ms": f"{self.service.window_ms:g}", "cores": cores}
        with tempfile.TemporaryFile() as output:
            with _on_cores(cores):
                command = RunningCommand(self.service.command, values, output.fileno(), self.directory)
            try:
                self._wait_until_healthy(command, output)
                return self._measure(command, batch, cores, output)
            finally:
                command.kill()

    def _wait_until_healthy(self, command: RunningCommand, output: IO[bytes]) -> None:
        until_s = time.monotonic() + self.start_limit_s
        while not is_healthy(HOST, command.port, self.service.health):
            status = command.exit_status()
            if status is not None:
                raise ProfileError(f"the command ended with status {status} before it was healthy{_tail(output)}")
            if time.monotonic() > until_s:
                raise ProfileError(
                    f"GET {self.service.health} on port {command.port} was not answered with 200 within"
                    f" {self.start_limit_s:g} s; the command must listen on {{port}} and answer there{_tail(output)}"
                )
            time.sleep(0.1)

    def _measure(self, command: RunningCommand, batch: int, cores: int, output: IO[bytes]) -> MeasuredBatch:
        url = f"http://{HOST}:{command.port}{self.query.path}"
        longest_ms = (self.service.target_ms - self.service.window_ms) / 2.0
        try:
            times_ms, gb_s = asyncio.run(_time_rounds(url, self.query, batch, longest_ms, self.idle_gb_s))
        except (AnswerError, OSError) as error:
            said = f"{error}"
            if batch > 1:
                return MeasuredBatch(batch, cores, math.inf, 0.0, failed=said)
            raise ProfileError(
                f"a query to {self.query.path} was not answered: {said}; query names a file with the body of one, and"
                f" query_path its path{_tail(output)}"
            ) from error
        middle_ms = statistics.median(times_ms)
        slow_ms = percentile(times_ms, 0.95)
        return MeasuredBatch(batch, cores, middle_ms, slow_ms / middle_ms - 1.0, bandwidth_gb_s=gb_s)


async def _time_rounds(
    url: str, query: Query, batch: int, longest_ms: float, idle_gb_s: float
) -> tuple[list[float], float | None]:
    """Milliseconds of each batch, and the memory bandwidth meanwhile."""
    client = HttpClient(url, query.body, query.content_type)
    try:
        for _ in range(WARM_UP_ROUNDS):  # opens the connections too
            await _one_batch(client, batch)
        times_ms: list[float] = []
        bytes_before, begun_s = transferred_bytes(), time.perf_counter()
        while not _is_enough(times_ms, time.perf_counter() - begun_s, longest_ms):
            times_ms.append(await _one_batch(client, batch))
        seconds = time.perf_counter() - begun_s
        return times_ms, bandwidth_gb_s(bytes_before, transferred_bytes(), seconds, idle_gb_s)
    finally:
        await client.close()


def _is_enough(times_ms: Sequence[float], seconds: float, longest_ms: float) -> bool:
    if times_ms and min(times_ms) > HOPELESS * longest_ms:
        return True
    return len(times_ms) >= LEAST_ROUNDS and (len(times_ms) >= MOST_ROUNDS or seconds > ROUNDS_S)


async def _one_batch(client: HttpClient, batch: int) -> float:
    begun_s = time.perf_counter()
    for status in await asyncio.gather(*(client.query() for _ in range(batch))):
        if not 200 <= status < 300:
            raise AnswerError(f"status {status}")
    return 1000.0 * (time.perf_counter() - begun_s)


@contextmanager
def _on_cores(cores: int) -> Iterator[None]:
    """What is started meanwhile has the first ``cores`` of this process's CPUs."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(mine)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


def _tail(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - LONGEST_TAIL))
    lines = output.read().decode("utf-8", "replace").split("\n")
    words = " ".join(" ".join(lines[-4:]).split())
    return f"; it said: {words}" if words else ""
