"""The event loop: arrivals, ends and decisions in the order of time."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import cast

from slurm_soda.policies.session.ranking import INFINITY, SessionJob
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.deciders.protocols import AdjustableDecider, Decider, NodeDecider
from slurm_soda.simulator.engine.initial_events import list_node_events, make_session_jobs
from slurm_soda.simulator.engine.job_progress import JobProgress
from slurm_soda.simulator.engine.outcome_recorder import OutcomeRecorder
from slurm_soda.simulator.engine.preemption_log import PreemptionLog
from slurm_soda.simulator.engine.request_rewriter import RequestRewriter
from slurm_soda.simulator.engine.runtime_effects import RuntimeEffects
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.speed.speed_model import SpeedModel
from slurm_soda.simulator.workload import Workload

JobProgressCallback = Callable[[int, int], None]
"""Called now and then with the number of jobs that ended, and of all jobs."""

_PROGRESS_EVERY = 1000
_DECISIONS_PER_REST_CHECK = 1000
"""Who wants to be asked so often in a row, while no event changes anything, may never end."""
_INSTANT_S = 1e-3
"""So many decisions in less than this time, without an event in between, are made at one instant."""


class EventLoop:
    """State of all jobs and the clock."""

    def __init__(
        self,
        workload: Workload,
        costs: Costs,
        speed: SpeedModel | None,
        effects: RuntimeEffects | None,
        preemptions: PreemptionLog | None = None,
    ) -> None:
        self.workload, self.costs, self._speed, self._effects = workload, costs, speed, effects
        self._preemptions = preemptions
        self._round_s = costs.round_s
        self._cpus = workload.cpus.tolist()
        self.requests: RequestRewriter | None = None
        """Where requests are rewritten, if they are."""
        self._restart_s = (workload.restart_s + costs.restart_s).tolist()
        self._progress = JobProgress(workload, costs)
        self._left_s = self._progress.left_s
        jobs = len(workload)
        self._jobs = make_session_jobs(workload)
        self._turn = [0] * jobs
        """Runs and stops of each job so far: an end or a leave that was planned in an earlier turn is void."""
        self._ends: list[tuple[float, int, int]] = []
        self._leaves: list[tuple[float, int, int, float]] = []
        """When a job leaves that was preempted or failed to start, its row and turn, and until when it made progress."""
        self._holds = bytearray(jobs)
        """Which jobs hold resources."""
        self._leaving: set[int] = set()
        """Jobs that hold resources without progress until they leave: preempted ones, and those whose seats were revoked."""
        self._revoked: set[int] = set()
        """The latter of them."""
        self._outages: dict[int, int] = {}
        """Failures of each node that last, since one may begin before, or as, another one ends."""
        self._record = OutcomeRecorder(workload)
        self._ended = 0

    def run(
        self, decider: Decider, policy: str, cluster: SimulatedCluster, progress: JobProgressCallback | None
    ) -> None:
        """Let time pass until nothing is left to happen."""
        submits_s = [*self.workload.submit_s.tolist(), INFINITY]
        nodes = list_node_events(cluster)
        ends, leaves, jobs, effects, arrived = self._ends, self._leaves, self._jobs, self._effects, 0
        decide_s, quiet, quiet_since_s = INFINITY, 0, 0.0
        while True:
            soon_s = self._next_s()
            now_s = min(submits_s[arrived], nodes[-1][0], decide_s, soon_s)
            if now_s == INFINITY:
                return
            happened = self._events(now_s, decider, progress) if soon_s == now_s else False
            while nodes[-1][0] == now_s:
                happened |= self._turn_node(nodes.pop(), decider)
            while submits_s[arrived] == now_s:
                self._rewrite(jobs[arrived])
                decider.submit(jobs[arrived])
                arrived += 1
                happened = True
            if happened:
                quiet, quiet_since_s = 0, now_s
                decide_s = min(decide_s, self._next_round_s(now_s))
            if decide_s <= now_s:
                quiet += 1
                if quiet % _DECISIONS_PER_REST_CHECK == 0:
                    _check_clock_advances(policy, quiet_since_s, now_s)
                    quiet_since_s = now_s
                    if submits_s[arrived] == nodes[-1][0] == INFINITY and not ends and not leaves:
                        return
                self._decide(decider, now_s)
                decide_s = self._next_round_s(decider.next_event_s())
            if effects is not None:
                self._repace(effects, now_s, decider)

    def _next_s(self) -> float:
        """When the next job ends or leaves, or something changes around one."""
        soon_s = self._ends[0][0] if self._ends else INFINITY
        if self._leaves:
            soon_s = min(soon_s, self._leaves[0][0])
        return soon_s if self._effects is None else min(soon_s, self._effects.next_s())

    def _events(self, now_s: float, decider: Decider, progress: JobProgressCallback | None) -> bool:
        """Jobs end and leave, then what is around them changes; whether the policy should be asked."""
        ends, leaves, happened = self._ends, self._leaves, False
        while ends and ends[0][0] == now_s:
            happened |= self._end(heappop(ends), decider, progress)
        while leaves and leaves[0][0] == now_s:
            happened |= self._leave(heappop(leaves), decider)
        self._revoke_guests(now_s, decider)
        return happened if self._effects is None else self._adjust(self._effects, now_s, decider) or happened

    def _next_round_s(self, wanted_s: float) -> float:
        """The first round from a time on; that time itself where it misses a round by rounding."""
        if not self._round_s or wanted_s == INFINITY:
            return wanted_s
        if round(wanted_s / self._round_s) * self._round_s == wanted_s:
            return wanted_s  # its quotient may be a bit more than a whole number
        return max(math.ceil(wanted_s / self._round_s) * self._round_s, wanted_s)

    def _end(self, event: tuple[float, int, int], decider: Decider, progress: JobProgressCallback | None) -> bool:
        end_s, row, turn = event
        if self._turn[row] != turn:
            return False
        job = self._jobs[row]
        self._turn[row] += 1
        self._progress.end(row)
        self._record.end_s[row] = end_s
        self._stop_clock(job, row, end_s)
        decider.end(job)
        self._ended += 1
        if progress is not None and self._ended % _PROGRESS_EVERY == 0:
            progress(self._ended, len(self._jobs))
        return True

    def _decide(self, decider: Decider, now_s: float) -> None:
        self._record.decisions += 1
        preempts, starts = decider.decide(now_s)
        for job in preempts:
            self._preempt(job, now_s, decider)
        self._revoke_guests(now_s, decider)
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
        if self._preemptions is not None:
            self._preemptions.started(job, row, now_s, cost_s)
        if self._effects is not None:
            cost_s += self._effects.start_delay_s(row)
            self._progress.begin(job, row)
            self._effects.started(row, job.pieces, now_s, now_s + cost_s)
        ratio = self._ratio(job, now_s)
        self._turn[row] += 1
        self._holds[row] = True
        job.start_s = now_s
        job.resumes_s, job.resumed, job.speed_ratio = now_s + cost_s, not cost_s, ratio
        if self._effects is not None and self._effects.fails(row):
            heappush(self._leaves, (now_s + cost_s, row, self._turn[row], now_s))
        else:
            heappush(self._ends, (now_s + cost_s + self._left_s[row] / ratio, row, self._turn[row]))

    def _ratio(self, job: SessionJob, now_s: float) -> float:
        row = job.job_id - 1
        ratio = 1.0 if self._speed is None else self._speed.ratio(row, job.pieces)
        if self._effects is not None:
            ratio *= self._effects.pace(row, now_s)
        if not ratio > 0.0:
            raise SimulatorError(f"job {self.workload.label[row]} would run at speed {ratio!r}; use a ratio above 0")
        return ratio

    def _rewrite(self, job: SessionJob) -> None:
        """A job begins to wait: it may ask for other cores than in its trace."""
        row = job.job_id - 1
        cpus = None if self._effects is None else self._effects.request(row)
        if cpus is not None and self.requests is not None:
            self._cpus[row] = cpus
            self.requests.rewrite(job, cpus)

    def _adjust(self, effects: RuntimeEffects, now_s: float, decider: Decider) -> bool:
        """Jobs get other cores or another speed; whether cores became free."""
        freed = False
        for row, pieces in effects.due(now_s):
            job, before = self._jobs[row], self._jobs[row].pieces
            job.pieces = pieces
            self._cpus[row] = sum(piece.cpus for piece in pieces)
            self._pace(job, now_s)
            _adjustable(decider).changed(job, before)
            freed |= any(new.cpus < old.cpus for old, new in zip(before, pieces, strict=True))
        return freed

    def _repace(self, effects: RuntimeEffects, now_s: float, decider: Decider) -> None:
        """Jobs whose neighbours came or went run at another speed."""
        for row in effects.take_affected():
            job = self._jobs[row]
            self._pace(job, now_s)
            _adjustable(decider).changed(job, job.pieces)

    def _pace(self, job: SessionJob, now_s: float) -> None:
        """A running job goes on at another speed."""
        row, ratio = job.job_id - 1, self._ratio(job, now_s)
        if ratio == job.speed_ratio or row in self._leaving:
            return
        self._progress.advance(job, row, now_s)
        job.resumes_s, job.speed_ratio = max(job.resumes_s, now_s), ratio
        self._turn[row] += 1
        heappush(self._ends, (job.resumes_s + self._left_s[row] / ratio, row, self._turn[row]))

    def _preempt(self, job: SessionJob, now_s: float, decider: Decider) -> None:
        self._record.preemptions[job.job_id - 1] += 1
        if self._preemptions is not None:
            self._preemptions.preempted(job.job_id - 1)
        self._vacate(job, now_s, self.costs.checkpoint_s, decider)

    def _revoke_guests(self, now_s: float, decider: Decider) -> None:
        """Guests whose hosts are gone lose their seats, and so do their guests."""
        while self._effects is not None and (revoked := self._effects.take_revoked()):
            for row, vacate_s in revoked:
                if self._holds[row] and row not in self._leaving:
                    self._revoked.add(row)
                    self._vacate(self._jobs[row], now_s, vacate_s, decider)

    def _vacate(self, job: SessionJob, now_s: float, after_s: float, decider: Decider) -> None:
        """A job makes no more progress, and leaves so much later."""
        row = job.job_id - 1
        self._turn[row] += 1
        leave = (now_s + after_s, row, self._turn[row], now_s)
        if after_s:
            _with_nodes(decider).leaving(job)
            self._leaving.add(row)
            heappush(self._leaves, leave)
        else:
            self._leave(leave, decider)

    def _leave(self, event: tuple[float, int, int, float], decider: Decider) -> bool:
        leave_s, row, turn, saved_s = event
        if self._turn[row] != turn:
            return False
        job = self._jobs[row]
        if row in self._revoked and self._effects is not None:
            self._revoked.remove(row)
            self._effects.revoked(row, self._progress.lose(job, row, saved_s))
        elif job.gpus:
            lost_s = self._progress.save(job, row, saved_s)
            if self._preemptions is not None:
                self._preemptions.left(row, self.costs.checkpoint_s, lost_s)
        else:  # aborted, since it held cores that were lent to it: CPU jobs save nothing (SODA, Section V-C)
            self._progress.lose(job, row, saved_s)
        self._stop_clock(job, row, leave_s)
        self._rewrite(job)
        decider.stopped(job)
        return True

    def _stop_clock(self, job: SessionJob, row: int, until_s: float) -> None:
        self._holds[row] = False
        self._leaving.discard(row)
        if self._effects is not None:
            self._effects.left(row, until_s)
        held_s = until_s - job.start_s
        job.executed_s += held_s
        job.attained_gpu_s += held_s * job.gpus
        self._record.add_segment(row, job.start_s, until_s, (job.gpus, self._cpus[row]), job.pieces)

    def _turn_node(self, event: tuple[float, int, bool], decider: Decider) -> bool:
        """A node fails, and its jobs lose the progress of their present run; or it comes back. O(jobs)."""
        now_s, node, up = event
        for row, job in enumerate(self._jobs):
            if self._holds[row] and not up and any(piece.node == node for piece in job.pieces):
                self._record.failures[row] += 1
                self._turn[row] += 1
                self._revoked.discard(row)
                self._progress.lose(job, row, now_s)
                self._stop_clock(job, row, now_s)
                self._rewrite(job)
                decider.stopped(job)
        self._outages[node] = self._outages.get(node, 0) + (-1 if up else 1)
        _with_nodes(decider).set_usable(node, not self._outages[node])
        self._revoke_guests(now_s, decider)
        return True

    def outcome(self, policy: str, cluster: SimulatedCluster, cpu_s: float) -> SimulationOutcome:
        """What was found."""
        first_start_s = [job.first_start_s for job in self._jobs]
        outcome = self._record.outcome(policy, cluster, first_start_s, cpu_s)
        return outcome if self._effects is None else self._effects.record(outcome)


def _check_clock_advances(policy: str, since_s: float, now_s: float) -> None:
    if now_s - since_s < _INSTANT_S:
        raise SimulatorError(
            f"policy {policy} does not come to rest at {now_s:g} s: it decides anew time and again although nothing "
            "happens; give it other parameters, such as a longer min_run_s"
        )


def _with_nodes(decider: Decider) -> NodeDecider:
    assert isinstance(decider, NodeDecider)
    return decider


def _adjustable(decider: Decider) -> AdjustableDecider:
    return cast("AdjustableDecider", decider)  # as it was chosen; to look it up each time takes too long
