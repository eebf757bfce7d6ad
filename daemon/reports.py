"""The one way of reports into the store: a bounded queue, one writer, an answer only once the record is on disk."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from slurm_soda.daemon.clock import Clock
from slurm_soda.daemon.cores.gangs import Gangs
from slurm_soda.daemon.logline import log
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.ingest import ingest
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.wire.cores import ReportAnswer
from slurm_soda.wire.records import NodeReport
from sqlalchemy.exc import SQLAlchemyError

MOST_WAITING = 256
"""Reports that may wait; agents keep theirs and come again."""

MOST_AT_ONCE = 32
"""Reports per transaction."""


class BusyError(SodaError):
    """Too many reports wait already."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    report: NodeReport
    done: Future[ReportAnswer]


class ReportWriter:
    """Writes reports in a thread of its own, and answers them."""

    def __init__(self, store: Store, clock: Clock, on_close: Callable[[], None], gangs: Gangs | None = None) -> None:
        """``on_close`` is called after a report that tells of a run's end is written; ``gangs`` has the answers."""
        self._store, self._clock, self._on_close = store, clock, on_close
        self._gangs = gangs or Gangs()
        self._queue: queue.Queue[_Waiting | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)
        self._thread.start()

    def submit(self, report: NodeReport) -> Future[ReportAnswer]:
        """Queue a report; the future has the answer once it is committed.

        Raises:
            BusyError: the queue is full.
        """
        waiting = _Waiting(report, Future())
        try:
            self._queue.put_nowait(waiting)
        except queue.Full:
            raise BusyError(f"{MOST_WAITING} reports wait already; send it again later") from None
        return waiting.done

    def close(self) -> None:
        """Write what is queued, and stop."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        self._recall()
        while (first := self._queue.get()) is not None:
            batch, last = [first], False
            while len(batch) < MOST_AT_ONCE and not last:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                last = more is None
                batch += [] if more is None else [more]
            self._write(batch)
            if last:
                return

    def _recall(self) -> None:
        try:
            with self._store.read() as session:
                self._gangs.recall(session, self._clock.now_s())
        except SQLAlchemyError as error:
            log(logging.ERROR, "searches-not-recalled", error=error)

    def _write(self, batch: list[_Waiting]) -> None:
        now_s = self._clock.now_s()
        try:
            with self._store.write() as session:
                for waiting in batch:
                    ingest(session, waiting.report, now_s)
                    self._gangs.take(session, waiting.report, now_s)
        except SQLAlchemyError as error:
            log(logging.ERROR, "reports-not-written", count=len(batch), error=error)
            for waiting in batch:
                waiting.done.set_exception(error)
            return
        for waiting in batch:
            report = waiting.report
            waiting.done.set_result(ReportAnswer(report.node, report.seq, self._gangs.orders(report.node, now_s)))
        if any(waiting.report.closed for waiting in batch):
            self._on_close()
