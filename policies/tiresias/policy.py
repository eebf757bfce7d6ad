"""Discretised 2D-LAS and 2D-Gittins, whole (Sections 3.2.2 and 3.2.3, Pseudocodes 1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slurm_soda.policies.engine.demand import Demand, group_snapshot_requests
from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.engine.plan_builder import build_plan, find_rankable_rows, rank_rows
from slurm_soda.policies.engine.preemption import PreemptivePass, find_preemptible
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.session.ranking import Ranking
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, IntColumn, JobState, JobTable
from slurm_soda.policies.tiresias.consolidation import place_by_skew
from slurm_soda.policies.tiresias.gittins import GittinsTable, compute_gittins_index
from slurm_soda.policies.tiresias.queues import assign_queues, find_next_change_s, find_starving
from slurm_soda.policies.tiresias.ranking import GittinsRanking, QueueRanking

DEFAULT_THRESHOLDS_GPU_S = (8000.0,)
"""Two queues: jobs up to a little more than two GPU hours, and the rest.

The paper leaves the choice open (Section 3.2.3) and uses one threshold of 3 200 GPU s in its testbed (Section 5.1), whose
jobs take 2 minutes to 2 hours. This one was chosen on real traces, see docs/policies/tiresias.md.
"""
START, SMALL, SUBMIT = "start", "small", "submit"
WITHIN_QUEUE = (START, SMALL, SUBMIT)
"""Who goes first inside a queue: ``start``: by first start, as the paper says; ``small``: so in the first queue, but
below it the jobs of the fewest GPUs, those that run before those that wait, then by first start; ``submit``: by submit
time alone, as Pollux' simulator runs Tiresias (jobs then preempt later ones of their own queue)."""


@dataclass(frozen=True, slots=True, eq=False)
class Tiresias:
    """Least attained service first, in queues; 2D-LAS without ``samples_gpu_s``, 2D-Gittins with them.

    Attributes:
        name: ``tiresias-las`` or ``tiresias-gittins``.
        thresholds_gpu_s: ascending upper limits of all queues but the last, in GPU seconds.
        within_queue: one of :data:`WITHIN_QUEUE`; with ``samples_gpu_s`` it decides between equal indices.
        promote_knob: a job that waited this many times as long as it ran starts over; infinity: never.
        min_run_s: a job is not preempted before it has run so long since its last start.
        samples_gpu_s: total service of past jobs, ascending; empty: order as 2D-LAS (Pseudocode 1, line 2).
        packlimit: jobs whose models are more skewed are packed on the fewest nodes, those that are less fill holes
            (PACKLIMIT, Section 3.3.2); infinity: all are placed alike.
    """

    name: str = "tiresias-las"
    thresholds_gpu_s: tuple[float, ...] = DEFAULT_THRESHOLDS_GPU_S
    within_queue: str = SMALL
    promote_knob: float = float("inf")
    min_run_s: float = 60.0
    samples_gpu_s: FloatColumn = field(default_factory=lambda: np.zeros(0))
    packlimit: float = float("inf")

    @property
    def preempts_by_rank(self) -> bool:
        """Jobs that have run long enough make way."""
        return True

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """Order, place, preempt. GPU jobs take their turn first, jobs without GPUs get what is left."""
        jobs = snapshot.jobs
        queue = assign_queues(jobs.attained_gpu_s, self.thresholds_gpu_s)
        promoted = find_starving(jobs, queue, self.promote_knob)
        attained = np.where(promoted, 0.0, jobs.attained_gpu_s)
        queue = np.where(promoted, 0, queue)
        index = self._index(attained, queue)
        on_gpus, on_cpus = self._two_passes(snapshot, queue, index)
        placing = PlacementPass(snapshot, self._demand(snapshot))
        preempts = PreemptivePass(placing, on_gpus, find_preemptible(snapshot, self.min_run_s)).run()
        placing.start_fitting(on_cpus, skip=True)
        return build_plan(
            placing,
            self.name,
            np.concatenate((on_gpus, on_cpus)),
            score=attained if index is None else index,
            score_name="attained_gpu_s" if index is None else "gittins_index_per_gpu_s",
            queue=queue,
            preempts=preempts,
            promoted=np.flatnonzero(promoted),
            next_event_s=find_next_change_s(
                snapshot,
                placing.verdict,
                queue,
                thresholds_gpu_s=self.thresholds_gpu_s,
                promote_knob=self.promote_knob,
                min_run_s=self.min_run_s,
            ),
        )

    def ranking(self) -> Ranking | None:
        """The same order over single jobs; ``None`` with promotion, which depends on how long jobs waited, or placement."""
        if self.promote_knob != float("inf") or self.packlimit != float("inf"):
            return None
        shared: dict[str, Any] = {
            "thresholds_gpu_s": self.thresholds_gpu_s,
            "min_run_s": self.min_run_s,
            "within_queue": self.within_queue,
        }
        if len(self.samples_gpu_s):
            return GittinsRanking(**shared, table=GittinsTable(self.samples_gpu_s))
        return QueueRanking(**shared)

    def _demand(self, snapshot: ClusterSnapshot) -> Demand:
        demand = group_snapshot_requests(snapshot)
        if self.packlimit == float("inf"):
            return demand
        return place_by_skew(demand, snapshot.jobs, snapshot.nodes, self.packlimit)

    def _index(self, attained: FloatColumn, queue: IntColumn) -> FloatColumn | None:
        """Gittins index of each job with its queue's upper limit as quantum; 0 in the last queue, which is FIFO."""
        if not len(self.samples_gpu_s):
            return None
        last = len(self.thresholds_gpu_s)
        quantum = np.append(np.array(self.thresholds_gpu_s), np.inf)[queue]
        return np.where(queue == last, 0.0, compute_gittins_index(attained, quantum, self.samples_gpu_s))

    def _two_passes(
        self, snapshot: ClusterSnapshot, queue: IntColumn, index: FloatColumn | None
    ) -> tuple[IntColumn, IntColumn]:
        """Rows of GPU jobs by queue, Gittins index and the order within a queue; then of other jobs by submission.

        Ties go to the earlier submission, then to the smaller job id.
        """
        jobs = snapshot.jobs
        rows = find_rankable_rows(snapshot)
        on_gpus = jobs.gpus[rows] > 0
        waits = jobs.state == JobState.PENDING
        first_start = _first_start(jobs, snapshot.now_s)
        within = {
            START: [first_start, waits],
            SMALL: [np.where(queue > 0, jobs.gpus, 0), waits, first_start],
            SUBMIT: [],
        }[self.within_queue]
        keys = [queue, *([] if index is None else [-index]), *within, jobs.submit_s]
        return rank_rows(jobs, rows[on_gpus], *keys), rank_rows(jobs, rows[~on_gpus], jobs.submit_s)


def _first_start(jobs: JobTable, now_s: float) -> FloatColumn:
    """A job that never ran counts as starting now: behind all that have run, by submit time among its like.

    So a newcomer never preempts a job of its own queue (Section 3.2.3 warns of ordering by submit time).
    """
    first = np.where(np.isnan(jobs.first_start_s), jobs.start_s, jobs.first_start_s)
    return np.where(np.isnan(first), now_s, first)
