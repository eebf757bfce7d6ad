"""Our own: shortest remaining service first that pairs jobs wherever two together get more done than one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from slurm_soda.policies.baselines.sort_key import SortKeyPolicy
from slurm_soda.policies.engine.demand import group_equal_rows
from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.engine.plan_builder import build_plan, find_rankable_rows, rank_rows
from slurm_soda.policies.engine.preemption import find_next_preemptible_s, find_preemptible
from slurm_soda.policies.engine.run_time_estimates import expect_remaining_s, find_next_guess_s
from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.plan import SharingPlan, make_sharing_plan, mark_unshared
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.sharing.srsf_share.pair_matching import PairMatching, PairMatchingInput
from slurm_soda.policies.sharing.srsf_share.pair_roles import PairRoles, fix_hosts
from slurm_soda.policies.sharing.srsf_share.pair_speeds import PairSpeeds
from slurm_soda.policies.sharing.srsf_share.reasons import PairReasons
from slurm_soda.policies.sharing.srsf_share.slot_placement import PairSlot, PairSlotPlacement
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, IntColumn, JobState

SRSF_SHARE = "srsf-share"
_CANDIDATES = 3
"""Jobs that are looked at for each slot: itself, a partner, and one more to choose from."""


@dataclass(frozen=True, slots=True)
class SrsfShare:
    """Preempts, and lets jobs of one size share all their GPUs in pairs.

    With n jobs ordered by remaining service (GPUs x time), whoever is served first makes all jobs behind it end earlier:
    the sum of completion times falls, for each second that job number i runs at full speed on g of G GPUs, by about
    w_i = max(g (n - i) / G, 1). So at each instant those run, alone or in pairs, whose sum of w x speed is largest. Without
    sharing that is shortest remaining service first; with it, a pair takes the place of one job where it gains, more readily
    the longer the queue, since then the weights of both are nearly the same; when the queue is short, jobs that would be
    delayed stay alone.

    On a snapshot that does not know single GPUs it is ``srsf``, and says so in its facts (``sharing_known`` is 0).

    Attributes:
        min_run_s: a job is not preempted before it has run so long since its last start.
        change_s: GPU time lost on each GPU when jobs change places, by what leaves or by what takes the place: a running job
            is moved only if that pays within the time it has left.
        caution: slowdowns count as so many of their expected errors worse than known.
    """

    min_run_s: float = 60.0
    change_s: float = 0.0
    caution: float = 0.0

    @property
    def name(self) -> str:
        return SRSF_SHARE

    @property
    def jobs_per_gpu(self) -> int:
        """Pairs."""
        return 2

    @property
    def cpu_jobs_last(self) -> Literal[True]:
        """They take the cores that the others leave."""
        return True

    @property
    def preempts_by_rank(self) -> bool:
        """Jobs that have run long enough make way."""
        return True

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """O(n log n) in jobs; O(GPUs x 128) a sweep of the matching, with at most 12 of them; O(log m) a start."""
        if not isinstance(snapshot, SharingSnapshot):
            return mark_unshared(SortKeyPolicy("srsf", self.min_run_s).decide(snapshot), SRSF_SHARE)
        return _Round(self, snapshot).run()


class _Round:
    """One decision."""

    def __init__(self, policy: SrsfShare, snapshot: SharingSnapshot) -> None:
        self._policy, self._snapshot = policy, snapshot
        self._placing = PlacementPass(snapshot)
        self._gpu_occupancy = GpuOccupancy(snapshot, self._placing.free_capacity)
        self._interference_view = InterferenceView(snapshot, self._gpu_occupancy)
        self._speeds = PairSpeeds(snapshot.known, policy.caution)
        jobs = snapshot.jobs
        self._runs: BoolColumn = jobs.state == JobState.RUNNING
        fixed: BoolColumn = self._runs & ~find_preemptible(snapshot, policy.min_run_s)
        self._fixed = fix_hosts(self._gpu_occupancy.guest_rules, fixed, self._gpu_occupancy.jobs_on)
        self._remaining_s = expect_remaining_s(jobs)
        self._score: FloatColumn = jobs.gpus * self._remaining_s
        self._slot_placement = PairSlotPlacement(self._placing, snapshot, self._gpu_occupancy, self._fixed)
        self._weight: FloatColumn = np.ones(len(jobs))

    def run(self) -> SharingPlan:
        """Weigh, match, place."""
        jobs = self._snapshot.jobs
        rows = find_rankable_rows(self._snapshot)
        able = self._runs[rows] | np.isin(rows, self._placing.candidates(rows))
        on_gpus = rank_rows(jobs, rows[able & (jobs.gpus[rows] > 0)], self._score, jobs.submit_s)
        weight = self._weight = self._weights(on_gpus)
        dense = on_gpus[np.argsort(-weight[on_gpus] / jobs.gpus[on_gpus], kind="stable")]
        apart = self._apart()
        self._slot_placement.keep(apart)
        open_rows = dense[~np.isin(dense, list(apart))] if apart else dense
        slots = self._pair_slots(open_rows, weight)
        self._slot_placement.place_slots(slots, open_rows.tolist())
        on_cpus = rank_rows(jobs, rows[jobs.gpus[rows] == 0], jobs.submit_s)
        unable = rows[~able & (jobs.gpus[rows] > 0)]
        return self._plan(np.concatenate((on_gpus, unable, on_cpus)), on_cpus)

    def _weights(self, ranked: IntColumn) -> FloatColumn:
        """By row: what a second at full speed takes off the sum of completion times."""
        jobs = self._snapshot.jobs
        gpus = max(int(np.count_nonzero(~self._gpu_occupancy.taken)), 1)
        weight = np.ones(len(jobs))
        behind = np.arange(len(ranked), 0, -1)
        weight[ranked] = np.maximum(jobs.gpus[ranked] * behind / gpus, 1.0)
        return weight

    def _apart(self) -> set[int]:
        """Running jobs about which nothing is to be decided.

        Those that may not be stopped and share with others of that kind, and those on GPUs that nobody else can have now,
        as the node leaves service or a job there has not left yet: to stop them would give nobody a GPU.
        """
        found: set[int] = set()
        for device, jobs_on in enumerate(self._gpu_occupancy.jobs_on):
            fixed = [row for row in jobs_on if self._fixed[row]]
            if self._gpu_occupancy.taken[device]:
                found.update(jobs_on)
            elif len(fixed) > 1:
                found.update(fixed)
        return found | self._slot_placement.hosts_of(found)

    def _pair_slots(self, rows: IntColumn, weight: FloatColumn) -> list[PairSlot]:
        """Slots for the densest jobs as far as there are GPUs, filled by size; the most valuable GPUs first."""
        jobs = self._snapshot.jobs
        if not len(rows):
            return []
        left = self._slot_placement.gpus_unclaimed
        columns = (jobs.partition, jobs.gpu_type, jobs.gpus, jobs.nodes, jobs.gpus_per_node)
        _, size = group_equal_rows(tuple(column[rows] for column in columns))
        slots = np.zeros(int(size.max()) + 1, dtype=np.int64)
        fixed_first = np.argsort(~self._fixed[rows], kind="stable")
        for number, gpus in zip(size[fixed_first].tolist(), jobs.gpus[rows][fixed_first].tolist(), strict=True):
            if gpus <= left:
                slots[number] += 1
                left -= gpus
                if not left:
                    break
        found: list[tuple[float, PairSlot]] = []
        for number in np.flatnonzero(slots).tolist():
            members = rows[size == number]
            found += self._matched(members, int(slots[number]), weight)
        return [slot for _, slot in sorted(found, key=lambda entry: (-entry[0], entry[1].rows))]

    def _matched(self, rows: IntColumn, slots: int, weight: FloatColumn) -> list[tuple[float, PairSlot]]:
        """Slots of one size, with what a GPU of each is worth."""
        waiting = ~self._runs[rows]
        few = np.cumsum(waiting) <= _CANDIDATES * slots
        rows = rows[few | ~waiting]
        matching_input = self._matching_input(rows, weight)
        made = PairMatching(matching_input, slots)
        pairs = made.settle()
        if self._policy.change_s:
            as_now = PairMatching(matching_input, slots, keep=True)
            kept = as_now.settle()
            if as_now.total() >= made.total():
                made, pairs = as_now, kept
        worth = made.value(made.first, made.second) / self._snapshot.jobs.gpus[rows[0]]
        found = []
        for value, pair in zip(worth.tolist(), pairs, strict=True):
            members = [int(rows[at]) for at in pair if at >= 0]
            if members:
                members.sort(key=lambda row: (not self._fixed[row], not self._runs[row], -weight[row], row))
                if matching_input.roles is not None:
                    members = [int(rows[at]) for at in matching_input.roles.put_host_first(*pair) if at >= 0]
                found.append((value, PairSlot(tuple(members))))
        return found

    def _matching_input(self, rows: IntColumn, weight: FloatColumn) -> PairMatchingInput:
        kinds: dict[tuple[JobKind | None, int], int] = {}
        program = self._snapshot.sharing.program
        kind = np.array(
            [
                kinds.setdefault((self._interference_view.kind(row), int(program[row])), len(kinds))
                for row in rows.tolist()
            ],
            dtype=np.int64,
        )
        consents = [self._interference_view.consent(row) for row in rows.tolist()]
        least = [
            self._interference_view.accumulation_slowdown(row) / one.max_slowdown if one.shares else 2.0
            for row, one in zip(rows.tolist(), consents, strict=True)
        ]
        runs = self._runs[rows]
        change_s = self._policy.change_s
        lasting_s = np.maximum(self._remaining_s[rows], change_s)
        cost = weight[rows] * change_s / lasting_s if change_s else np.zeros(len(rows))
        return PairMatchingInput(
            weight=weight[rows],
            kind=kind,
            speed=self._speeds_of(list(kinds)),
            least_speed=np.array(least, dtype=np.float64),
            move_cost=np.where(runs, cost, 0.0),
            co_runner=self._partners(rows),
            running=runs,
            fixed=self._fixed[rows],
            roles=None if self._snapshot.mechanism.unlimited else self._roles(rows),
            apart=self._gpu_occupancy.guest_rules.barred_pairs(rows.tolist()),
        )

    def _speeds_of(self, kinds: Sequence[tuple[JobKind | None, int]]) -> FloatColumn:
        """Of each kind, of one program, beside each; 0 also where the programs do not share."""
        speed = self._speeds.of([kind for kind, _ in kinds])
        for at, (_, program) in enumerate(kinds):
            barred = self._gpu_occupancy.guest_rules.barred_programs(program)
            if barred:
                speed[at, [other in barred for _, other in kinds]] = 0.0
        return speed

    def _roles(self, rows: IntColumn) -> PairRoles:
        rules, co_runner = self._gpu_occupancy.guest_rules, self._partners(rows)
        return PairRoles(self._snapshot, rules, rows, runs=self._runs, fixed=self._fixed, co_runner=co_runner)

    def _partners(self, rows: IntColumn) -> IntColumn:
        """Of each job, the number of the one with whom it shares all GPUs of both, or -1."""
        at = {row: number for number, row in enumerate(rows.tolist())}
        co_runners = np.full(len(rows), -1, dtype=np.int64)
        for row, number in at.items():
            devices = self._snapshot.devices.of(row).tolist()
            beside = {one for device in devices for one in self._gpu_occupancy.jobs_on[device] if one != row}
            if len(beside) == 1:
                (other,) = beside
                if self._snapshot.devices.of(other).tolist() == devices:
                    co_runners[number] = at.get(other, -1)
        return co_runners

    def _plan(self, ranked: IntColumn, on_cpus: IntColumn) -> SharingPlan:
        placing, slot_placement, snapshot = self._placing, self._slot_placement, self._snapshot
        leaving = sorted(slot_placement.leaving)
        placing.verdict[leaving] = JobVerdict.PREEMPT
        for row, claim in slot_placement.claims.items():
            placing.record(row, claim)
        for row in placing.candidates(on_cpus).tolist():
            pieces = slot_placement.place_cpu_job(row)
            if pieces is not None:
                placing.record(row, JobPlacement(pieces, at_once=True))
        ripe_s = find_next_preemptible_s(snapshot, placing.verdict, self._policy.min_run_s)
        next_event_s = min(ripe_s, find_next_guess_s(snapshot, placing.verdict))
        # What was put off to the next decision comes up there only if this one changes something.
        changes = bool(leaving) or any(claim.at_once for claim in slot_placement.claims.values())
        plan = build_plan(
            placing,
            SRSF_SHARE,
            ranked,
            score=self._score,
            score_name="remaining_gpu_s",
            preempts=self._preempts(leaving),
            next_event_s=snapshot.now_s if slot_placement.deferred and changes else next_event_s,
        )
        made = make_sharing_plan(
            plan, snapshot.jobs.job_id, slot_placement.devices, {"gpus_free_after": float(slot_placement.gpus_left)}
        )
        return replace(made, decisions=self._reasons(leaving).reports())

    def _reasons(self, leaving: Sequence[int]) -> PairReasons:
        stays = self._runs.copy()
        stays[leaving] = False
        return PairReasons(
            self._snapshot,
            self._interference_view,
            stays=stays,
            placed=self._slot_placement.devices,
            weight=self._weight,
            caution=self._policy.caution,
        )

    def _preempts(self, leaving: Sequence[int]) -> tuple[PreemptJob, ...]:
        slot_placement, job_id = self._slot_placement, self._snapshot.jobs.job_id
        takers: dict[int, list[int]] = {}
        for row, devices in slot_placement.devices.items():
            for device in devices:
                takers.setdefault(device, []).append(row)
        found = []
        for row in leaving:
            mine = self._snapshot.devices.of(row).tolist()
            rows = sorted({one for device in mine for one in takers.get(device, ())} - {row})
            ids = tuple(int(job_id[one]) for one in rows)
            shown = ", ".join(map(str, ids[:3])) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")
            if row in slot_placement.devices:
                reason = "it moves: jobs get more done in other pairs"
            elif ids:
                reason = f"its GPUs do more for {'job' if len(ids) == 1 else 'jobs'} {shown}"
            else:
                reason = "its GPUs do more for the job beside it alone"
            found.append(PreemptJob(int(job_id[row]), ids, reason))
        return tuple(found)
