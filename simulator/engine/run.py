"""The event loop: arrivals, ends and decisions in the order of time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from heapq import heappop, heappush

import numpy as np
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.session.ranking import INFINITY, SessionJob
from slurm_soda.simulator.cluster import Cluster
from slurm_soda.simulator.engine.choice import choose_decider
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.decider import Decider, NodeDecider
from slurm_soda.simulator.engine.record import Record
from slurm_soda.simulator.outcome import Outcome
from slurm_soda.simulator.speed.model import SpeedModel
from slurm_soda.simulator.workload import Workload

Progress = Callable[[int, int], None]
"""Called now and then with the number of jobs that ended, and of all jobs."""

_PROGRESS_EVERY = 1000


def simulate(
    workload: Workload,
    cluster: Cluster,
    policy: Policy,
    *,
    costs: Costs | None = None,
    speed: SpeedModel | None = None,
    placement: str = "policy",
    engine: str = "auto",
    progress: Progress | None = None,
) -> Outcome:
    """Run a workload on a virtual cluster under a policy, until nothing can happen any more.

    Args:
        workload: the jobs.
        cluster: the nodes, and when they fail.
        policy: any policy; what it was told about run times is ``workload.expected_s``.
        costs: overheads; none by default.
        speed: how fast a job runs where it was placed; by default as fast as its trace says.
        placement: one of :data:`~slurm_soda.simulator.engine.choice.PLACEMENTS`.
        engine: one of :data:`~slurm_soda.simulator.engine.choice.ENGINES`.
        progress: told how far the run is.

    The same arguments give the same outcome, to the bit (``cpu_s`` apart).

    Raises:
        SimulatorError: the engine or placement asked for cannot run this.
    """
    started_s = time.process_time()
    loop = Loop(workload, costs or Costs(), speed)
    decider = choose_decider(
        engine, policy, workload, cluster, loop.costs, placement=placement, speeds=speed is not None
    )
    loop.run(decider, cluster, progress)
    return loop.outcome(policy.name, cluster, time.process_time() - started_s)


class Loop:
    """State of all jobs and the clock."""

    def __init__(self, workload: Workload, costs: Costs, speed: SpeedModel | None) -> None:
        self.workload, self.costs, self._speed = workload, costs, speed
        self._cpus = workload.cpus.tolist()
        self._restart_s = (workload.restart_s + costs.restart_s).tolist()
        self._left_s: list[float] = workload.run_s.tolist()
        jobs = len(workload)
        self._jobs = _records(workload)
        self._turn = [0] * jobs
        """Runs and stops of each job so far: an end that was planned in an earlier turn is void."""
        self._end_s = [math.nan] * jobs
        self._preemptions = [0] * jobs
        self._failures = [0] * jobs
        self._ends: list[tuple[float, int, int]] = []
        self._leaves: list[tuple[float, int]] = []
        self._record = Record()
        self._decisions = 0
        self._ended = 0

    def run(self, decider: Decider, cluster: Cluster, progress: Progress | None) -> None:
        """Let time pass until nothing is left to happen."""
        submits_s = [*self.workload.submit_s.tolist(), INFINITY]
        nodes = sorted(
            [(f.down_s, f.node, False) for f in cluster.failures] + [(f.up_s, f.node, True) for f in cluster.failures],
            reverse=True,
        )
        ends, leaves, jobs, arrived = self._ends, self._leaves, self._jobs, 0
        decide_s = INFINITY
        while True:
            now_s = min(submits_s[arrived], decide_s)
            if ends and ends[0][0] < now_s:
                now_s = ends[0][0]
            if leaves and leaves[0][0] < now_s:
                now_s = leaves[0][0]
            if nodes and nodes[-1][0] < now_s:
                now_s = nodes[-1][0]
            if now_s == INFINITY:
                return
            happened = False
            while ends and ends[0][0] == now_s:
                happened |= self._end(heappop(ends), decider, progress)
            while leaves and leaves[0][0] == now_s:
                decider.stopped(jobs[heappop(leaves)[1]])
                happened = True
            while nodes and nodes[-1][0] == now_s:
                self._turn_node(nodes.pop(), decider)
                happened = True
            while submits_s[arrived] == now_s:
                decider.submit(jobs[arrived])
                arrived += 1
                happened = True
            if happened:
                decide_s = min(decide_s, self._next_round_s(now_s))
            if decide_s <= now_s:
                self._decide(decider, now_s)
                decide_s = self._next_round_s(decider.next_event_s())

    def _next_round_s(self, wanted_s: float) -> float:
        round_s = self.costs.round_s
        return wanted_s if not round_s or wanted_s == INFINITY else math.ceil(wanted_s / round_s) * round_s

    def _end(self, event: tuple[float, int, int], decider: Decider, progress: Progress | None) -> bool:
        end_s, row, turn = event
        if self._turn[row] != turn:
            return False
        job = self._jobs[row]
        self._turn[row] += 1
        self._left_s[row] = 0.0
        self._end_s[row] = end_s
        self._stop_clock(job, row, end_s)
        decider.end(job)
        self._ended += 1
        if progress is not None and self._ended % _PROGRESS_EVERY == 0:
            progress(self._ended, len(self._jobs))
        return True

    def _decide(self, decider: Decider, now_s: float) -> None:
        self._decisions += 1
        preempts, starts = decider.decide(now_s)
        for job in preempts:
            self._preempt(job, now_s, decider)
        for job, pieces in starts:
            job.pieces = pieces
            self._start(job, now_s)
            decider.started(job)

    def _start(self, job: SessionJob, now_s: float) -> None:
        row = job.job_id - 1
        if job.first_start_s == INFINITY:
            job.first_start_s = now_s
            cost_s = self.costs.start_s
        else:
            cost_s = self._restart_s[row]
        ratio = 1.0 if self._speed is None else self._speed.ratio(row, job.pieces)
        self._turn[row] += 1
        job.start_s = now_s
        job.resumes_s, job.resumed, job.speed_ratio = now_s + cost_s, not cost_s, ratio
        heappush(self._ends, (now_s + cost_s + self._left_s[row] / ratio, row, self._turn[row]))

    def _preempt(self, job: SessionJob, now_s: float, decider: Decider) -> None:
        row = job.job_id - 1
        self._preemptions[row] += 1
        self._save_progress(job, row, now_s)
        self._turn[row] += 1
        if self.costs.checkpoint_s:
            self._stop_clock(job, row, now_s + self.costs.checkpoint_s)
            _with_nodes(decider).leaving(job)
            heappush(self._leaves, (now_s + self.costs.checkpoint_s, row))
        else:
            self._stop_clock(job, row, now_s)
            decider.stopped(job)

    def _save_progress(self, job: SessionJob, row: int, now_s: float) -> None:
        done_s = max(now_s - job.resumes_s, 0.0) * job.speed_ratio
        self._left_s[row] -= done_s
        job.remaining_s = max(job.remaining_s - done_s, 0.0)

    def _stop_clock(self, job: SessionJob, row: int, until_s: float) -> None:
        held_s = until_s - job.start_s
        job.executed_s += held_s
        job.attained_gpu_s += held_s * job.gpus
        self._record.add(row, job.start_s, until_s, (job.gpus, self._cpus[row]), job.pieces)

    def _turn_node(self, event: tuple[float, int, bool], decider: Decider) -> None:
        """A node fails, and its jobs lose the progress of their present run; or it comes back."""
        now_s, node, up = event
        for row, job in enumerate(self._jobs):
            running = self._turn[row] % 2 and math.isnan(self._end_s[row])
            if running and not up and any(piece.node == node for piece in job.pieces):
                self._failures[row] += 1
                self._turn[row] += 1
                self._stop_clock(job, row, now_s)
                decider.stopped(job)
        _with_nodes(decider).set_usable(node, up)

    def outcome(self, policy: str, cluster: Cluster, cpu_s: float) -> Outcome:
        """What was found."""
        first_start_s = np.array([job.first_start_s for job in self._jobs], dtype=np.float64)
        segments = self._record.segments()
        return Outcome(
            policy=policy,
            workload=self.workload,
            cluster=cluster,
            first_start_s=np.where(np.isinf(first_start_s), np.nan, first_start_s),
            end_s=np.array(self._end_s, dtype=np.float64),
            held_s=np.bincount(
                segments.job, weights=segments.end_s - segments.start_s, minlength=len(self._jobs)
            ).astype(np.float64),
            preemptions=np.array(self._preemptions, dtype=np.int64),
            failures=np.array(self._failures, dtype=np.int64),
            segments=segments,
            decisions=self._decisions,
            cpu_s=cpu_s,
        )


def _records(workload: Workload) -> list[SessionJob]:
    expected_s = np.where(np.isnan(workload.expected_s), INFINITY, workload.expected_s)
    columns = (workload.submit_s, workload.gpus, expected_s, workload.preemptible)
    return [
        SessionJob(row + 1, submit_s=submit_s, gpus=gpus, remaining_s=remaining_s, preemptible=preemptible)
        for row, (submit_s, gpus, remaining_s, preemptible) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        )
    ]


def _with_nodes(decider: Decider) -> NodeDecider:
    assert isinstance(decider, NodeDecider)
    return decider
