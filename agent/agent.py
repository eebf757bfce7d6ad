"""The agent: samples the runs of its node, takes events from prolog and epilog, and reports to the controller."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_soda.agent.job_events.event_socket import EventSocket
from slurm_soda.agent.job_events.hook_variables import event_line_from_variables
from slurm_soda.agent.job_events.run_event import parse_run_event
from slurm_soda.agent.mps.mps_news import MpsNews
from slurm_soda.agent.reporting.core_messages import CoreMessages
from slurm_soda.agent.reporting.node_use import NodeUseReader
from slurm_soda.agent.reporting.recent_faults import RecentFaults
from slurm_soda.agent.reporting.report_sender import ReportSender, within
from slurm_soda.agent.reporting.run_records import NodeRun, RunRecords
from slurm_soda.agent.reporting.upload import Backoff, Uploader
from slurm_soda.agent.resource_controller import NodeSample, ResourceController
from slurm_soda.agent.sampling.cpu_time import CpuReader
from slurm_soda.agent.sampling.gpus import GpuReading, Gpus
from slurm_soda.agent.sampling.progress_files import ProgressFiles
from slurm_soda.agent.sampling.run_progress import RunProgress
from slurm_soda.agent.sampling.sm_use import SmUseCounter
from slurm_soda.agent.settings.agent_config import AgentConfig
from slurm_soda.wire.errors import RecordError, SpoolError
from slurm_soda.wire.memory_bandwidth import NodeBandwidth
from slurm_soda.wire.records import JobOpened
from slurm_soda.wire.systemd import SystemdNotifier
from slurm_soda.wire.walls import NodeWalls

log = logging.getLogger("soda-agent")

REBOOTED_LOST_AFTER_S = 30.0
"""A run from before the node's last start cannot be alive; time for a clock that is being set."""

SHORTEST_PAUSE_S = 0.05
"""No controller can have samples faster than this."""

GAP_INTERVALS = 3.0
"""A GPU reading stands for at most so many intervals before it."""


@dataclass(slots=True)
class AgentDependencies:
    """What an agent works with; tests give it others."""

    clock: Callable[[], float]
    """The time of day, for what is reported and kept."""
    steady: Callable[[], float]
    """A clock that nobody sets back, for everything that lasts."""
    run_records: RunRecords
    cpu: CpuReader
    gpus: Gpus
    progress: ProgressFiles
    sm_use: SmUseCounter
    uploader: Uploader
    backoff: Backoff
    faults: RecentFaults
    environ: Mapping[str, str]
    booted_s: float
    """When this node last started."""
    resource_controllers: tuple[ResourceController, ...] = ()
    """Take their turns in this order after each sample."""
    core_messages: CoreMessages = field(default_factory=CoreMessages)
    """What they report to sodad."""
    mps: MpsNews = field(default_factory=MpsNews)
    """As well, of NVIDIA MPS."""
    walls: Callable[[], NodeWalls] | None = None
    """Looks at the hooks for each report."""
    bandwidth: Callable[[], NodeBandwidth | None] = lambda: None
    """The node's memory bandwidth, where it is measured."""


class Agent:
    """One node's agent. All of it runs in one event loop; nothing blocks it but the sampling itself."""

    def __init__(self, config: AgentConfig, parts: AgentDependencies) -> None:
        self._config = config
        self._parts = parts
        self._notifier = SystemdNotifier(parts.environ)
        self._use = NodeUseReader(self._counts)
        self._reports = ReportSender(
            config,
            parts.clock,
            run_records=parts.run_records,
            core_messages=parts.core_messages,
            mps=parts.mps,
            walls=parts.walls,
            bandwidth=parts.bandwidth,
            use=self._use,
            faults=parts.faults,
            gpus=parts.gpus,
            uploader=parts.uploader,
            backoff=parts.backoff,
        )
        self._resample = asyncio.Event()
        self._clock_ahead_s = parts.clock() - parts.steady()
        """By how much the clock was ahead of the steady one at the last look."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set, then report once more.

        Raises:
            EventSocketError: the socket for prolog and epilog cannot be opened.
        """
        event_socket = EventSocket(self._config.socket, self.receive_event, self._resample.set)
        await event_socket.start()
        now_s = self._parts.steady()
        self._ask_controllers("recover", lambda resource_controller: resource_controller.recover(now_s))
        self._notifier.ready()
        log.info("agent of node %s reports to %s", self._reports.node, self._config.controller)
        loops = (self._sample_forever(), self._reports.send_forever())
        jobs: list[asyncio.Task[None]] = [asyncio.create_task(loop) for loop in loops]
        stopping = asyncio.create_task(_until(stop))
        try:
            await asyncio.wait([*jobs, stopping], return_when=asyncio.FIRST_COMPLETED)
            for job in jobs:
                if job.done():
                    job.result()  # a loop that ends has failed: let systemd start the agent anew
        finally:
            self._notifier.stopping()
            for job in (*jobs, stopping):
                job.cancel()
            await asyncio.gather(*jobs, stopping, return_exceptions=True)
            await event_socket.stop()
            try:
                self.sample(gpus=False)
            finally:  # whatever failed, no job stays limited
                self._ask_controllers("close", lambda resource_controller: resource_controller.close())
                await self._reports.send_last()
                self._parts.gpus.close()

    def receive_event(self, line: bytes) -> str:
        """Take one event of prolog or epilog; gives the reason why not, or empty text."""
        self._follow_clock()
        now_s = self._parts.clock()
        try:
            line = event_line_from_variables(line)
            event = parse_run_event(line)
            run = self._parts.run_records.take(event, line, now_s)
        except (RecordError, SpoolError) as error:
            self._fault(str(error))
            return str(error)
        if isinstance(event.record, JobOpened) and run is not None and run.usage is not None:
            self._parts.run_records.save(run, now_s)
            self._prepare_progress(event.record)
        return ""

    def sample(self, *, gpus: bool = True) -> None:
        """Take one reading of every run, those that are closed get their last one; then the controllers take their turns."""
        self._follow_clock()
        now_s = self._parts.clock()
        run_records = self._parts.run_records
        for run in run_records.adopt(now_s):
            if run.opened is not None and not run.over:
                self._prepare_progress(run.opened)
        runs = run_records.active()
        self._parts.cpu.read(runs, now_s)
        self._read_progress(runs, now_s)
        unread = [run for run in runs if run.usage is not None and run.usage.gpu_covered_s == 0]
        under_way = [run for run in runs if run.closed is None]
        readings = self._read_gpus(under_way if gpus else unread, now_s)
        self._parts.sm_use.count(under_way, self._parts.steady())
        for run in runs:
            if run.closed is not None:
                run_records.end(run)
            elif self._lost(run, now_s):
                run_records.end(run)
                self._fault(f"job {run.key.job_id}: its processes are gone and no epilog reported its end")
            if run.over and run.opened is not None:
                self._parts.progress.remove(run.opened)
            run_records.save(run, now_s)
        self._parts.progress.clean(run.opened for run in run_records.active() if run.opened is not None)
        sample = self._sample([run for run in runs if not run.over], readings)
        self._use.note(sample, whole=gpus)
        self._ask_controllers("turn", lambda resource_controller: resource_controller.turn(sample))
        if run_records.has_unreported() or self._parts.core_messages or self._parts.mps:
            self._reports.news.set()
            run_records.trim(now_s)

    def sample_gpus(self, within_s: float) -> None:
        """Read the GPUs alone, for controllers that want a turn at least so often."""
        runs = [run for run in self._parts.run_records.active() if run.closed is None]
        sample = self._sample(runs, self._readings(runs))
        self._use.note(sample, whole=True)
        self._ask_controllers(
            "turn",
            lambda resource_controller: (
                resource_controller.turn(sample) if resource_controller.interval_s <= within_s else ()
            ),
        )

    def _sample(self, runs: Sequence[NodeRun], readings: Mapping[int, GpuReading]) -> NodeSample:
        return NodeSample(self._parts.steady(), tuple(runs), readings, unix_s=self._parts.clock())

    def _counts(self) -> Sequence[Mapping[str, int]]:
        """What the controllers limit now."""
        counts: list[Mapping[str, int]] = []

        def count(resource_controller: ResourceController) -> Sequence[str]:
            counts.append(resource_controller.counts())
            return ()

        self._ask_controllers("count", count)
        return counts

    def _ask_controllers(self, what: str, ask: Callable[[ResourceController], Sequence[str]]) -> None:
        """Have every controller do one thing. One that fails must take neither the others nor the reports with it."""
        for resource_controller in self._parts.resource_controllers:
            try:
                faults = ask(resource_controller)
            except Exception as error:  # see above; it is tried again at its next turn
                faults = [f"{type(resource_controller).__module__}: {what} failed: {type(error).__name__}: {error}"]
                log.debug("%s", faults[0], exc_info=True)
            for fault in faults:
                self._fault(fault)

    async def upload(self) -> bool:
        """Send one report; says whether more news waits.

        Raises:
            UploadError: the controller did not take it.
        """
        return await self._reports.send()

    def _follow_clock(self) -> None:
        """When somebody has set the clock, no run shall seem unseen for hours, nor seen in the future."""
        ahead_s = self._parts.clock() - self._parts.steady()
        for run in self._parts.run_records.active():
            run.seen_s += ahead_s - self._clock_ahead_s
        self._clock_ahead_s = ahead_s

    def _lost(self, run: NodeRun, now_s: float) -> bool:
        rebooted = run.opened is not None and run.opened.at_s < self._parts.booted_s
        return now_s - run.seen_s > (REBOOTED_LOST_AFTER_S if rebooted else self._config.lost_after_s)

    def _readings(self, runs: list[NodeRun]) -> dict[int, GpuReading]:
        now_s = self._parts.steady()
        self._parts.gpus.open(now_s)
        indices = {index for run in runs if run.opened for index in run.opened.gpus}
        readings = self._parts.gpus.read(sorted(indices), now_s) if indices else {}
        if indices and self._parts.gpus.fault:  # a node without GPUs has no driver either: no fault
            self._fault(self._parts.gpus.fault)
        return readings

    def _read_gpus(self, runs: list[NodeRun], now_s: float) -> dict[int, GpuReading]:
        readings = self._readings(runs)
        longest_gap_s = GAP_INTERVALS * self._config.interval_s
        for run in runs:
            if run.opened is None or run.usage is None:
                continue
            own = {i: readings[i] for i in run.opened.gpus if i in readings}
            if own:
                util_ratio = sum(gpu.util_ratio for gpu in own.values()) / len(own)
                run.usage.add_gpus(now_s, util_ratio, sum(gpu.memory_mib for gpu in own.values()), longest_gap_s)
                run.usage.add_each_gpu(now_s, own, longest_gap_s)
        return readings

    def _prepare_progress(self, opened: JobOpened) -> None:
        if fault := self._parts.progress.prepare(opened):
            self._fault(fault)

    def _read_progress(self, runs: Sequence[NodeRun], now_s: float) -> None:
        steady_s = self._parts.steady()
        for run in runs:
            line = self._parts.progress.read(run.opened) if run.opened is not None else None
            if line is None:
                continue
            if run.progress is None:
                run.progress = RunProgress.begun(line, now_s, steady_s)
            else:
                run.progress.take(line, now_s, steady_s, GAP_INTERVALS * self._config.interval_s)

    async def _sample_forever(self) -> None:
        gpus = True
        while True:
            self._resample.clear()
            self.sample(gpus=gpus)
            self._notifier.alive()
            gpus = not await self._rest(self._pause_s())

    async def _rest(self, pause_s: float) -> bool:
        """Until the next sample; controllers with shorter intervals run meanwhile. Says whether an event cut it short."""
        end_s = time.monotonic() + pause_s
        while True:
            left_s = end_s - time.monotonic()
            hurry_s = max(
                min(
                    (resource_controller.interval_s for resource_controller in self._parts.resource_controllers),
                    default=left_s,
                ),
                SHORTEST_PAUSE_S,
            )
            if hurry_s >= left_s:
                return await within(self._resample, left_s)
            if await within(self._resample, hurry_s):
                return True
            self.sample_gpus(hurry_s)

    def _pause_s(self) -> float:
        now_s = self._parts.clock()
        young = any(
            0
            <= now_s - run.opened.at_s
            < self._config.young_s  # a run of the future began before the clock was set back
            for run in self._parts.run_records.active()
            if run.opened is not None
        )
        return self._config.young_interval_s if young else self._config.interval_s

    def _fault(self, text: str) -> None:
        if self._parts.faults.add(self._parts.clock(), text):
            log.warning("%s", text)


async def _until(event: asyncio.Event) -> None:
    await event.wait()
