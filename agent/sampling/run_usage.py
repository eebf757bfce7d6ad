"""Adds up what one run uses on this node. The sums survive a restart of the agent: they are kept in the spool."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

from slurm_soda.agent.sampling.gpu_use import GpuUseSums
from slurm_soda.agent.sampling.gpus import GpuReading
from slurm_soda.wire.gpu_use import MAX_GPU_USES, RunGpuUse
from slurm_soda.wire.json_fields import JsonFields, decode_json
from slurm_soda.wire.records import MAX_CO_RUNNERS, MAX_SM_USES, JobOpened, JobUsage, SmUse
from slurm_soda.wire.spool import MAX_FILE_BYTES

MAX_COUNTERS = 64
"""CPU counters kept apart; a run with more (thousands of steps) has its gone ones folded into one sum."""


@dataclass(slots=True)
class RunUsage:
    """The sums of one run, cumulative since its opening. Times are Unix seconds."""

    first_s: float
    last_s: float
    """Up to when its CPU time is told. A clock that is set back costs one interval: this does not go back, as sodad takes
    what is newer only.
    """
    read_s: float = -1.0
    """What the clock said at the last reading; negative: as :attr:`last_s`."""
    samples: int = 0
    gpu_last_s: float = 0.0
    """When the GPUs were last read."""
    gpu_covered_s: float = 0.0
    """Time that GPU readings stand for."""
    gpu_busy_s: float = 0.0
    """:attr:`gpu_covered_s`, each second times the utilisation in it."""
    gpu_util_last_ratio: float = 0.0
    gpu_memory_peak_mib: float = 0.0
    memory_peak_mib: float = 0.0
    cpu_source: str = ""
    cpu_gone_s: float = 0.0
    """CPU seconds of counters that are gone."""
    counters: dict[str, float] = field(default_factory=dict)
    """Last value of every CPU counter (a cgroup, a step's process tree) by its identity."""
    sm_uses: list[SmUse] = field(default_factory=list)
    """Since it first computed; the last one is of now."""
    gpus: dict[int, GpuUseSums] = field(default_factory=dict)
    """Each GPU by itself, by index."""

    @property
    def cpu_s(self) -> float:
        """CPU seconds so far."""
        return self.cpu_gone_s + sum(self.counters.values())

    def since_read_s(self, now_s: float) -> float:
        """Seconds since its CPU counters were last read."""
        return max(now_s - (self.last_s if self.read_s < 0 else self.read_s), 0.0)

    @property
    def gpu_use_last_s(self) -> float:
        """Up to when each GPU is told. A node's clock may be set back: this does not, as sodad takes what is newer only."""
        return self.first_s + max((sums.at_s for sums in self.gpus.values()), default=0.0)

    def add_gpus(self, now_s: float, util_ratio: float, memory_mib: float, longest_gap_s: float) -> None:
        """Take one reading of all GPUs of the run: their mean utilisation and summed memory.

        It stands for the time since the reading before, but for ``longest_gap_s`` at most: nobody knows what the GPUs
        did while no agent was there.
        """
        step_s = min(max(now_s - self.gpu_last_s, 0.0), longest_gap_s)
        self.gpu_last_s = now_s
        self.gpu_covered_s += step_s
        self.gpu_busy_s += util_ratio * step_s
        self.gpu_util_last_ratio = util_ratio
        self.gpu_memory_peak_mib = max(self.gpu_memory_peak_mib, memory_mib)

    def add_each_gpu(self, now_s: float, readings: Mapping[int, GpuReading], longest_gap_s: float) -> None:
        """Take the same reading GPU by GPU, by index."""
        for index, reading in readings.items():
            if index not in self.gpus:
                if len(self.gpus) >= MAX_GPU_USES:
                    continue
                self.gpus[index] = GpuUseSums(read_s=self.first_s)
            self.gpus[index].take(reading, now_s, longest_gap_s)

    def add_sm_use(self, co_runners: tuple[int, ...], covered_s: float, used_ratio: float) -> None:
        """Take one reading of what its processes used of its GPUs' time while they had these co-runners."""
        if len(co_runners) > MAX_CO_RUNNERS:
            return
        known = next((one for one in self.sm_uses if one.co_runners == co_runners), SmUse(co_runners))
        others = [one for one in self.sm_uses if one is not known][-(MAX_SM_USES - 1) :]
        sums = known.covered_s + covered_s, known.busy_s + covered_s * used_ratio
        self.sm_uses = [*others, SmUse(co_runners, *(round(one, 3) for one in sums))]

    def add_cpu(self, now_s: float, source: str, counters: dict[str, float], memory_mib: float) -> float:
        """Take one reading of the run's CPU counters; the CPU seconds that it added are returned."""
        before_s = self.cpu_s
        for name, value in counters.items():
            self.counters[name] = max(value, self.counters.get(name, 0.0))
        if len(self.counters) > MAX_COUNTERS:
            for name in [name for name in self.counters if name not in counters]:
                self.cpu_gone_s += self.counters.pop(name)
        self.memory_peak_mib = max(self.memory_peak_mib, memory_mib)
        self.cpu_source = source
        self.samples += 1
        self._advance(now_s)
        return self.cpu_s - before_s

    def add_unaccounted_cpu_s(self, now_s: float, cpu_s: float) -> None:
        """Take CPU seconds that belong to the run although its own counters were gone before they could be read."""
        self.cpu_gone_s += cpu_s
        self._advance(now_s)

    def _advance(self, now_s: float) -> None:
        self.last_s, self.read_s = self.last_s + self.since_read_s(now_s), now_s

    def record(self, opened: JobOpened) -> JobUsage:
        """The sums as the controller wants them."""
        covered_s = self.gpu_covered_s
        return JobUsage(
            job_id=opened.job_id,
            restart=opened.restart,
            node=opened.node,
            first_s=self.first_s,
            last_s=round(self.last_s, 3),
            samples=self.samples,
            gpu_util_ratio=min(1.0, round(self.gpu_busy_s / covered_s, 4)) if covered_s > 0 else 0.0,
            gpu_util_last_ratio=self.gpu_util_last_ratio,
            gpu_memory_peak_mib=round(self.gpu_memory_peak_mib, 1),
            gpu_count=len(opened.gpus),
            cpu_s=round(self.cpu_s, 3),
            memory_peak_mib=round(self.memory_peak_mib, 2),
            cpu_source=self.cpu_source,
            sm_uses=tuple(self.sm_uses),
        )

    def gpu_record(self, opened: JobOpened) -> RunGpuUse | None:
        """Each GPU as the controller wants it; ``None`` while none was read."""
        if not self.gpus:
            return None
        uses = tuple(self.gpus[index].record(index) for index in sorted(self.gpus))
        return RunGpuUse(opened.job_id, opened.restart, opened.node, self.first_s, round(self.gpu_use_last_s, 3), uses)

    def to_line(self) -> bytes:
        """One JSON line for the spool."""
        sums = {spec.name: getattr(self, spec.name) for spec in fields(self)}
        sums["sm_uses"] = [asdict(use) for use in self.sm_uses]
        sums["gpus"] = [use.to_spool(index) for index, use in self.gpus.items()]
        return json.dumps({"kind": "usage", **sums}, separators=(",", ":")).encode("ascii") + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> RunUsage:
        """Take up the sums where an earlier agent left them.

        Raises:
            RecordError: the line holds no sums.
        """
        data = decode_json(line, MAX_FILE_BYTES, "spooled usage")
        read = JsonFields("spooled usage", data)
        counters = JsonFields("spooled counters", data.get("counters", {}) if isinstance(data, dict) else {})
        names = list(data["counters"]) if isinstance(data, dict) and data.get("counters") else []
        return cls(
            first_s=read.number("first_s"),
            last_s=read.number("last_s"),
            read_s=read.number("read_s", -1.0, default=-1.0),
            samples=read.whole("samples", 0, 1 << 40),
            gpu_last_s=read.number("gpu_last_s"),
            gpu_covered_s=read.number("gpu_covered_s"),
            gpu_busy_s=read.number("gpu_busy_s"),
            gpu_util_last_ratio=read.number("gpu_util_last_ratio", 0, 1),
            gpu_memory_peak_mib=read.number("gpu_memory_peak_mib"),
            memory_peak_mib=read.number("memory_peak_mib"),
            cpu_source=read.text("cpu_source", 32),
            cpu_gone_s=read.number("cpu_gone_s"),
            counters={name: counters.number(name) for name in names},
            sm_uses=[SmUse.from_dict(item) for item in read.objects("sm_uses", MAX_SM_USES)],
            gpus=dict(GpuUseSums.from_spool(item) for item in read.objects("gpus", MAX_GPU_USES)),
        )
