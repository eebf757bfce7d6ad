"""The agent's part for memory bandwidth: samples, has the eliminator decide, and has the limit enforcer carry it out."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from slurm_soda.agent.contention.bandwidth import BandwidthRates
from slurm_soda.agent.contention.limit_enforcer import CoreLimiter, LimitEnforcer
from slurm_soda.agent.contention.resctrl import Resctrl, ResctrlError
from slurm_soda.agent.contention.resctrl_features import ResctrlFeatures
from slurm_soda.agent.resource_controller import NodeSample
from slurm_soda.agent.sampling.job_processes import JobProcesses
from slurm_soda.agent.settings.memory import MemorySettings
from slurm_soda.policies.node_limits.contention_sample import ContentionSample as Reading
from slurm_soda.policies.node_limits.contention_sample import CpuJob, GpuJob
from slurm_soda.policies.node_limits.eliminator import EliminatorState, LimitAction, decide_limits
from slurm_soda.policies.node_limits.thresholds import ContentionThresholds
from slurm_soda.wire.memory_bandwidth import NodeBandwidth
from slurm_soda.wire.records import JobOpened

log = logging.getLogger("soda-agent")

RECORD = "memory.json"
"""File in the state directory: what may be limited."""
MBA_STEPS = (60, 40, 20, 10)
MBA_RETRY_AFTER_S = 60.0
"""After the node had no control group left, cores are halved instead for so long before MBA is tried again."""
MEAN_OVER = 10
"""Samples whose mean is reported."""
LEARNED_FLOOR = ContentionThresholds().learned_floor_bytes_per_s
_EARLIEST_TURN_RATIO = 0.8
"""A turn that comes earlier than this part of the interval is somebody else's: it is passed over."""


class MemoryBandwidthController:
    """Holds CPU jobs back that fill the memory beside GPU jobs (SODA, Section V-E)."""

    def __init__(
        self,
        settings: MemorySettings,
        state: Path,
        job_processes: JobProcesses,
        cores: CoreLimiter,
        held: Callable[[int], int] = lambda _: 0,
    ) -> None:
        """``held``: cores that a job is limited to now; a GPU job whose cores are changed works at another level."""
        self._settings = settings
        self._path = state / RECORD
        self._job_processes = job_processes
        self._cores = cores
        self._held = held
        self._held_before: dict[int, int] = {}
        self._enforcer: LimitEnforcer | None = None
        self._state = EliminatorState()
        self._busy = False
        """CPU and GPU jobs are both here, or groups of theirs still are."""
        self._last_s = -math.inf
        self._full_until_s = -math.inf
        self._said: list[str] = []
        self._used: deque[float] = deque(maxlen=MEAN_OVER)
        """Bytes a second of the last samples, while the node is watched."""

    @property
    def interval_s(self) -> float:
        """While CPU and GPU jobs are both here."""
        return self._settings.sample_s if self._busy else math.inf

    def bandwidth(self) -> NodeBandwidth | None:
        """For sodad; None: it is not measured now, or nobody knows what the node has."""
        whole = self._settings.node_bytes_per_s
        if not whole and self._state.peak_bytes_per_s >= LEARNED_FLOOR:
            whole = self._state.peak_bytes_per_s
        if not self._used or not whole:
            return None
        used = sum(self._used) / len(self._used)
        return NodeBandwidth(used / 1e9, self._settings.over_ratio * whole / 1e9)

    def recover(self, now_s: float) -> Sequence[str]:
        """Take back what an agent before this one left, also where this one is not to limit anything."""
        if not self._settings.enabled and not self._path.exists():
            return ()
        try:
            enforcer = LimitEnforcer(Resctrl(Path(self._settings.resctrl)), self._cores, self._path, self._said.append)
        except (ResctrlError, OSError) as error:
            return (f"memory: nothing is limited: {error}",)
        enforcer.recover()
        self._enforcer = enforcer
        if self._settings.enabled:
            self._state = EliminatorState(peak_bytes_per_s=enforcer.peak_bytes_per_s)
            self._said += _shortcomings(enforcer.features, watches=self._settings.watch_utilisation)
        return self._tell()

    def turn(self, sample: NodeSample) -> Sequence[str]:
        """One sample: measure, decide, limit or release."""
        enforcer = self._enforcer
        if enforcer is None:
            return ()
        jobs = {run.key.job_id: run.opened for run in sample.runs if run.opened is not None}
        cpu = {job_id: job for job_id, job in jobs.items() if not job.gpus}
        gpu = {job_id: job for job_id, job in jobs.items() if job.gpus}
        off = not self._settings.enabled or sample.has_left_out
        if not cpu or not gpu or off or not self._can_decide(enforcer.features):
            self._rest(enforcer)
            return self._tell()
        if self._busy and sample.now_s - self._last_s < _EARLIEST_TURN_RATIO * self._settings.sample_s:
            return ()
        self._busy, self._last_s = True, sample.now_s
        threads = self._job_processes.threads(tuple(cpu.values()))
        enforcer.refresh(threads)
        self._unlearn(gpu)
        reading = _contention_sample(self._measured(enforcer, sample.now_s), cpu, gpu, sample)
        decision = decide_limits(reading, self._state, self._limits(enforcer.features, sample.now_s))
        self._state = decision.state
        self._carry_out(enforcer, decision.actions, threads, sample.now_s)
        return self._tell()

    def close(self) -> Sequence[str]:
        """Take everything back: nobody would release what is limited."""
        if self._enforcer is not None:
            self._enforcer.close()
        self._busy = False
        self._used.clear()
        return self._tell()

    def _measured(self, enforcer: LimitEnforcer, now_s: float) -> BandwidthRates | None:
        rates = enforcer.sample(now_s)
        if rates is not None and rates.complete:
            self._used.append(rates.node)
        return rates

    def counts(self) -> Mapping[str, int]:
        """CPU jobs that are throttled, or have fewer cores for their memory traffic."""
        return {"jobs_with_less_memory_bandwidth": 0 if self._enforcer is None else self._enforcer.limited_jobs}

    def _rest(self, enforcer: LimitEnforcer) -> None:
        """Without CPU jobs nobody is at fault, without GPU jobs nobody suffers: everything goes, at the next try at last."""
        if self._busy or enforcer.holds:
            enforcer.refresh({})
            self._state = EliminatorState(peak_bytes_per_s=enforcer.peak_bytes_per_s)
            self._busy = False
            self._used.clear()

    def _unlearn(self, gpu: Collection[int]) -> None:
        """Forget the stable level of GPU jobs whose cores somebody has just changed."""
        held = {job_id: self._held(job_id) for job_id in gpu}
        self._state = self._state.without_stable_levels(
            [j for j in gpu if held[j] != self._held_before.get(j, held[j])]
        )
        self._held_before = held

    def _carry_out(
        self,
        enforcer: LimitEnforcer,
        actions: Collection[LimitAction],
        threads: Mapping[int, Collection[int]],
        now_s: float,
    ) -> None:
        refusals = enforcer.carry_out(actions, threads)
        for refused in refusals:
            self._state = self._state.without(refused.job_id)
            if refused.full:
                self._full_until_s = now_s + MBA_RETRY_AFTER_S
        for action in actions:
            if action.job_id not in {refused.job_id for refused in refusals}:
                log.info("memory: %s", action)

    def _can_decide(self, features: ResctrlFeatures) -> bool:
        return bool(features.event) or self._settings.watch_utilisation

    def _limits(self, features: ResctrlFeatures, now_s: float) -> ContentionThresholds:
        settings = self._settings
        full = now_s < self._full_until_s
        return ContentionThresholds(
            mba_steps=features.throttle.steps(MBA_STEPS) if features.throttle and not full else (),
            monitored=bool(features.event),
            node_bytes_per_s=settings.node_bytes_per_s,
            domain_bytes_per_s=settings.socket_bytes_per_s,
            over_ratio=settings.over_ratio,
            release_ratio=settings.release_ratio,
        )

    def _tell(self) -> tuple[str, ...]:
        faults = tuple(f"memory: {fault}" for fault in self._said)
        self._said.clear()
        return faults


def _shortcomings(features: ResctrlFeatures, *, watches: bool) -> list[str]:
    if not features.missing:
        return []
    if features.event:
        return [f"{features.missing}: the cores of CPU jobs are halved instead"]
    return [f"{features.missing}: {'the utilisation of GPUs is watched instead' if watches else 'nothing is limited'}"]


def _contention_sample(
    rates: BandwidthRates | None, cpu: Mapping[int, JobOpened], gpu: Mapping[int, JobOpened], sample: NodeSample
) -> Reading:
    """What the eliminator sees of this moment."""
    measured = rates.jobs if rates else {}
    reading = Reading(
        cpu_jobs=tuple(CpuJob(j, job.cpus, measured.get(j)) for j, job in sorted(cpu.items())),
        gpu_jobs=tuple(GpuJob(j, _utilisation(job, sample)) for j, job in sorted(gpu.items())),
        complete=False,
    )
    if rates is None:
        return reading
    fullest = max(rates.domains.values(), default=0.0)
    return replace(reading, node_bytes_per_s=rates.node, domain_bytes_per_s=fullest, complete=rates.complete)


def _utilisation(job: JobOpened, sample: NodeSample) -> float | None:
    own = [sample.gpus[index].util_ratio for index in job.gpus if index in sample.gpus]
    return sum(own) / len(own) if own else None
