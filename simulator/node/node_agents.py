"""The agents of all nodes, as the event loop knows them: how fast jobs run, and when their cores change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from heapq import heappop, heappush

import numpy as np

from slurm_soda.policies.cpu_fit.core_search import CONCLUSIVE, SettleReason
from slurm_soda.policies.cpu_fit.start_cores import CoreRequest, NodeCapacity, PastFit
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.simulator.cluster import UNCOUNTED, SimulatedCluster
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.node.bandwidth_contention import BandwidthContention
from slurm_soda.simulator.node.core_tuning import SEARCH_STEP_S, BestFitHistory, TunedJob
from slurm_soda.simulator.node.model_core_curves import INFERENCE, INFERENCE_RATIO
from slurm_soda.simulator.node.node_measurements import NodeMeasurements, NodeUsageRecorder
from slurm_soda.simulator.node.node_rules import NodeRules
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.speed.core_speed import CoreCurve, CoreSpeed
from slurm_soda.simulator.workload import Workload

Pieces = tuple[NodeAllocation, ...]


class NodeAgents:
    """Hears of every start and end; says who shall have which cores, and how fast each job runs.

    The event loop calls :meth:`started` and :meth:`left`, then gives every job of :meth:`take_affected` its new
    :meth:`pace`; at :meth:`next_s` it calls :meth:`due`, and gives jobs their new pieces and pace.
    """

    def __init__(
        self, workload: Workload, cluster: SimulatedCluster, curves: Mapping[str, CoreCurve], rules: NodeRules
    ) -> None:
        """Raises :class:`SimulatorError` if the cluster does not say how many cores its nodes have."""
        if rules.adaptive and (cluster.cpus >= UNCOUNTED).any():
            raise SimulatorError(
                "cores cannot be adapted where nobody counts them: write --cluster with cores, as in 80x5/28c"
            )
        self._workload, self._rules = workload, rules
        self._speed = CoreSpeed(curves, workload)
        self._neighbours = BandwidthContention(workload, len(cluster), rules)
        self._free: list[int] = cluster.cpus.tolist()
        with_gpus = cluster.cpus[cluster.gpus > 0]
        self._means = NodeCapacity(max(int(with_gpus.min(initial=UNCOUNTED)), 1))
        self._history = BestFitHistory()
        self._tuned: dict[int, TunedJob] = {}
        self._pieces: dict[int, Pieces] = {}
        self._busy: dict[int, float] = {}
        """GPU utilisation of running jobs, NaN where nobody knows."""
        self._since_s: dict[int, float] = {}
        """When a running job's pace last changed."""
        self._resumes_s: dict[int, float] = {}
        self._turn: dict[int, int] = {}
        """Turns of each job so far, odd while it runs; a step that was planned in an earlier one is void."""
        self._due: list[tuple[float, int, int]] = []
        self._affected: set[int] = set()
        inference = workload.categories.index(INFERENCE) if INFERENCE in workload.categories else -2
        self._serves = (workload.category == inference).tolist()
        self._gpus: list[int] = workload.gpus.tolist()
        per_node = np.where(workload.gpus_per_node > 0, workload.gpus_per_node, np.maximum(workload.gpus, 1))
        self._nodes: list[int] = np.maximum(workload.nodes, -(-workload.gpus // per_node)).tolist()
        self._cpus = np.full(len(workload), -1, dtype=np.int64)
        self._steps = np.full(len(workload), -1, dtype=np.int64)
        self._recorder = NodeUsageRecorder()

    def request(self, row: int) -> int | None:
        """Cores over all nodes that a job shall ask for from now on, when it begins to wait; None: as it does."""
        if not self._adapts(row):
            return None
        nodes = self._nodes[row]
        if self._cpus[row] > 0:
            return int(self._cpus[row])  # it ran before, and goes on with what it had
        request = CoreRequest(-(-self._gpus[row] // nodes), self._category(row), self._model(row))
        return nodes * self._history.start(self._owner(row), request, self._means)

    def started(self, row: int, pieces: Pieces, now_s: float, resumes_s: float) -> None:
        """A job starts, and makes progress from ``resumes_s`` on; :meth:`pace` must follow."""
        self._pieces[row] = pieces
        self._since_s[row], self._resumes_s[row] = now_s, resumes_s
        self._turn[row] = self._turn.get(row, 0) + 1
        self._take(pieces)
        self._affected |= self._neighbours.arrive(row, pieces)
        self._cpus[row] = sum(piece.cpus for piece in pieces)
        if self._adapts(row) and len({(piece.cpus, piece.gpus) for piece in pieces}) == 1:
            self._tuned[row] = TunedJob.begin(pieces[0].cpus, self._means.cores)
            heappush(self._due, (resumes_s + SEARCH_STEP_S, row, self._turn[row]))

    def left(self, row: int, now_s: float) -> None:
        """A job gave its resources back."""
        self._close(row, now_s)
        pieces = self._pieces.pop(row)
        self._turn[row] += 1
        self._take(pieces, -1)
        self._tuned.pop(row, None)
        self._affected |= self._neighbours.leave(row, pieces)

    def pace(self, row: int, now_s: float) -> float:
        """Speed of a running job from now on, relative to its trace."""
        self._close(row, now_s)
        working, beside = self._working(row), self._neighbours.ratio(row, self._pieces[row])
        fed = INFERENCE_RATIO if self._serves[row] else self._speed.utilisation(row, working)
        self._busy[row] = fed * beside if self._gpus[row] else 0.0
        return self._speed.ratio(row, working) * beside

    def next_s(self) -> float:
        """When an agent acts next; infinite for never."""
        while self._due and self._turn[self._due[0][1]] != self._due[0][2]:
            heappop(self._due)
        return self._due[0][0] if self._due else math.inf

    def due(self, now_s: float) -> list[tuple[int, Pieces]]:
        """Act: jobs whose pace changes now, with their pieces, in the order in which they are due."""
        changed: list[tuple[int, Pieces]] = []
        while self.next_s() <= now_s:
            _, row, turn = heappop(self._due)
            job = self._tuned[row]
            before = (job.cores, job.held)
            reason = job.step(self._busy[row], self._reach(row))
            if reason is None:
                heappush(self._due, (now_s + SEARCH_STEP_S, row, turn))
            else:
                self._settle(row, job, reason)
            if (job.cores, job.held) != before:
                self._close(row, now_s)
                self._give(row, job.held)
                changed.append((row, self._pieces[row]))
        return changed

    def take_affected(self) -> list[int]:
        """Running jobs whose neighbours changed, ascending; the caller gives each its :meth:`pace`."""
        affected = sorted(row for row in self._affected if row in self._pieces)
        self._affected.clear()
        return affected

    def start_delay_s(self, row: int) -> float:
        """None."""
        del row
        return 0.0

    def take_revoked(self) -> list[tuple[int, float]]:
        """Nobody has a seat on somebody else's GPU."""
        return []

    def revoked(self, row: int, lost_s: float) -> None:
        """Nobody."""

    def fails(self, row: int) -> bool:
        """Never: a job runs wherever it was started."""
        del row
        return False

    def record(self, outcome: SimulationOutcome) -> SimulationOutcome:
        """The outcome with what happened on nodes."""
        trains = (self._workload.gpus > 0) & ~np.array(self._serves, dtype=np.bool_)
        seen = NodeMeasurements(self._recorder.stretches(), self._cpus, self._steps, trains)
        return replace(outcome, node_measurements=seen)

    def _adapts(self, row: int) -> bool:
        """Whether a job's cores are the allocator's: it trains, and its cores are counted."""
        workload = self._workload
        return (
            self._rules.adaptive
            and self._gpus[row] > 0
            and not self._serves[row]
            and bool(workload.cpus[row])
            and self._speed.knows(row)
        )

    def _settle(self, row: int, job: TunedJob, reason: SettleReason) -> None:
        self._steps[row] = job.search.steps
        if reason in CONCLUSIVE and not job.bounded:
            gpus = self._pieces[row][0].gpus
            self._history.add(self._owner(row), PastFit(self._category(row), self._model(row), job.cores, gpus))

    def _close(self, row: int, now_s: float) -> None:
        """Note how a running job was until now."""
        since_s, held = self._since_s[row], (self._gpus[row], sum(piece.cpus for piece in self._pieces[row]))
        works_s = min(max(self._resumes_s[row], since_s), now_s)
        self._recorder.add(row, since_s, works_s, held, 0.0)
        if now_s > works_s:
            self._recorder.add(row, works_s, now_s, held, self._busy[row])
        self._since_s[row] = now_s

    def _reach(self, row: int) -> int:
        """The most cores that each of the job's nodes can give it."""
        return min(piece.cpus + self._free[piece.node] for piece in self._pieces[row])

    def _give(self, row: int, cores: int) -> None:
        before = self._pieces[row]
        self._take(before, -1)
        pieces = self._pieces[row] = tuple(piece._replace(cpus=cores) for piece in before)
        self._take(pieces)
        self._cpus[row] = cores * len(pieces)

    def _take(self, pieces: Pieces, sign: int = 1) -> None:
        for piece in pieces:
            self._free[piece.node] -= sign * piece.cpus

    def _working(self, row: int) -> Pieces:
        """The pieces, with the cores that the job works with."""
        job = self._tuned.get(row)
        if job is None or job.cores == job.held:
            return self._pieces[row]
        return tuple(piece._replace(cpus=job.cores) for piece in self._pieces[row])

    def _owner(self, row: int) -> str:
        code = int(self._workload.user[row])
        return self._workload.users[code] if code >= 0 else ""

    def _category(self, row: int) -> str | None:
        code = int(self._workload.category[row])
        return self._workload.categories[code] if code >= 0 else None

    def _model(self, row: int) -> str | None:
        code = int(self._workload.model[row])
        return self._workload.models[code] if code >= 0 else None
