"""Who runs beside whom, and how fast that makes each job."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.sharing.engine.gpu_holders import GpuHolders
from slurm_soda.policies.sharing.engine.plan_check import GpuPlacement
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, Mechanism
from slurm_soda.policies.sharing.pair_knowledge.slowdown_learner import SlowdownLearner, WatchedJob
from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.sharing.observed_pairs import ObservedPairs
from slurm_soda.simulator.sharing.sharing_record import SharingRecorder
from slurm_soda.simulator.sharing.sharing_rules import SharingInputs
from slurm_soda.simulator.sharing.true_slowdowns import DOES_NOT_FIT


@dataclass(slots=True)
class _RunningJob:
    """A running job."""

    kind: int
    cost: float
    """By gradient accumulation."""
    since_s: float
    """When its co-runners last changed."""
    resumes_s: float
    xi: float = 1.0
    interference_view: frozenset[int] = frozenset()


class CoRunnerSlowdowns:
    """The surroundings of jobs on shared GPUs; see :class:`~slurm_soda.simulator.engine.runtime_effects.RuntimeEffects`.

    A job is slowed by its worst GPU; there, slowdowns by several partners add up (xi - 1 summed). A start or an end costs
    O(GPUs of the job x jobs on each x GPUs of each of those).
    """

    def __init__(
        self,
        devices: GpuHolders,
        together: SharingInputs,
        *,
        observes: bool,
        mechanism: Mechanism = IDEAL,
        observed: ObservedPairs | None = None,
    ) -> None:
        """``observes``: slowdowns that were seen become known; ``mechanism``: what starting as a guest costs, and when a
        seat ends; ``observed``: told of every pair, if somebody wants to know.
        """
        self.devices, self.observed, self._mechanism = devices, observed, mechanism
        self._hosts_left: set[int] = set()
        """Guests whose hosts have left."""
        self._readmitted: set[int] = set()
        """Jobs that wait since their seats were revoked."""
        self._truth, self._kinds, known = together
        self.learner = SlowdownLearner(known, observes=observes)
        self.planned: dict[int, GpuPlacement] = {}
        """By row: where jobs go that start next."""
        self._running: dict[int, _RunningJob] = {}
        self._failing: dict[int, frozenset[int]] = {}
        """Jobs that do not fit, with those whose memory is in their way; they slow nobody down."""
        self._affected: set[int] = set()
        self._pairs: dict[tuple[int, int], float] = {}
        self._recorder = SharingRecorder(len(self._kinds.code), len(devices))

    def request(self, row: int) -> int | None:
        """As in the trace."""
        del row
        return None

    def start_delay_s(self, row: int) -> float:
        """By the mechanism, for a guest, and for a job that was one when it was stopped."""
        guest = bool(self.devices.jobs_on(self.planned[row].devices))
        readmitted = row in self._readmitted
        self._readmitted.discard(row)
        return guest * self._mechanism.start_s + readmitted * self._mechanism.readmit_s

    def take_revoked(self) -> list[tuple[int, float]]:
        """Guests whose hosts have left, if that ends their seats."""
        rows = sorted(self._hosts_left)
        self._hosts_left.clear()
        return [(row, self._mechanism.vacate_s) for row in rows]

    def revoked(self, row: int, lost_s: float) -> None:
        """It waits again."""
        self._readmitted.add(row)
        self._recorder.revoke(row, lost_s)

    def started(self, row: int, pieces: tuple[NodeAllocation, ...], now_s: float, resumes_s: float) -> None:
        """A job starts where it was planned."""
        del pieces
        devices, sub_batch = self.planned.pop(row)
        kind, cost = self._kinds.running(row, sub_batch), self._kinds.accumulation_cost(row, sub_batch)
        others = self.devices.jobs_on(devices) - self._failing.keys()
        self._take(row, devices, now_s)
        self._recorder.start(row, sub_batch)
        self._running[row] = _RunningJob(kind, cost, now_s, resumes_s)
        in_the_way = frozenset(other for other in others if self._pair(kind, self._running[other].kind) == DOES_NOT_FIT)
        if in_the_way:
            self._failing[row] = in_the_way
            for other in in_the_way:
                self.learner.do_not_fit(self._kinds[kind], self._kinds[self._running[other].kind])
            self._recorder.fail(row)
            return
        for one in (row, *others):
            self._meet(one, now_s)
        self._affected |= others

    def fails(self, row: int) -> bool:
        """Whether it runs out of memory."""
        return row in self._failing

    def left(self, row: int, now_s: float) -> None:
        """A job leaves; its partners are faster from now on."""
        failed = self._failing.pop(row, None)
        self._close(row, now_s)
        del self._running[row]
        self.learner.leave(row)
        if self.observed is not None:
            self.observed.leave(row)
        devices = self.devices.of(row)
        for device in devices:
            self._recorder.turn(device, len(self.devices.holders(device)), now_s)
        if self._mechanism.revokes:
            self._hosts_left |= self.devices.guests(row)
        self.devices.release(row)
        self._recorder.leave(devices)
        if failed is None:
            others = self.devices.jobs_on(devices) - self._failing.keys()
            for other in others:
                self._meet(other, now_s)
            self._affected |= others

    def pace(self, row: int, now_s: float) -> float:
        """Speed by co-runners and accumulation."""
        del now_s
        runner = self._running[row]
        return 1.0 / (runner.xi * runner.cost)

    def take_affected(self) -> list[int]:
        """Those whose co-runners changed."""
        affected = sorted(row for row in self._affected if row in self._running)
        self._affected.clear()
        return affected

    def next_s(self) -> float:
        """Never: nothing changes by itself."""
        return math.inf

    def due(self, now_s: float) -> list[tuple[int, tuple[NodeAllocation, ...]]]:
        """Nothing."""
        del now_s
        return []

    def record(self, outcome: SimulationOutcome) -> SimulationOutcome:
        """The outcome, with who shared how long."""
        return replace(outcome, sharing=self._recorder.record())

    def observe(self, now_s: float) -> None:
        """Everything that has been seen long enough by now becomes known."""
        self.learner.observe(now_s, lambda row: self._running[row].xi)

    def next_breach_s(self, max_slowdown: FloatColumn) -> float:
        """When a pair will have been seen that slows a job more than its owner bears; infinite if there is none.

        ``max_slowdown``: by row. Complexity: O(pairs that met since the last decision).
        """
        watched = [(seen_s, row, self._running[row]) for seen_s, row in self.learner.watched()]
        return min((seen_s for seen_s, row, one in watched if one.xi * one.cost > max_slowdown[row]), default=math.inf)

    def part(self, row: int, others: Iterable[int]) -> None:
        """A job leaves these others, by id, since a bound is broken."""
        self._recorder.part(row)
        if self.observed is not None:
            self.observed.part(row + 1, others)

    def _take(self, row: int, devices: tuple[int, ...], now_s: float) -> None:
        for device in devices:
            self._recorder.turn(device, len(self.devices.holders(device)), now_s)
        self.devices.take(row, devices)

    def _meet(self, row: int, now_s: float) -> None:
        """A job's co-runners may have changed."""
        runner = self._running[row]
        self._close(row, now_s)
        worst, interference_view, largest = 1.0, set(), 0
        for device in self.devices.of(row):
            others = [one for one in self.devices.holders(device) if one != row and one not in self._failing]
            if others:
                xi = 1.0 + sum(self._pair(runner.kind, self._running[one].kind) - 1.0 for one in others)
                worst, largest = max(worst, xi), max(largest, len(others))
                interference_view.update(others)
        runner.xi = worst
        if interference_view != runner.interference_view:
            runner.interference_view = frozenset(interference_view)
            partners = [self._watched(self._running[one]) for one in interference_view]
            self.learner.meet(row, self._watched(runner), partners, largest, now_s)
            self._observe(row, runner, partners, now_s)

    def _observe(self, row: int, runner: _RunningJob, partners: list[WatchedJob], now_s: float) -> None:
        """What is seen of a job begins anew, or ends as it is alone."""
        if self.observed is not None and partners:
            since_s = max(now_s, runner.resumes_s, *(partner.resumes_s for partner in partners))
            self.observed.meet(row, now_s, since_s, runner.xi * runner.cost)
        elif self.observed is not None:
            self.observed.be_alone(row, now_s, runner.cost)

    def _watched(self, job: _RunningJob) -> WatchedJob:
        return WatchedJob(self._kinds[job.kind] if job.kind >= 0 else None, job.resumes_s)

    def _close(self, row: int, now_s: float) -> None:
        runner = self._running[row]
        if runner.interference_view:
            self._recorder.add_shared_time(row, runner.interference_view, runner.xi, now_s - runner.since_s)
        runner.since_s = now_s

    def _pair(self, slowed: int, other: int) -> float:
        key = (slowed, other)
        found = self._pairs.get(key)
        if found is None:
            found = self._pairs[key] = self._truth.pair_xi(self._kinds[slowed], self._kinds[other])
        return found
