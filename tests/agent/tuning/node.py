"""A node in a test: a clock that is set, jobs with known curves on a mounted stand-in for cpusets or on cores of paper."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from slurm_soda.agent.cpusets.core_limits import CoreRange
from slurm_soda.agent.cpusets.errors import CoresError, JobGoneError
from slurm_soda.agent.job_events.run_event import RunKey
from slurm_soda.agent.reporting.core_messages import CoreMessages
from slurm_soda.agent.reporting.run_records import NodeRun
from slurm_soda.agent.resource_controller import NodeSample
from slurm_soda.agent.sampling.gpus import GpuReading
from slurm_soda.agent.settings.core_tuning import CoreTuningSettings
from slurm_soda.agent.tuning.tuning_controller import CoreTuningController
from slurm_soda.wire.records import JobOpened

Curve = Callable[[int], float]
"""Utilisation by cores."""


@dataclass
class PaperCores:
    """Cores that exist on paper: what CoreSets answers, without a kernel under it."""

    rooms: dict[int, CoreRange] = field(default_factory=dict)
    wanted: dict[int, int] = field(default_factory=dict)
    refuses: set[int] = field(default_factory=set)
    unseen: set[int] = field(default_factory=set)
    set_to: list[tuple[int, int]] = field(default_factory=list)

    def core_range(self, job_id: int) -> CoreRange:
        if job_id not in self.rooms or job_id in self.unseen:
            raise JobGoneError(f"job {job_id} does not run here")
        return self.rooms[job_id]

    def limit(self, job_id: int, cores: int, holder: str) -> int:
        self.core_range(job_id)
        if job_id in self.refuses:
            raise CoresError(f"job {job_id}: the kernel says no")
        self.wanted[job_id] = cores
        self.set_to.append((job_id, cores))
        return cores

    def restore(self, job_id: int, holder: str) -> None:
        """A job that is not seen gets its cores back when it is."""
        self.wanted.pop(job_id, None)

    def has(self, job_id: int) -> int:
        return self.wanted.get(job_id, self.rooms[job_id].start)


@dataclass
class Job:
    """A training with a curve."""

    run: NodeRun
    curve: Curve
    noise: float = 0.0
    """Standard deviation of one sample, as a share of it."""


@dataclass
class Node:
    """One node, its controller and its jobs."""

    path: Path
    settings: CoreTuningSettings = field(default_factory=lambda: CoreTuningSettings(enabled=True))
    cores: PaperCores = field(default_factory=PaperCores)
    seed: int = 0

    def __post_init__(self) -> None:
        self.now_s = 5_000.0
        self.booted_s = 1_000_000.0
        self.core_messages = CoreMessages()
        self.jobs: dict[int, Job] = {}
        self.random = random.Random(self.seed)
        self.faults: list[str] = []
        self.start_agent()

    def start_agent(self) -> None:
        """A fresh agent over what the one before left on disk; the cpusets' controller gives all cores back first."""
        self.cores.wanted.clear()
        self.core_messages = CoreMessages()
        self.resource_controller = CoreTuningController(
            self.settings, self.path / "tuning.json", self.cores, self.core_messages
        )  # type: ignore[arg-type]
        self.faults += self.resource_controller.recover(self.now_s)

    def add(
        self,
        job_id: int,
        curve: Curve,
        *,
        room: CoreRange,
        gpus: Iterable[int] = (0,),
        noise: float = 0.0,
        nodes: int = 1,
    ) -> Job:
        opened = JobOpened(
            job_id, 0, "n1", 1000, "alice", "gpu", self.unix_s, tuple(gpus), room.limit, nodes=nodes
        )  # fmt: skip
        self.cores.rooms[job_id] = room
        self.jobs[job_id] = Job(NodeRun(RunKey(job_id, int(self.unix_s)), opened), curve, noise)
        return self.jobs[job_id]

    def end(self, job_id: int) -> None:
        del self.jobs[job_id]
        del self.cores.rooms[job_id]

    @property
    def unix_s(self) -> float:
        """The time of day; the other clock began with the machine."""
        return self.now_s + self.booted_s

    def util(self, job_id: int) -> float:
        return self.jobs[job_id].curve(self.cores.has(job_id))

    def turn(self) -> None:
        gpus: dict[int, GpuReading] = {}
        for job_id, job in self.jobs.items():
            assert job.run.opened is not None
            ratio = self.util(job_id) * (1 + job.noise * self.random.gauss(0.0, 1.0))
            gpus |= {gpu: GpuReading(min(max(ratio, 0.0), 1.0), 1000.0) for gpu in job.run.opened.gpus}
        sample = NodeSample(self.now_s, tuple(job.run for job in self.jobs.values()), gpus, unix_s=self.unix_s)
        self.faults += self.resource_controller.turn(sample)

    def pass_time(self, seconds: float) -> None:
        """Turns at the agent's pace of two seconds, or as the controller wants them."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.turn()
            self.now_s += min(2.0, self.resource_controller.interval_s)

    def until(self, condition: Callable[[], bool], most_s: float = 3600.0) -> None:
        end_s = self.now_s + most_s
        while not condition():
            assert self.now_s < end_s, "it does not come"
            self.pass_time(1.0)

    def tuned(self, job_id: int, fits: int = 1) -> None:
        """Until so many searches of the job ended."""
        self.until(lambda: len([fit for fit in self.core_messages.fits if fit.job_id == job_id]) >= fits)
