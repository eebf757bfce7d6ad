"""Time slices in turn, as Gandiva shares a cluster that is asked for more than it has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.engine.plan_builder import build_plan, find_rankable_rows, rank_rows
from slurm_soda.policies.engine.preemption import PreemptivePass, find_preemptible
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, JobState

QUANTUM_S = 60.0
"""About a minute: long against the second or so that Gandiva takes to suspend a job (OSDI 2018, Section 4.1)."""
_ROUNDING = 1e-6
"""Part of a slice by which a time may fall short of a boundary and still count as past it."""
_ROUNDING_S = 1e-3
"""Times this close are one instant: what a job waited is a sum of many runs."""


@dataclass(frozen=True, slots=True)
class Gandiva:
    """Round robin: at the end of a slice those who have waited longest take the places of those who run longest.

    Slices begin and end for the whole cluster at multiples of ``quantum_s`` on the clock, so that gangs find many GPUs
    at once (Xiao et al., Gandiva, OSDI 2018, suspend and resume).

    Attributes:
        quantum_s: length of a slice.
    """

    quantum_s: float = QUANTUM_S

    @property
    def name(self) -> str:
        return "gandiva"

    @property
    def preempts_by_rank(self) -> bool:
        """Jobs that have run long enough make way."""
        return True

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """O(n log n) in jobs, then as :class:`.preemption.PreemptivePass`. Jobs without GPUs get what is left."""
        jobs, now_s = snapshot.jobs, snapshot.now_s
        slice_now = float(self._slice(np.array(now_s)))
        over: BoolColumn = self._slice(jobs.start_s) < slice_now
        rows = find_rankable_rows(snapshot)
        waits = jobs.state == JobState.PENDING
        # Whoever runs beyond its slice went back to the end of the line when the slice ended, behind those who waited,
        # but before those who were preempted at that instant: they had their turn.
        ended_s = min(now_s, slice_now * self.quantum_s)
        since_s = now_s - jobs.waited_s
        since_s = np.where(np.abs(since_s - ended_s) < _ROUNDING_S, ended_s, since_s)
        in_line_since = np.where(waits, since_s, np.where(over, ended_s, -np.inf))
        newest_first = np.where(waits, jobs.submit_s, -jobs.start_s)
        keys = (in_line_since, waits, newest_first, np.where(waits, 0.0, jobs.executed_s))
        on_gpus, on_cpus = (
            rank_rows(jobs, rows[jobs.gpus[rows] > 0], *keys),
            rank_rows(jobs, rows[jobs.gpus[rows] == 0], jobs.submit_s),
        )
        placing = PlacementPass(snapshot)
        preempts = PreemptivePass(placing, on_gpus, find_preemptible(snapshot, 0.0) & over).run()
        placing.start_fitting(on_cpus, skip=True)
        lacks = np.isin(placing.verdict, (JobVerdict.WAIT, JobVerdict.WAIT_FOR_PREEMPTION, JobVerdict.PREEMPT)) & (
            jobs.gpus > 0
        )
        return build_plan(
            placing,
            self.name,
            np.concatenate((on_gpus, on_cpus)),
            score=jobs.waited_s,
            score_name="waited_s",
            preempts=preempts,
            next_event_s=(slice_now + 1.0) * self.quantum_s if lacks.any() else float("inf"),
        )

    def _slice(self, time_s: FloatColumn) -> FloatColumn:
        """Number of the slice that a time falls into; NaN for NaN."""
        return np.floor(time_s / self.quantum_s + _ROUNDING)
