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
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.outcome import Outcome
from slurm_soda.simulator.speed.model import SpeedModel
from slurm_soda.simulator.workload import Workload

Progress = Callable[[int, int], None]
"""Called now and then with the number of jobs that ended, and of all jobs."""

_PROGRESS_EVERY = 1000
_MANY_IN_VAIN, _EACH_IN_VAIN = 1000, 10
"""Preemptions on end without progress, in all and for each job, after which a run is taken to go on so for ever."""
_MANY_DECISIONS = 1000
"""Who wants to be asked so often in a row, while no event tells anything new, may never be content."""
_INSTANT_S = 1e-3
"""So many decisions in less than this time, without an event in between, are made at one instant."""


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
        SimulatorError: the engine or placement asked for cannot run this; a node fails that the cluster lacks; a speed
            is not positive; a policy changes its mind at one instant again and again.
    """
    started_s = time.process_time()
    loop = Loop(workload, costs or Costs(), speed)
    decider = choose_decider(
        engine, policy, workload, cluster, loop.costs, placement=placement, speeds=speed is not None
    )
    loop.run(decider, policy.name, cluster, progress)
    return loop.outcome(policy.name, cluster, time.process_time() - started_s)


class Loop:
    """State of all jobs and the clock."""

    def __init__(self, workload: Workload, costs: Costs, speed: SpeedModel | None) -> None:
        self.workload, self.costs, self._speed = workload, costs, speed
        self._round_s = costs.round_s
        self._cpus = workload.cpus.tolist()
        self._restart_s = (workload.restart_s + costs.restart_s).tolist()
        self._left_s: list[float] = workload.run_s.tolist()
        jobs = len(workload)
        self._jobs = _records(workload)
        self._turn = [0] * jobs
        """Runs and stops of each job so far: an end or a leave that was planned in an earlier turn is void."""
        self._end_s = [math.nan] * jobs
        self._preemptions = [0] * jobs
        self._failures = [0] * jobs
        self._ends: list[tuple[float, int, int]] = []
        self._leaves: list[tuple[float, int, int, float]] = []
        """When a preempted job leaves, its row and turn, and until when it made progress."""
        self._holds = bytearray(jobs)
        """Which jobs hold resources."""
        self._outages: dict[int, int] = {}
        """Failures of each node that last, since one may begin before, or as, another one ends."""
        self._record = Record()
        self._in_vain = 0
        """Preemptions since any job made progress."""
        self._decisions = 0
        self._ended = 0

    def run(self, decider: Decider, policy: str, cluster: Cluster, progress: Progress | None) -> None:
        """Let time pass until nothing is left to happen."""
        submits_s = [*self.workload.submit_s.tolist(), INFINITY]
        nodes = _node_events(cluster)
        ends, leaves, jobs, arrived = self._ends, self._leaves, self._jobs, 0
        decide_s, quiet, quiet_since_s = INFINITY, 0, 0.0
        while True:
            now_s = min(submits_s[arrived], nodes[-1][0], decide_s)
            if ends and ends[0][0] < now_s:
                now_s = ends[0][0]
            if leaves and leaves[0][0] < now_s:
                now_s = leaves[0][0]
            if now_s == INFINITY:
                return
            happened = False
            while ends and ends[0][0] == now_s:
                happened |= self._end(heappop(ends), decider, progress)
            while leaves and leaves[0][0] == now_s:
                happened |= self._leave(heappop(leaves), decider)
            while nodes[-1][0] == now_s:
                happened |= self._turn_node(nodes.pop(), decider)
            while submits_s[arrived] == now_s:
                decider.submit(jobs[arrived])
                arrived += 1
                happened = True
            if happened:
                quiet, quiet_since_s = 0, now_s
                decide_s = min(decide_s, self._next_round_s(now_s))
            if decide_s <= now_s:
                quiet += 1
                if quiet % _MANY_DECISIONS == 0:
                    _check_progress(policy, quiet_since_s, now_s)
                    quiet_since_s = now_s
                    if submits_s[arrived] == nodes[-1][0] == INFINITY and not ends and not leaves:
                        return
                self._decide(decider, now_s)
                decide_s = self._next_round_s(decider.next_event_s())

    def _next_round_s(self, wanted_s: float) -> float:
        """The first round from a time on; that time itself where it misses a round by rounding."""
        if not self._round_s or wanted_s == INFINITY:
            return wanted_s
        return max(math.ceil(wanted_s / self._round_s) * self._round_s, wanted_s)

    def _end(self, event: tuple[float, int, int], decider: Decider, progress: Progress | None) -> bool:
        end_s, row, turn = event
        if self._turn[row] != turn:
            return False
        job = self._jobs[row]
        self._turn[row] += 1
        self._left_s[row] = 0.0
        self._end_s[row] = end_s
        self._in_vain = 0
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
        if not ratio > 0.0:
            raise SimulatorError(f"job {self.workload.label[row]} would run at speed {ratio!r}; use a ratio above 0")
        self._turn[row] += 1
        self._holds[row] = True
        job.start_s = now_s
        job.resumes_s, job.resumed, job.speed_ratio = now_s + cost_s, not cost_s, ratio
        heappush(self._ends, (now_s + cost_s + self._left_s[row] / ratio, row, self._turn[row]))

    def _preempt(self, job: SessionJob, now_s: float, decider: Decider) -> None:
        row = job.job_id - 1
        self._preemptions[row] += 1
        self._turn[row] += 1
        leave = (now_s + self.costs.checkpoint_s, row, self._turn[row], now_s)
        if self.costs.checkpoint_s:
            _with_nodes(decider).leaving(job)
            heappush(self._leaves, leave)
        else:
            self._leave(leave, decider)

    def _leave(self, event: tuple[float, int, int, float], decider: Decider) -> bool:
        leave_s, row, turn, saved_s = event
        if self._turn[row] != turn:
            return False
        job = self._jobs[row]
        self._save_progress(job, row, saved_s)
        self._stop_clock(job, row, leave_s)
        decider.stopped(job)
        return True

    def _save_progress(self, job: SessionJob, row: int, now_s: float) -> None:
        done_s = max(now_s - job.resumes_s, 0.0) * job.speed_ratio
        self._in_vain = 0 if done_s else self._in_vain + 1
        if self._in_vain > _MANY_IN_VAIN + _EACH_IN_VAIN * len(self._jobs):
            raise SimulatorError(
                f"at {now_s:.0f} s jobs have been preempted {self._in_vain} times on end before they made any progress: "
                "a start costs more time than the policy leaves a job; give it a longer min_run_s or quantum_s, or a lower "
                "restart cost"
            )
        self._left_s[row] = max(self._left_s[row] - done_s, 0.0)
        job.remaining_s = max(job.remaining_s - done_s, 0.0)

    def _stop_clock(self, job: SessionJob, row: int, until_s: float) -> None:
        self._holds[row] = False
        held_s = until_s - job.start_s
        job.executed_s += held_s
        job.attained_gpu_s += held_s * job.gpus
        self._record.add(row, job.start_s, until_s, (job.gpus, self._cpus[row]), job.pieces)

    def _turn_node(self, event: tuple[float, int, bool], decider: Decider) -> bool:
        """A node fails, and its jobs lose the progress of their present run; or it comes back. O(jobs)."""
        now_s, node, up = event
        for row, job in enumerate(self._jobs):
            if self._holds[row] and not up and any(piece.node == node for piece in job.pieces):
                self._failures[row] += 1
                self._turn[row] += 1
                self._stop_clock(job, row, now_s)
                decider.stopped(job)
        self._outages[node] = self._outages.get(node, 0) + (-1 if up else 1)
        _with_nodes(decider).set_usable(node, not self._outages[node])
        return True

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


def _node_events(cluster: Cluster) -> list[tuple[float, int, bool]]:
    """Times, rows of nodes and whether they come back then, latest first; a node's failures go before its returns.

    The first is never.

    Raises:
        SimulatorError: a failure that cannot be.
    """
    events: list[tuple[float, int, bool]] = [(INFINITY, len(cluster), True)]
    for failure in cluster.failures:
        if not (0 <= failure.node < len(cluster) and failure.down_s <= failure.up_s):
            raise SimulatorError(
                f"{failure} cannot be: node is a row from 0 to {len(cluster) - 1}, and down_s must not be after up_s"
            )
        events.append((failure.down_s, failure.node, False))
        if failure.up_s < INFINITY:
            events.append((failure.up_s, failure.node, True))
    return sorted(events, reverse=True)


def _check_progress(policy: str, since_s: float, now_s: float) -> None:
    if now_s - since_s < _INSTANT_S:
        raise SimulatorError(
            f"policy {policy} does not come to rest at {now_s:g} s: it decides anew time and again although nothing "
            "happens; give it other parameters, such as a longer min_run_s"
        )


def _with_nodes(decider: Decider) -> NodeDecider:
    assert isinstance(decider, NodeDecider)
    return decider
