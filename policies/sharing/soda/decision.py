"""One decision of ``soda``: places in order, preemption where it pays, and then guests beside who runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.engine.plan_builder import build_plan, find_rankable_rows, rank_rows
from slurm_soda.policies.engine.preemption import PreemptivePass, find_preemptible
from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.sharing.arithmetic.sharing_decision import SharingDecision, start_all_the_same
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.plan import SharingPlan, make_sharing_plan
from slurm_soda.policies.sharing.sjf.partner_screening import PartnerScreen
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.sharing.soda.expected_waits import expect_waits_s
from slurm_soda.policies.sharing.soda.preemption_price import find_paying_preemptions
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn, JobState

_MOST_REFUSALS = 32
"""Jobs that find no host, one after the other, before a decision looks for hosts no more."""


class SodaDecision:
    """Of one snapshot."""

    def __init__(self, policy, snapshot: SharingSnapshot, service: FloatColumn) -> None:
        """``service``: GPUs x rank of each job, by row."""
        self._policy, self._snapshot, self._service = policy, snapshot, service
        self._placing = PlacementPass(snapshot)
        self._gpu_occupancy = GpuOccupancy(snapshot, self._placing.free_capacity)
        self._interference_view = InterferenceView(snapshot, self._gpu_occupancy)
        self._runs: BoolColumn = snapshot.jobs.state == JobState.RUNNING
        self._total_gpus = max(int(snapshot.nodes.gpus[snapshot.nodes.usable].sum()), 1)
        self._devices: dict[int, tuple[int, ...]] = {}
        self._sub_batches: dict[int, int] = {}
        self._decisions: dict[int, SharingDecision] = {}
        self._starts = 0
        self._masks: dict[int, BoolColumn] = {}

    def run(self) -> SharingPlan:
        jobs, placing = self._snapshot.jobs, self._placing
        rows = find_rankable_rows(self._snapshot)
        on_gpus = rows[jobs.gpus[rows] > 0]
        guests, several = self._guests()
        service = self._slot_service(guests)
        ranked = rank_rows(on_gpus, service, jobs.submit_s)
        reclaimable = self._reclaimable(ranked, service, guests, several)
        preempts = list(PreemptivePass(placing, ranked, reclaimable).run())
        preempts += self._with_hosts(preempts, guests)
        self._name_devices(preempts)
        self._join(ranked)
        on_cpus = rank_rows(rows[jobs.gpus[rows] == 0], jobs.submit_s)
        placing.start_fitting(on_cpus, skip=True)
        return self._plan(np.concatenate((ranked, on_cpus)), tuple(preempts))

    def _guests(self) -> tuple[dict[int, list[int]], set[int]]:
        """Guests of each host that all its guests have all their GPUs from; and jobs that share in another way."""
        rules, jobs_on = self._gpu_occupancy.guest_rules, self._gpu_occupancy.jobs_on
        beside: dict[int, set[int]] = {}
        hosts: dict[int, set[int]] = {}
        for device, there in enumerate(jobs_on):
            if len(there) > 1:
                host = rules.host(device, there)
                for row in there:
                    beside.setdefault(row, set()).update(there)
                    hosts.setdefault(row, set()).add(host)
        several = {row for row, mine in hosts.items() if len(mine) > 1}
        # Who shares only a part of its GPUs as a guest holds others of its own.
        for row, mine in hosts.items():
            if mine != {row} and any(len(jobs_on[device]) == 1 for device in self._held(row)):
                several.add(row)
        several = {row for one in several for row in beside[one]}
        guests: dict[int, list[int]] = {}
        for row, mine in hosts.items():
            (host,) = mine if len(mine) == 1 else (row,)
            if host != row and row not in several:
                guests.setdefault(host, []).append(row)
        return guests, several

    def _held(self, row: int) -> list[int]:
        held: list[int] = self._snapshot.devices.of(row).tolist()
        return held

    def _slot_service(self, guests: dict[int, list[int]]) -> FloatColumn:
        """A host ranks as the best of those who would lose their GPUs with it."""
        service = self._service.copy()
        for host, mine in guests.items():
            service[host] = min(service[host], *(self._service[row] for row in mine))
        return service

    def _reclaimable(
        self, ranked: IntColumn, service: FloatColumn, guests: dict[int, list[int]], several: set[int]
    ) -> BoolColumn:
        jobs = self._snapshot.jobs
        able = find_preemptible(self._snapshot, 0.0)
        for host, mine in guests.items():
            able[host] &= bool(able[mine].all()) and self._snapshot.mechanism.preempts_hosts
        able[[row for mine in guests.values() for row in mine]] = False
        able[list(several)] = False
        price_s = np.full(len(jobs), self._policy.change_s)
        for host, mine in guests.items():
            price_s[host] += self._policy.change_s * len(mine)
        running = np.flatnonzero(able)
        waiting = self._placing.candidates(ranked)
        pays = find_paying_preemptions(
            service[running] / self._policy.resolution,
            jobs.gpus[running].astype(np.float64),
            price_s[running],
            service[waiting],
            self._total_gpus,
        )
        able[running] = pays
        return able

    def _with_hosts(self, preempts: Sequence[PreemptJob], guests: dict[int, list[int]]) -> list[PreemptJob]:
        """Guests leave with their hosts."""
        jobs = self._snapshot.jobs
        found = []
        for preempt in preempts:
            for row in guests.get(jobs.row(preempt.job_id), ()):
                self._placing.verdict[row] = JobVerdict.PREEMPT
                found.append(PreemptJob(int(jobs.job_id[row]), preempt.for_jobs, "its host leaves"))
        return found

    def _name_devices(self, preempts: Sequence[PreemptJob]) -> None:
        """GPUs of those who got places; on these nobody else starts."""
        jobs, occupancy = self._snapshot.jobs, self._gpu_occupancy
        vacated: dict[int, list[int]] = {}
        for preempt in preempts:
            row = jobs.row(preempt.job_id)
            occupancy.guest_rules.depart(row)
            for device in self._held(row):
                occupancy.jobs_on[device].remove(row)
                occupancy.taken[device] = True
                if not occupancy.jobs_on[device]:
                    vacated.setdefault(int(occupancy.node[device]), []).append(device)
        for row, claim in self._placing.claims.items():
            if claim.at_once:
                self._devices[row] = occupancy.take_empty(claim.pieces)
                self._starts += 1
        for row, claim in self._placing.claims.items():
            if not claim.at_once:
                self._devices[row] = self._vacated(claim.pieces, vacated)
        self._devices = {row: self._devices[row] for row in self._placing.claims}

    def _vacated(self, pieces: Sequence[NodeAllocation], vacated: dict[int, list[int]]) -> tuple[int, ...]:
        devices: list[int] = []
        for piece in pieces:
            there = vacated.get(piece.node, [])
            mine = [there.pop() for _ in range(min(piece.gpus, len(there)))]
            rest = piece.gpus - len(mine)
            empty = self._gpu_occupancy.free_on(piece.node)[:rest]
            devices += mine
            if empty:
                devices += self._gpu_occupancy.take_empty([piece._replace(gpus=len(empty))])
        return tuple(sorted(devices))

    def _join(self, ranked: IntColumn) -> None:
        """Those who still wait join others where that makes jobs end earlier on the whole."""
        waiting = self._placing.candidates(ranked)
        if not len(waiting) or not self._snapshot.sharing.shares[waiting].any():
            return
        self._screen = PartnerScreen(self._snapshot, self._gpu_occupancy, self._interference_view, 2, 2.0)
        if not len(self._screen):
            return
        jobs = self._snapshot.jobs
        waits_s = self._waits_s(waiting)
        host_gpus = np.array([jobs.gpus[group.rows[0]] for group in self._screen.groups], dtype=np.float64)
        self._host_weight = 1.0 + host_gpus * len(waiting) / self._total_gpus
        refused = 0
        for at, row in enumerate(waiting.tolist()):
            if refused >= _MOST_REFUSALS:
                break
            if not self._snapshot.sharing.shares[row] or not math.isfinite(float(jobs.remaining_s[row])):
                continue
            behind = (len(waiting) - at - 1) * int(jobs.gpus[row]) / self._total_gpus
            refused = 0 if self._join_one(row, waits_s[at], behind) else refused + 1

    def _waits_s(self, waiting: IntColumn) -> list[float]:
        jobs = self._snapshot.jobs
        shared = {row for there in self._gpu_occupancy.jobs_on if len(there) > 1 for row in there}
        running = []
        for row in np.flatnonzero(self._runs & (jobs.gpus > 0) & (self._placing.verdict != JobVerdict.PREEMPT)).tolist():
            left_s = self._interference_view.left_s(row) if row in shared else float(jobs.remaining_s[row])
            running.append((left_s if math.isfinite(left_s) else 1e12, int(jobs.gpus[row])))
        told = [
            (run_s if math.isfinite(run_s) else 1e12, gpus)
            for run_s, gpus in zip(jobs.remaining_s[waiting].tolist(), jobs.gpus[waiting].tolist(), strict=True)
        ]
        return expect_waits_s(int(self._placing.free_capacity.now.gpus.sum()), running, told)

    def _join_one(self, row: int, wait_s: float, behind: float) -> bool:
        """Whether a job found hosts; ``behind``: jobs behind it x its part of the cluster."""
        screen, jobs = self._screen, self._snapshot.jobs
        work_s, gpus = float(jobs.remaining_s[row]), int(jobs.gpus[row])
        new_end_s, host_end_s = screen.completions_s(row)
        with np.errstate(invalid="ignore"):
            relieved_s = np.clip(work_s - np.maximum(new_end_s - host_end_s, 0.0), 0.0, work_s)
            own = wait_s + work_s - new_end_s + behind * relieved_s
            cost = self._host_weight * (host_end_s - screen.work_s)
            gain = np.where(np.isfinite(new_end_s), own - cost, -np.inf)
        good = np.flatnonzero(gain > 0)
        if not len(good):
            return False
        code = int(self._placing.demand.code[row])
        shape = self._placing.demand.shapes[code]
        if code not in self._masks:
            self._masks[code] = self._gpu_occupancy.classes.mask(shape)
        nodes = self._masks[code]
        used = np.minimum(screen.free_capacity(nodes)[good], gpus)
        good, used = good[used > 0], used[used > 0]
        if not len(good):
            return False
        order = good[np.argsort(-(gain[good] + cost[good] - cost[good] * gpus / used), kind="stable")]
        picked = self._gpu_occupancy.pick(row, shape, self._candidates(order, nodes))
        if picked is None:
            return False
        devices, pieces = picked
        groups = {group for group in order.tolist() if set(screen.groups[group].devices) & set(devices)}
        total = min(float(own[group]) for group in groups) - sum(float(cost[group]) for group in groups) if groups else 0.0
        if total <= 0:
            return False
        decision = self._interference_view.judge(row, devices)
        decision = start_all_the_same(decision, f"starts now: all jobs together end {total:.0f} s earlier")
        self._decisions[row] = decision
        if not decision.share:
            return False
        self._placing.free_capacity.hold(self._gpu_occupancy.take(devices, pieces))
        self._placing.record(row, JobPlacement(list(pieces), at_once=True))
        self._devices[row] = tuple(devices)
        batch = int(self._snapshot.sharing.batch[row])
        if decision.chosen is not None and 0 < decision.chosen.sub_batch < batch and len(decision.trials) > 1:
            self._sub_batches[row] = decision.chosen.sub_batch
        return True

    def _candidates(self, order: IntColumn, nodes: BoolColumn) -> Iterator[int]:
        yield from self._screen.devices(order, nodes)
        yield from self._gpu_occupancy.free(nodes)

    def _plan(self, ranked: IntColumn, preempts: tuple[PreemptJob, ...]) -> SharingPlan:
        snapshot, placing = self._snapshot, self._placing
        waits = bool(len(placing.candidates(ranked)))
        soon = self._starts and waits and bool(snapshot.sharing.shares.any())
        plan = build_plan(
            placing,
            self._policy.name,
            ranked,
            score=self._service,
            score_name="rank_gpu_s",
            preempts=preempts,
            next_event_s=snapshot.now_s if soon else self._next_event_s(waits=waits),
        )
        beside = {"starts_beside_others": float(len(self._devices) - self._starts)}
        return make_sharing_plan(
            plan, snapshot.jobs.job_id, self._devices, beside, sub_batches=self._sub_batches, decisions=self._decisions
        )

    def _next_event_s(self, *, waits: bool) -> float:
        """Ranks of running jobs grow with what they have run: ask again once the youngest has run a tenth longer."""
        jobs = self._snapshot.jobs
        running = self._runs & jobs.preemptible & (jobs.gpus > 0)
        if not waits or not running.any():
            return math.inf
        return self._snapshot.now_s + max(60.0, 0.1 * float(jobs.executed_s[running].min()))
