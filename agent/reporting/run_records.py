"""What this node knows of its runs: kept in the spool until the controller has it.

Openings and closings come from prolog and epilog, over the socket or through the spool; both ways may bring the same one.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from slurm_soda.agent.job_events.run_event import RunEvent, RunKey, parse_run_event
from slurm_soda.agent.reporting.recent_faults import RecentFaults
from slurm_soda.agent.reporting.report_batch import ReportBatch
from slurm_soda.agent.sampling.run_progress import RunProgress
from slurm_soda.agent.sampling.run_usage import RunUsage
from slurm_soda.wire.core_tuning import GuestGpus
from slurm_soda.wire.errors import RecordError, SpoolError
from slurm_soda.wire.gpu_use import RunGpuUse
from slurm_soda.wire.records import JobClosed, JobOpened
from slurm_soda.wire.spool import KINDS, Spool, record_name, split_record_name

MAX_RUNS_PER_REPORT = 500
"""Runs in one report; the next report takes the rest."""

MAX_GPUS_PER_REPORT = 2000
"""GPUs of runs in one report, of which each costs up to 900 bytes."""

GPU_USE_EVERY_S = 60.0
"""What a run does with each of its GPUs is told so often, and when it is over."""

_TRANSIENT_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR)

FORGOTTEN_KEPT = 1024
"""Runs remembered after the controller has all of them, so that a late second copy of an event is known as one."""


@dataclass(slots=True)
class NodeRun:
    """One run on this node. ``opened`` is missing where only its end was seen."""

    key: RunKey
    opened: JobOpened | None = None
    closed: JobClosed | None = None
    usage: RunUsage | None = None
    progress: RunProgress | None = None
    """What it tells of itself, if it does."""
    epilog_cpu_s: float = 0.0
    """What the epilog read itself. The agent's own last reading, which comes after it, may find the same seconds."""
    over: bool = False
    """No more readings: closed, or lost."""
    left_out: bool = False
    """Its job is not in the site's scope, as sodad said last: nothing is limited for it, or of it."""
    seen_s: float = 0.0
    """When a process of it was last seen."""
    revision: int = 1
    """Grows with every change."""
    reported: int = 0
    """The revision that the controller has."""
    gpu_use_last_s: float = 0.0
    """Up to when the controller knows what it did with each GPU."""

    def gpu_use(self) -> RunGpuUse | None:
        """What it did with each GPU, where it is time to tell."""
        if self.usage is None or self.opened is None:
            return None
        due = self.over or self.usage.gpu_use_last_s - self.gpu_use_last_s >= GPU_USE_EVERY_S
        return self.usage.gpu_record(self.opened) if due else None


class RunRecords:
    """The runs, in memory and in the spool. A spool that fails costs only what a restart would have kept."""

    def __init__(self, spool: Spool, faults: RecentFaults, most_files: int) -> None:
        self._spool = spool
        self._faults = faults
        self._most_files = most_files
        self._known: set[str] = set()
        self._events_reported: set[tuple[RunKey, str]] = set()
        self._done: deque[RunKey] = deque(maxlen=FORGOTTEN_KEPT)
        self.runs: dict[RunKey, NodeRun] = {}
        self._runs_of_job: dict[int, list[NodeRun]] = {}

    def active(self) -> list[NodeRun]:
        """Runs that are to be sampled."""
        return [run for run in self.runs.values() if run.opened is not None and not run.over]

    def take_guests(self, guests: Sequence[GuestGpus]) -> None:
        """These runs hold GPUs beside others, which their prologs could not know: from now on they are GPU jobs here.

        What was once said of a run stays: a controller that has just started says nothing yet.
        """
        gpus = {(guest.job_id, guest.restart): guest.gpus for guest in guests}
        for run in self.active() if gpus else ():
            opened = run.opened
            if opened is not None and (held := gpus.get((opened.job_id, opened.restart))):
                run.opened = replace(opened, gpus=tuple(sorted({*opened.gpus, *held})))

    def take_left_out(self, job_ids: Collection[int]) -> None:
        """These jobs are not in scope, and all others are."""
        for run in self.runs.values():
            run.left_out = run.key.job_id in job_ids

    def take(self, event: RunEvent, line: bytes, now_s: float) -> NodeRun | None:
        """Enter an event, into the spool too; the same one again changes nothing.

        Raises:
            SpoolError: the spool refuses; the event is entered all the same, and whoever brings it again is heard again.
        """
        run = self._enter(event, now_s)
        if run is None:
            return None
        kind = "open" if isinstance(event.record, JobOpened) else "close"
        name = record_name(run.key.job_id, run.key.start_s, kind)
        if name not in self._known:
            self._spool.write(name, line)
            self._known.add(name)
        return run

    def adopt(self, now_s: float) -> list[NodeRun]:
        """Enter what others left in the spool: prolog and epilog while no agent answered, an earlier agent."""
        try:
            if self._spool.reopen_if_replaced():
                self._known.clear()
            fresh = sorted((n for n in self._spool.names() if n not in self._known), key=_reading_order)
        except (OSError, SpoolError) as error:
            self._fault(now_s, f"spool cannot be listed: {error}")
            return []
        changed = []
        later: set[tuple[int, int]] = set()
        for name in fresh:
            if _run_of_file(name) in later:  # sums need their opening
                continue
            self._known.add(name)
            try:
                run = self._adopt_one(name, now_s)
            except FileNotFoundError:
                continue
            except (RecordError, SpoolError) as error:
                if _is_transient(error):
                    self._fault(now_s, f"spool: {name} is read later: {error}")
                    self._known.discard(name)
                    later.add(_run_of_file(name))
                    continue
                self._drop(name, error, now_s)
                continue
            except Exception as error:  # noqa: BLE001 - a record that stops the agent would stop the next one too
                self._drop(name, error, now_s)
                continue
            if run is not None:
                changed.append(run)
        return changed

    def _drop(self, name: str, error: Exception, now_s: float) -> None:
        self._fault(now_s, f"spool: {name} is dropped: {error}")
        self._spool.remove(name)

    def end(self, run: NodeRun) -> None:
        """Count a run as over, after its last reading; CPU seconds that only its epilog saw are added now."""
        run.over = True
        if run.usage and run.epilog_cpu_s > run.usage.cpu_s:
            at_s = run.closed.at_s if run.closed else run.usage.last_s
            run.usage.add_unaccounted_cpu_s(at_s, run.epilog_cpu_s - run.usage.cpu_s)

    def save(self, run: NodeRun, now_s: float) -> None:
        """Write a run's sums to the spool, and count them as news."""
        run.revision += 1
        if run.usage is None:
            return
        name = record_name(run.key.job_id, run.key.start_s, "usage")
        self._known.add(name)
        try:
            self._spool.write(name, run.usage.to_line())
        except SpoolError as error:
            self._fault(now_s, str(error))

    def has_unreported(self) -> bool:
        """The controller does not have everything."""
        return any(run.revision > run.reported for run in self.runs.values())

    def news(self) -> ReportBatch:
        """What the controller does not have yet, oldest runs first."""
        stale = _as_many_as_fit([run for run in self.runs.values() if run.revision > run.reported])
        events = {(r.key, "open") for r in stale if r.opened} | {(r.key, "close") for r in stale if r.closed}
        events -= self._events_reported
        return ReportBatch(
            opened=tuple(r.opened for r in stale if r.opened and (r.key, "open") in events),
            closed=tuple(r.closed for r in stale if r.closed and (r.key, "close") in events),
            usage=tuple(r.usage.record(r.opened) for r in stale if r.usage and r.opened),
            progress=tuple(r.progress.record(r.opened) for r in stale if r.progress and r.opened),
            gpu_uses=tuple(use for r in stale if (use := r.gpu_use()) is not None),
            revisions={run.key: run.revision for run in stale},
            events=frozenset(events),
        )

    def reported(self, batch: ReportBatch) -> None:
        """The controller has this batch: runs that are over and fully known there are forgotten."""
        self._events_reported |= batch.events
        told = {(use.job_id, use.restart): use.last_s for use in batch.gpu_uses}
        for key, revision in batch.revisions.items():
            run = self.runs.get(key)
            if run is None:  # dropped for want of space meanwhile
                continue
            run.reported = revision
            if run.opened is not None:
                run.gpu_use_last_s = told.get((run.opened.job_id, run.opened.restart), run.gpu_use_last_s)
            if run.over and run.revision == revision:
                self._forget(key)

    def trim(self, now_s: float) -> None:
        """Keep the spool, and the runs in memory that wait for the controller, within their bound."""
        surplus = len(self.runs) - self._most_files
        if surplus > 0:
            for run in [run for run in self.runs.values() if run.over][:surplus]:
                self._forget(run.key)
            self._fault(now_s, f"too much waits for the controller: {surplus} oldest runs dropped")
        try:
            removed = self._spool.trim(self._most_files)
        except OSError as error:
            self._fault(now_s, f"spool cannot be listed: {error}")
            return
        if removed:
            self._fault(now_s, f"spool is full: {removed} oldest records dropped; is the controller reachable?")
            self._known &= set(self._spool.names())

    def _enter(self, event: RunEvent, now_s: float) -> NodeRun | None:
        for text in event.faults:
            self._fault(now_s, text)
        if event.key in self._done:
            return None
        record = event.record
        if isinstance(record, JobClosed):
            return self._close(event, record)
        run = self.runs.get(event.key) or self._add_run(event.key)
        if run.opened is None:
            run.opened = record
            run.usage = run.usage or RunUsage(first_s=record.at_s, last_s=record.at_s, gpu_last_s=record.at_s)
            run.seen_s = now_s
            run.revision += 1
        for other in self._runs_of_job[run.key.job_id]:
            if other.key.start_s < run.key.start_s and not other.over:
                other.over = True
                other.revision += 1
        return run

    def _close(self, event: RunEvent, record: JobClosed) -> NodeRun:
        run = self.runs.get(event.key) or self._only_open_run(event.key)
        if run is None:
            run = self._add_run(event.key)
            run.over = True
        if run.closed is None:
            # A requeued job's epilog already has the next restart count: the opening knows the true one.
            restart = run.opened.restart if run.opened else record.restart
            run.closed = JobClosed(record.job_id, restart, record.node, record.at_s, record.exit_code)
            run.revision += 1
        run.epilog_cpu_s = max(run.epilog_cpu_s, event.cpu_s)
        if run.usage:
            run.usage.memory_peak_mib = max(run.usage.memory_peak_mib, event.memory_mib)
        if run.over:
            self.end(run)
        return run

    def _only_open_run(self, key: RunKey) -> NodeRun | None:
        """The job's open run, for an epilog of a job whose start was not reported."""
        found = [run for run in self._runs_of_job.get(key.job_id, ()) if run.closed is None]
        return found[0] if len(found) == 1 and 0 in (key.start_s, found[0].key.start_s) else None

    def _add_run(self, key: RunKey) -> NodeRun:
        run = self.runs[key] = NodeRun(key)
        self._runs_of_job.setdefault(key.job_id, []).append(run)
        return run

    def _adopt_one(self, name: str, now_s: float) -> NodeRun | None:
        job_id, start_s, kind = split_record_name(name)
        line = self._spool.read(name)
        if kind != "usage":
            event = parse_run_event(line)
            if event.key.job_id != job_id:
                raise RecordError(f"it is about job {event.key.job_id}")
            entered = self._enter(event, now_s)
            if entered is None:
                self._known.discard(name)
                self._spool.remove(name)
            return entered
        run = self.runs.get(RunKey(job_id, start_s))
        if run is None:
            raise RecordError("its opening is missing")
        run.usage = RunUsage.from_line(line)
        run.revision += 1
        return None

    def _forget(self, key: RunKey) -> None:
        run = self.runs.pop(key)
        if run.closed is not None:  # the close of a lost run may still come
            self._done.append(key)
        left = [other for other in self._runs_of_job.pop(key.job_id) if other is not run]
        if left:
            self._runs_of_job[key.job_id] = left
        for kind in KINDS:
            name = record_name(key.job_id, key.start_s, kind)
            self._spool.remove(name)
            self._known.discard(name)
            self._events_reported.discard((key, kind))

    def _fault(self, now_s: float, text: str) -> None:
        self._faults.add(now_s, text)


def _as_many_as_fit(runs: Sequence[NodeRun]) -> Sequence[NodeRun]:
    """The first of these runs, at least one, so many that the controller takes a report about all of them."""
    gpus = 0
    for at, run in enumerate(runs[:MAX_RUNS_PER_REPORT]):
        gpus += len(run.usage.gpus) if run.usage is not None else 0
        if gpus > MAX_GPUS_PER_REPORT and at:
            return runs[:at]
    return runs[:MAX_RUNS_PER_REPORT]


def _is_transient(error: Exception) -> bool:
    """It says something about this moment, nothing about the file."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in _TRANSIENT_ERRORS


def _run_of_file(name: str) -> tuple[int, int]:
    job_id, start_s, _ = split_record_name(name)
    return job_id, start_s


def _reading_order(name: str) -> tuple[int, int, int]:
    """Older runs first; within a run the opening, the sums, then the closing."""
    job_id, start_s, kind = split_record_name(name)
    return start_s, job_id, ("open", "usage", "close").index(kind)
