"""The one way of reports into the store: a bounded queue, one writer, an answer only once the record is on disk.

Many agents come back at once with much to tell, while sodad must write its heartbeat: so transactions are short, and there
are pauses between them in which others get the store's lock.

The writer outlives whatever one report does to it: agents keep what was not written, and jobs do not depend on it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Clock
from slurm_soda.daemon.cpu_fit.multi_node_search import MultiNodeSearches
from slurm_soda.daemon.logs import LOGGER, log
from slurm_soda.daemon.services.node_bandwidths import NodeBandwidths
from slurm_soda.daemon.sharing.co_runners import GuestsByNode
from slurm_soda.daemon.store.agent_reports import (
    count_records,
    is_stored,
    split_report,
    store_records,
    store_report,
    without_records,
)
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.queries import agent_names
from slurm_soda.daemon.store.reporting_nodes import ReportingNodes
from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.wire.core_tuning import CoreOrder, ReportAnswer
from slurm_soda.wire.records import NodeReport

MAX_QUEUED_REPORTS = 256
"""Reports that may wait; agents keep theirs and come again."""

MAX_REPORTS_PER_COMMIT = 32
"""Reports per transaction."""

MAX_RECORDS_PER_COMMIT = 500
"""Records per transaction; a report with more takes several."""

HOLD_LOCK_S = 0.2
"""The writers' lock is held for so long in all, then comes a pause. Others wait for one transaction more."""

PAUSE_S = 0.12
"""Whoever waits for SQLite's lock looks every 0.1 s whether it is free."""

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

    def is_awaited(self) -> bool:
        """Whether somebody still waits for the answer; if so, he can no longer cancel it."""
        return self.done.running() or (not self.done.done() and self.done.set_running_or_notify_cancel())


class ReportWriter:
    """Writes reports in a thread of its own, and answers them."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        on_close: Callable[[], None],
        gangs: MultiNodeSearches | None = None,
        guests: GuestsByNode | None = None,
        *,
        bandwidths: NodeBandwidths | None = None,
        nodes: ReportingNodes | None = None,
        on_report: Callable[[NodeReport], None] = lambda _: None,
    ) -> None:
        """``on_close`` is called once a report of a run's end, or of a fault, is written; ``gangs`` and ``guests`` have the
        answers, and ``bandwidths`` keeps what is not written; ``nodes`` says of which nodes more is kept than what a report
        says of jobs; ``on_report`` is told of each report of such a node that is written.
        """
        self._store, self._clock, self._on_close = store, clock, on_close
        self._gangs, self._guests = gangs or MultiNodeSearches(), guests or GuestsByNode()
        self._bandwidths, self._nodes = bandwidths or NodeBandwidths(), nodes or ReportingNodes()
        self._on_report = on_report
        self._recalled = False
        """Searches of an earlier daemon were taken up again."""
        self._failures, self._failed_s, self._failure = 0, float("-inf"), ""
        self._held_s = 0.0
        """How long the lock was held since the last pause."""
        self._queue: queue.Queue[_QueuedReport | None] = queue.Queue(MAX_QUEUED_REPORTS)
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)
        self._thread.start()

    def submit(self, report: NodeReport) -> Future[ReportAnswer]:
        """Queue a report; the future has the answer once it is committed. One that is cancelled in time is not written.

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
        """Write reports a few at a time, and answer each once it is on disk."""
        group: list[_QueuedReport] = []
        records = 0
        for waiting in batch:
            count = count_records(waiting.report)
            if group and records + count > MAX_RECORDS_PER_COMMIT:
                self._take_group(group)
                group, records = [], 0
            group.append(waiting)
            records += count
        self._take_group(group)

    def _take_group(self, group: list[_QueuedReport]) -> None:
        """Write some reports together, and answer them; each alone if one of them cannot be written."""
        wanted = [waiting for waiting in group if waiting.is_awaited()]
        if not wanted:
            return
        try:
            self._store_group([waiting.report for waiting in wanted])
        except (OperationalError, StoreError) as error:  # the store, not a report
            failure = error if isinstance(error, StoreError) else self._store.error_of(error)
            log(logging.ERROR, "reports-not-written", count=len(wanted), error=failure)
            for waiting in wanted:
                waiting.done.set_exception(failure)
            return
        except Exception as error:  # noqa: BLE001 - the other reports are not to blame
            if len(wanted) == 1:
                self._refuse(wanted, error)
            for waiting in wanted if len(wanted) > 1 else ():
                self._take_group([waiting])
            return
        for waiting in wanted:
            report = waiting.report
            orders, guests = self._orders(report, self._clock.elapsed_s()), self._guests.by_node.get(report.node, ())
            left_out = None if self._guests.left_out is None else self._guests.left_out.get(report.node, ())
            waiting.done.set_result(ReportAnswer(report.node, report.seq, orders, guests, left_out))
        for report in (waiting.report for waiting in wanted if self._nodes.admits(waiting.report.node)):
            self._bandwidths.take(report, self._clock.elapsed_s())
            self._guests.note_mps(report.node, report.mps_jobs)
            self._on_report(report)
        if any(waiting.report.closed or waiting.report.mps_faults for waiting in wanted):
            self._on_close()

    def _store_group(self, reports: list[NodeReport]) -> None:
        """Write some reports in one transaction; a long one, which is alone, in several. What is stored already stays."""
        with self._store.read() as session:
            if not self._nodes.recalled:
                self._nodes.recall(agent_names(session))
            fresh = [without_records(report) if is_stored(session, report) else report for report in reports]
        last = []
        for report in fresh:
            *earlier, rest = split_report(report, MAX_RECORDS_PER_COMMIT)
            for part in earlier:
                with self._transaction() as session:
                    store_records(session, part, self._guests.co_runners_of)
            last.append(rest)
        now_s = self._clock.now_s()
        with self._transaction() as session:
            for report in last:
                remembers = self._nodes.admits(report.node)
                store_report(session, report, now_s, self._guests.co_runners_of, remembers_node=remembers)

    @contextmanager
    def _transaction(self) -> Iterator[Session]:
        """A transaction, before which others had the lock."""
        if self._held_s >= HOLD_LOCK_S:
            time.sleep(PAUSE_S)
            self._held_s = 0.0
        with self._store.write() as session:
            session.connection()  # waits for the lock
            began_s = self._clock.elapsed_s()
            yield session
        self._held_s += self._clock.elapsed_s() - began_s

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
            if waiting.is_awaited():
                waiting.done.set_exception(
                    ReportNotWrittenError("something unexpected happened, which sodad's log describes")
                )

    def _count(self, error: Exception) -> None:
        self._failures, self._failed_s = self._failures + 1, self._clock.elapsed_s()
        self._failure = f"{type(error).__name__}: {error}"[:200]
        LOGGER.error("unexpected", exc_info=error)
