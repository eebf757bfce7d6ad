"""Shortest job first that lets jobs share GPUs: SJF-FFS and SJF-BSBF (Luo et al., Sections V-B and VI-A)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from slurm_soda.policies.baselines.sort_key import SortKeyPolicy
from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.engine.placement_pass import PlacementPass, RefusedShapes
from slurm_soda.policies.engine.plan_builder import build_plan, find_rankable_rows, rank_rows
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.sharing.arithmetic.sharing_decision import BOUND_CAUTION, SharingDecision, start_all_the_same
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.plan import SharingPlan, make_sharing_plan, mark_unshared
from slurm_soda.policies.sharing.sjf.partner_screening import PartnerScreen
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, IntColumn

SJF_BSBF, SJF_FFS = "sjf-bsbf", "sjf-ffs"
MAX_JOBS_PER_GPU = 2
"""Jobs on a GPU: more "rarely improve performance" (Section IV-B)."""
_DIGITS = 6
"""Of seconds: costs that differ by less are the same."""


@dataclass(frozen=True, slots=True)
class SharingSjf:
    """Shortest first; a job that finds no GPUs of its own may join running ones. Nobody is preempted.

    On a snapshot that does not know single GPUs it is ``sjf``, and says so in its facts (``sharing_known`` is 0).

    Attributes:
        name: :data:`SJF_BSBF` joins where that ends earlier on average (Algorithms 1 and 2), :data:`SJF_FFS` at the
            first GPUs with enough free memory, which is the paper's baseline.
        jobs_per_gpu: most jobs on one GPU.
        caution: slowdowns count as so many of their expected errors worse than known.
        bound_caution: so many, if these are more, where an owner's bound is at stake, as parting costs a restart.
    """

    name: str
    jobs_per_gpu: int = MAX_JOBS_PER_GPU
    caution: float = 0.0
    bound_caution: float = BOUND_CAUTION

    @property
    def starts_only(self) -> Literal[True]:
        """It preempts nobody."""
        return True

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """O(n log n) in jobs; then O(log m) for a job with GPUs of its own, and O(GPUs + running jobs x sub-batches) in
        numpy for one that looks for partners. A job that was refused speaks for all longer ones of its kind, so there are at
        most as many such looks as GPUs that are joined, plus one a kind and size. Of each two kinds that meet so, knowledge
        is asked once for each sub-batch.
        """
        if not isinstance(snapshot, SharingSnapshot):
            return mark_unshared(SortKeyPolicy("sjf").decide(snapshot), self.name)
        return _Pass(self, snapshot).run()


class _Pass:
    """One decision."""

    def __init__(self, policy: SharingSjf, snapshot: SharingSnapshot) -> None:
        self._policy, self._snapshot = policy, snapshot
        self._placing = PlacementPass(snapshot)
        self._gpu_occupancy = GpuOccupancy(snapshot, self._placing.free_capacity)
        self._interference_view = InterferenceView(snapshot, self._gpu_occupancy)
        self._partner_screen: PartnerScreen | None = None
        self._devices: dict[int, tuple[int, ...]] = {}
        self._sub_batches: dict[int, int] = {}
        self._decisions: dict[int, SharingDecision] = {}
        self._refused: dict[tuple[object, ...], float] = {}
        """Least work of a refused job, by what else it is told from."""
        self._alone = 0
        self._masks: dict[int, BoolColumn] = {}

    def run(self) -> SharingPlan:
        """Walk the order."""
        jobs, placing = self._snapshot.jobs, self._placing
        score: FloatColumn = jobs.executed_s + jobs.remaining_s
        ranked = rank_rows(jobs, find_rankable_rows(self._snapshot), score, jobs.submit_s)
        rows = placing.candidates(ranked)
        refusals = RefusedShapes()
        for row, code in zip(rows.tolist(), placing.demand.code[rows].tolist(), strict=True):
            shape = placing.demand.shapes[code]
            pieces = None if refusals.cover(shape) else placing.free_capacity.now.find(shape)
            if pieces is not None:
                self._start_alone(row, shape, pieces)
            else:
                refusals.add(shape)
                if shape.wants_gpus:
                    self._join(row, code, shape)
        return self._plan(ranked, score)

    def _start_alone(self, row: int, shape: RequestShape, pieces: Sequence[NodeAllocation]) -> None:
        devices = self._gpu_occupancy.take_empty(pieces)
        if shape.wants_gpus:
            self._devices[row] = devices
            self._alone += 1
        self._placing.claim(row, JobPlacement(list(pieces), at_once=True))

    def _join(self, row: int, code: int, shape: RequestShape) -> None:
        """Find partners for a job, or let it wait."""
        work_s = float(self._snapshot.jobs.remaining_s[row])
        consent = self._interference_view.consent(row)
        if not consent.shares or not math.isfinite(work_s) or self._interference_view.kind(row) is None:
            return
        batch = int(self._snapshot.sharing.batch[row])
        traits = self._gpu_occupancy.guest_rules.traits(row)
        key = (self._interference_view.kind(row), batch, code, consent.max_slowdown, traits)
        if work_s >= self._refused.get(key, math.inf):
            return
        if self._partner_screen is None:
            self._partner_screen = PartnerScreen(
                self._snapshot,
                self._gpu_occupancy,
                self._interference_view,
                self._policy.jobs_per_gpu,
                max(self._policy.caution, self._policy.bound_caution),
            )
        for devices, pieces in self._places(row, code, shape, self._partner_screen):
            decision = self._judge(row, devices)
            if row not in self._decisions or decision.share:
                self._decisions[row] = decision
            if decision.share:
                self._start_beside(row, devices, pieces, decision)
                return
        self._refused[key] = work_s

    def _places(
        self, row: int, code: int, shape: RequestShape, partner_screen: PartnerScreen
    ) -> Iterator[tuple[list[int], list[NodeAllocation]]]:
        """Devices for a job, best first: shared ones before free ones, as free ones would not make it end earlier."""
        if code not in self._masks:
            self._masks[code] = self._gpu_occupancy.classes.mask(shape)
        nodes = self._masks[code]
        gpus = int(self._snapshot.jobs.gpus[row])
        _, cpus, memory_mib = shape.least
        now = self._placing.free_capacity.now
        roomy: BoolColumn = nodes & (now.cpus >= cpus) & (now.memory_mib >= memory_mib)
        if not self._enough(shape, gpus, roomy, partner_screen.gpus_by_node(np.arange(len(partner_screen)))):
            return
        order = self._order(row, nodes, partner_screen)
        enough = self._enough(shape, gpus, roomy, partner_screen.gpus_by_node(order))
        picked = self._gpu_occupancy.pick(row, shape, self._ranked(order, roomy, partner_screen)) if enough else None
        if picked is not None:
            yield picked

    def _enough(self, shape: RequestShape, gpus: int, nodes: BoolColumn, shared: IntColumn) -> bool:
        """Whether free GPUs and these shared ones, by node, might do."""
        per_node = np.where(nodes, shared + self._placing.free_capacity.now.gpus, 0)
        if shape.units:
            return int(per_node.sum()) >= gpus
        return int(np.count_nonzero(per_node >= shape.gpus)) >= shape.nodes

    def _order(self, row: int, nodes: BoolColumn, partner_screen: PartnerScreen) -> IntColumn:
        """Groups of devices that a job may join: the first ones first, or those where it gains, best first.

        The paper minimises the average completion time of all jobs and still puts first whom the pair's own mean is least
        with, that is, who has little left. A running job that is not joined ends as well, though: what joining adds to the
        sum over all is the pair's completion times less those that both have alone. A gang needs several co-runners, so that
        counts by the GPUs that each brings; of equal ones, the paper's order.
        """
        if self._policy.name == SJF_FFS:
            return np.flatnonzero(partner_screen.may_share(row))
        together, after, apart = partner_screen.mean_completions_s(row)
        gains = np.flatnonzero(together < after)
        used = np.minimum(partner_screen.free_capacity(nodes)[gains], int(self._snapshot.jobs.gpus[row]))
        cost = (together - apart)[gains] / np.maximum(used, 1)
        return gains[np.lexsort((together[gains], np.round(cost, _DIGITS)))]

    def _ranked(self, order: IntColumn, nodes: BoolColumn, partner_screen: PartnerScreen) -> Iterator[int]:
        yield from partner_screen.devices(order, nodes)
        yield from self._gpu_occupancy.free(nodes)

    def _judge(self, row: int, devices: Sequence[int]) -> SharingDecision:
        """Algorithm 2 beside everybody who is on these devices."""
        decision = self._interference_view.judge(row, devices, self._policy.caution, self._policy.bound_caution)
        if self._policy.name == SJF_FFS:
            reason = "starts at once: first fit does not ask whether that ends earlier on average"
            return start_all_the_same(decision, reason)
        return decision

    def _start_beside(
        self, row: int, devices: Sequence[int], pieces: Sequence[NodeAllocation], decision: SharingDecision
    ) -> None:
        self._placing.free_capacity.hold(self._gpu_occupancy.take(devices, pieces))
        self._placing.record(row, JobPlacement(list(pieces), at_once=True))
        self._devices[row] = tuple(devices)
        batch = int(self._snapshot.sharing.batch[row])
        if decision.chosen is not None and 0 < decision.chosen.sub_batch < batch and len(decision.trials) > 1:
            self._sub_batches[row] = decision.chosen.sub_batch

    def _plan(self, ranked: IntColumn, score: FloatColumn) -> SharingPlan:
        waits = bool(len(self._placing.candidates(ranked)))
        # Those who start alone now can be joined by those who wait as soon as they run.
        soon = self._alone and waits and bool(self._snapshot.sharing.shares.any())
        plan = build_plan(
            self._placing,
            self._policy.name,
            ranked,
            score=score,
            score_name="run_time_s",
            next_event_s=self._snapshot.now_s if soon else math.inf,
        )
        beside = {"starts_beside_others": float(len(self._devices) - self._alone)}
        return make_sharing_plan(
            plan,
            self._snapshot.jobs.job_id,
            self._devices,
            beside,
            sub_batches=self._sub_batches,
            decisions=self._decisions,
        )
