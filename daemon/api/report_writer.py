"""The one way of reports into the store: a bounded queue, one writer, an answer only once the record is on disk.

The writer outlives whatever one report does to it: agents keep what was not written, and jobs do not depend on it.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from sqlalchemy.exc import OperationalError

from slurm_soda.daemon.clock import Clock
from slurm_soda.daemon.cpu_fit.multi_node_search import MultiNodeSearches
from slurm_soda.daemon.logs import LOGGER, log
from slurm_soda.daemon.store.agent_reports import store_report
from slurm_soda.daemon.store.engine import Store, StoreError
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.wire.core_tuning import CoreOrder, ReportAnswer
from slurm_soda.wire.records import NodeReport

MAX_QUEUED_REPORTS = 256
"""Reports that may wait; agents keep theirs and come again."""

MAX_REPORTS_PER_COMMIT = 32
"""Reports per transaction."""


SHOW_ERRORS_FOR_S = 3600.0
"""A report that could not be written for an unexpected reason is a problem of this daemon for so long."""


class ReportQueueFullError(SodaError):
    """Too many reports wait already."""


class ReportNotWrittenError(SodaError):
    """A report could not be written, for a reason that nobody expected: sodad's log has it."""


@dataclass(frozen=True, slots=True)
class _QueuedReport:
    report: NodeReport
    done: Future[ReportAnswer]


class ReportWriter:
    """Writes reports in a thread of its own, and answers them."""

    def __init__(
        self, store: Store, clock: Clock, on_close: Callable[[], None], gangs: MultiNodeSearches | None = None
    ) -> None:
        """``on_close`` is called after a report of a run's end is written; ``gangs`` has the answers."""
        self._store, self._clock, self._on_close = store, clock, on_close
        self._gangs = gangs or MultiNodeSearches()
        self._recalled = False
        """Searches of an earlier daemon were taken up again."""
        self._failures, self._failed_s, self._failure = 0, float("-inf"), ""
        self._queue: queue.Queue[_QueuedReport | None] = queue.Queue(MAX_QUEUED_REPORTS)
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)
        self._thread.start()

    def submit(self, report: NodeReport) -> Future[ReportAnswer]:
        """Queue a report; the future has the answer once it is committed.

        Raises:
            ReportQueueFullError: the queue is full.
        """
        waiting = _QueuedReport(report, Future())
        try:
            self._queue.put_nowait(waiting)
        except queue.Full:
            raise ReportQueueFullError(f"{MAX_QUEUED_REPORTS} reports wait already; send it again later") from None
        return waiting.done

    def close(self) -> None:
        """Write what is queued, and stop."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def problems(self) -> tuple[str, ...]:
        """What is wrong with the writing of reports, for people; nothing if all is well."""
        if not self._thread.is_alive():
            return ("reports of nodes are no longer written: restart sodad",)
        if self._clock.elapsed_s() > self._failed_s + SHOW_ERRORS_FOR_S:
            return ()
        return (
            f"{self._failures} reports of nodes were not taken in well, the last one for {self._failure}; see the log",
        )

    def _run(self) -> None:
        last = False
        while not last:
            batch, last = self._batch()
            try:
                if batch:
                    self._take(batch)
            except Exception as error:  # noqa: BLE001 - without this thread no agent is ever answered again
                self._refuse(batch, error)

    def _batch(self) -> tuple[list[_QueuedReport], bool]:
        """The reports that wait now, at least one unless this is the end; true if it is."""
        batch: list[_QueuedReport] = []
        while len(batch) < MAX_REPORTS_PER_COMMIT:
            try:
                more = self._queue.get(block=not batch)
            except queue.Empty:
                return batch, False
            if more is None:
                return batch, True
            batch.append(more)
        return batch, False

    def _take(self, batch: list[_QueuedReport]) -> None:
        """Write some reports together, and answer them; each alone if one of them cannot be written."""
        now_s = self._clock.now_s()
        try:
            with self._store.write() as session:
                for waiting in batch:
                    store_report(session, waiting.report, now_s)
        except (OperationalError, StoreError) as error:  # the store, not a report
            failure = error if isinstance(error, StoreError) else self._store.error_of(error)
            log(logging.ERROR, "reports-not-written", count=len(batch), error=failure)
            for waiting in batch:
                waiting.done.set_exception(failure)
            return
        except Exception as error:  # noqa: BLE001 - the other reports are not to blame
            if len(batch) == 1:
                self._refuse(batch, error)
            for waiting in batch if len(batch) > 1 else ():
                self._take([waiting])
            return
        for waiting in batch:
            report = waiting.report
            waiting.done.set_result(
                ReportAnswer(report.node, report.seq, self._orders(report, self._clock.elapsed_s()))
            )
        if any(waiting.report.closed for waiting in batch):
            self._on_close()

    def _orders(self, report: NodeReport, steady_s: float) -> tuple[CoreOrder, ...]:
        """The answer to a report that is written. Agents without orders give their trials' cores back by themselves."""
        try:
            with self._store.read() as session:
                if not self._recalled:
                    self._gangs.recall(session, steady_s)
                    self._recalled = True
                self._gangs.take(session, report, steady_s)
            return self._gangs.orders(report.node, steady_s)
        except Exception as error:  # noqa: BLE001 - what is written is written
            self._count(error)
            log(logging.ERROR, "searches-without-orders", node=report.node, error=self._failure)
            return ()

    def _refuse(self, batch: list[_QueuedReport], error: Exception) -> None:
        """Say that something unexpected happened; whose reports these are must send them again."""
        self._count(error)
        nodes = ",".join(sorted({waiting.report.node for waiting in batch}))
        log(logging.ERROR, "reports-not-written", count=len(batch), nodes=nodes, error=self._failure)
        for waiting in batch:
            if not waiting.done.done():
                waiting.done.set_exception(
                    ReportNotWrittenError("something unexpected happened, which sodad's log describes")
                )

    def _count(self, error: Exception) -> None:
        self._failures, self._failed_s = self._failures + 1, self._clock.elapsed_s()
        self._failure = f"{type(error).__name__}: {error}"[:200]
        LOGGER.error("unexpected", exc_info=error)
