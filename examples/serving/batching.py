"""Dynamic batching: queries are collected for a window, or until there are enough, while the batch before is computed."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any


class Query:
    """One query on its way to an answer."""

    def __init__(self, data: Any) -> None:
        self.data, self.arrived_s = data, time.monotonic()
        self.answer: Any = None
        self.error = ""
        self._done = threading.Event()

    def finish(self, answer: Any = None, error: str = "") -> None:
        self.answer, self.error = answer, error
        self._done.set()

    def wait(self) -> None:
        self._done.wait()


class TooManyWaitingError(Exception):
    """More queries wait than may."""


class Batcher:
    """Answers queries with a function from a list of queries to the list of their answers.

    The window of a batch begins with its oldest query, also while the batch before is computed: in a steady stream the
    slowest query waits window + 2 batches at most.
    """

    def __init__(
        self, answer_all: Callable[[Sequence[Any]], Sequence[Any]], largest: int, window_s: float, most_waiting: int
    ) -> None:
        self._answer_all, self._largest, self._window_s, self._most_waiting = (
            answer_all,
            largest,
            window_s,
            most_waiting,
        )
        self._waiting: deque[Query] = deque()
        self._changed = threading.Condition()
        self._in_work = 0
        self._queries = self._batches = self._errors = 0
        self._batch_ms: deque[float] = deque(maxlen=100)
        self._latencies_ms: deque[float] = deque(maxlen=10_000)
        threading.Thread(target=self._work, daemon=True).start()

    def answer(self, data: Any) -> Any:
        """The answer to one query; blocks until it is there.

        Raises:
            TooManyWaitingError: too many wait already.
            RuntimeError: the function failed.
        """
        query = Query(data)
        with self._changed:
            if len(self._waiting) >= self._most_waiting:
                raise TooManyWaitingError
            self._waiting.append(query)
            self._changed.notify_all()
        query.wait()
        if query.error:
            raise RuntimeError(query.error)
        return query.answer

    def finish(self) -> None:
        """Return once nothing waits and nothing is computed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._in_work)

    def stats(self) -> dict[str, float]:
        """What was done so far; latencies of the last 10000 queries, from arrival here to the answer."""
        with self._changed:
            latencies, times = sorted(self._latencies_ms), list(self._batch_ms)
            return {
                "queries": self._queries,
                "batches": self._batches,
                "errors": self._errors,
                "waiting": len(self._waiting),
                "batch_ms": sum(times) / len(times) if times else 0.0,
                "p50_ms": latencies[len(latencies) // 2] if latencies else 0.0,
                "p99_ms": latencies[min(len(latencies) - 1, int(0.99 * len(latencies)))] if latencies else 0.0,
            }

    def _work(self) -> None:
        while True:
            batch = self._next_batch()
            begun_s = time.monotonic()
            try:
                answers = self._answer_all([query.data for query in batch])
                for query, answer in zip(batch, answers, strict=True):
                    query.finish(answer)
                failed = 0
            except Exception as error:  # noqa: BLE001 - the function is the user's, and its other batches may be fine
                for query in batch:
                    query.finish(error=f"{type(error).__name__}: {error}")
                failed = len(batch)
            self._count(batch, begun_s, failed)

    def _next_batch(self) -> list[Query]:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting)
            closes_s = self._waiting[0].arrived_s + self._window_s
            while len(self._waiting) < self._largest and time.monotonic() < closes_s:
                self._changed.wait(closes_s - time.monotonic())
            batch = [self._waiting.popleft() for _ in range(min(self._largest, len(self._waiting)))]
            self._in_work = len(batch)
            return batch

    def _count(self, batch: list[Query], begun_s: float, failed: int) -> None:
        now_s = time.monotonic()
        with self._changed:
            self._batches += 1
            self._queries += len(batch)
            self._errors += failed
            self._batch_ms.append(1000 * (now_s - begun_s))
            self._latencies_ms.extend(1000 * (now_s - query.arrived_s) for query in batch)
            self._in_work = 0
            self._changed.notify_all()
