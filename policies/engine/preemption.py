"""The placement pass of a preemptive policy: jobs take their places in order, from worse-ranked running jobs if need be."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.engine.allocations import PreemptibleAllocations
from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.kept_nodes import KeptNodes
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation
from slurm_soda.policies.engine.placement_pass import PlacementPass, RefusedShapes
from slurm_soda.policies.engine.victims import VictimSearch
from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn, JobState, JobTable


def find_preemptible(snapshot: ClusterSnapshot, min_run_s: float) -> BoolColumn:
    """Running GPU jobs that can checkpoint and have run for at least ``min_run_s`` since their last start.

    Jobs without GPUs are left alone: preempting one would free nothing that a policy on GPU service counts.
    """
    jobs = snapshot.jobs
    preemptible = snapshot.now_s >= jobs.start_s + min_run_s  # the same sum as in find_next_preemptible_s
    flags: BoolColumn = (jobs.state == JobState.RUNNING) & jobs.preemptible & (jobs.gpus > 0) & preemptible
    return flags


def limit_preemptions(jobs: JobTable, max_preemptions: int) -> JobTable:
    """The jobs, of whom those that were preempted so often already may not be preempted any more.

    Whoever builds a snapshot, sodad or the simulator, applies it, so that every policy keeps to it. Each of a job's
    preemptions costs its work since the last checkpoint and a restart; a bound on their number makes it end whatever comes.

    Args:
        jobs: every job of a snapshot.
        max_preemptions: 0: no bound.
    """
    if not max_preemptions:
        return jobs
    return jobs.with_columns(preemptible=jobs.preemptible & (jobs.preemptions < max_preemptions))


def find_next_preemptible_s(snapshot: ClusterSnapshot, verdict: NDArray[np.int8], min_run_s: float) -> float:
    """Earliest time at which one more job may be preempted, once a plan with these verdicts is carried out.

    Infinite if no GPU job is left waiting: then nobody profits.
    """
    jobs, now_s = snapshot.jobs, snapshot.now_s
    starts = verdict == JobVerdict.START
    waits = np.isin(verdict, (JobVerdict.WAIT, JobVerdict.WAIT_FOR_PREEMPTION, JobVerdict.PREEMPT)) & (jobs.gpus > 0)
    if not waits.any():
        return float("inf")
    runs = (
        (starts | (jobs.state == JobState.RUNNING))
        & (verdict != JobVerdict.PREEMPT)
        & (jobs.gpus > 0)
        & jobs.preemptible
    )
    ripe_s = np.where(starts, now_s, jobs.start_s)[runs] + min_run_s
    return float(ripe_s[ripe_s > now_s].min(initial=np.inf))


class PreemptivePass:
    """Gives every waiting job, in order, what is free, what is being vacated, or what worse-ranked jobs hold.

    A preempted job takes part again at its own rank: it may be given other places (it restarts there), so that no
    worse-ranked job is started on them only to be preempted in its turn.

    A waiting job for whom no one may be preempted starts in what is free, but takes it from no one: it may well not start,
    and then somebody would be preempted in place of using what it left. So does one that must stay behind another waiting
    job, on the nodes that Slurm keeps for that one (:class:`.KeptNodes`); on other nodes it takes its places as usual.

    Room in this wide sense only shrinks along the order, so each distinct shape fails at most once: a decision costs
    O(log m) for each start, O(running entries) for each preempting job and for each shape that fails.
    """

    def __init__(
        self, placing: PlacementPass, ranked: IntColumn, reclaimable: BoolColumn, holding: JobTable | None = None
    ) -> None:
        """``ranked`` holds rows in the policy's order; ``reclaimable`` flags the rows that may be preempted; ``holding`` has
        what they leave free, where that is not all they hold, as they share it.
        """
        self._placing = placing
        self._ranked = ranked
        self._position = np.full(len(placing.snapshot.jobs), -1, dtype=np.int64)
        self._position[ranked] = np.arange(len(ranked))
        self._holders = PreemptibleAllocations(
            holding or placing.snapshot.jobs, ranked[reclaimable[ranked]], self._position
        )
        self._search = VictimSearch(self._holders, placing.free_capacity)
        self._victims: list[int] = []
        self._waiters: dict[int, set[int]] = {}
        """Rows that wait for places on a node, by node."""
        may_preempt = placing.snapshot.jobs.may_preempt
        self._barred = set(np.flatnonzero(~may_preempt).tolist())
        """Rows for which no one may be preempted."""
        self._kept = KeptNodes(placing.snapshot, placing.verdict == JobVerdict.WAIT, placing.claims)
        self._left: FreeNodes | None = None
        """What is free now, less what those may start in that stay behind others."""
        self._beside: dict[tuple[int, bytes], RequestShape] = {}
        self._bound: dict[int, RequestShape] = {}
        """Requests of rows that take no places on nodes which are kept for others."""
        self._preempted: list[tuple[int, int]] = []
        """Heap of (position, row): preempted jobs whose turn has not come yet."""

    def run(self) -> tuple[PreemptJob, ...]:
        """Walk the whole order; returns the preemptions, best-ranked victim first.

        A victim that stays after all leaves more free than a request found that was refused before, so those that wait
        are asked again. Each walk serves better-ranked jobs, or as many with fewer victims: it comes to an end, as a
        rule with the second.
        """
        self._walk()
        while self._keep_unneeded():
            self._search = VictimSearch(self._holders, self._placing.free_capacity)
            self._preempted = [(self._rank(row), row) for row in self._victims if row not in self._placing.claims]
            heapify(self._preempted)
            self._walk()
        self._mark_protected()
        return self._preempts()

    def _walk(self) -> None:
        placing = self._placing
        rows = placing.candidates(self._ranked)
        closed = bytearray(len(placing.demand.shapes))
        refusals = RefusedShapes()
        no_room: dict[int, int] = {}
        for row, rank, code in zip(
            rows.tolist(), self._position[rows].tolist(), placing.demand.code[rows].tolist(), strict=True
        ):
            while self._preempted and self._preempted[0][0] < rank:
                self._place_displaced(closed, refusals)
            if closed[code]:
                continue
            kept = None if row in self._barred else self._kept.find(row)
            if row not in self._barred and kept is None:
                self._place(row, rank, code, closed, refusals)
                continue
            if kept is not None and self._place_beside(row, rank, *kept, refusals):
                continue
            if no_room.get(code) != len(self._victims) and not self._start(row, code, kept=kept is not None):
                no_room[code] = len(self._victims)  # room for this request grows only as further victims leave
        while self._preempted:
            self._place_displaced(closed, refusals)

    def _rank(self, row: int) -> int:
        return int(self._position[row])

    def _place_displaced(self, closed: bytearray, refusals: RefusedShapes) -> None:
        rank, row = heappop(self._preempted)
        code = int(self._placing.demand.code[row])
        kept = self._kept.find(row)
        if kept is not None:
            self._place_beside(row, rank, *kept, refusals)
        elif not closed[code]:
            self._place(row, rank, code, closed, refusals)

    def _start(self, row: int, code: int, *, kept: bool) -> bool:
        """Say that a job fits into what is free now, if it does, without taking that: with ``kept`` from others like it."""
        shape = self._placing.demand.shapes[code]
        claim = self._placing.free_capacity.find(shape)
        if claim is None or not claim.at_once:
            return False
        if kept:
            self._left = self._left or self._placing.free_capacity.now.copy()
            pieces = self._left.find(shape)
            if pieces is None:
                return False
            self._left.take(pieces)
        self._placing.unheld.add(row)
        self._placing.record(row, claim)
        return True

    def _place(self, row: int, rank: int, code: int, closed: bytearray, refusals: RefusedShapes) -> None:
        if not self._claim(row, rank, self._shape(row), refusals):
            closed[code] = 1

    def _place_beside(self, row: int, rank: int, kept: BoolColumn, first: int, refusals: RefusedShapes) -> bool:
        """Give a job places on nodes that are not kept for others; whether there are any."""
        placing = self._placing
        code = int(placing.demand.code[row])
        key = code, kept.tobytes()
        if key not in self._beside:
            classes, shape = placing.free_capacity.classes, placing.demand.shapes[code]
            self._beside[key] = classes.bound_to(shape, classes.mask(shape) & ~kept)
        self._bound[row] = self._beside[key]
        if self._claim(row, rank, self._bound[row], refusals):
            placing.behind.pop(row, None)
            return True
        placing.behind[row] = first
        return False

    def _claim(self, row: int, rank: int, shape: RequestShape, refusals: RefusedShapes) -> bool:
        if refusals.cover(shape):
            return False
        placing = self._placing
        claim = placing.free_capacity.find(shape) or self._preempt_for(shape, rank)
        if claim is None:
            refusals.add(shape)
            return False
        placing.claim(row, claim)
        self._note_waiter(row, claim)
        return True

    def _shape(self, row: int) -> RequestShape:
        return self._bound.get(row) or self._placing.demand.shapes[int(self._placing.demand.code[row])]

    def _preempt_for(self, shape: RequestShape, rank: int) -> JobPlacement | None:
        found = self._search.find(shape, rank)
        return None if found is None else self._make_way(*found)

    def _make_way(self, pieces: list[NodeAllocation], victims: list[int]) -> JobPlacement:
        """Preempt who was found for these places."""
        for victim in victims:
            self._placing.verdict[victim] = JobVerdict.PREEMPT
            self._search.leave(victim)
            self._victims.append(victim)
            heappush(self._preempted, (self._rank(victim), victim))
        return JobPlacement(pieces, at_once=False)

    def _note_waiter(self, row: int, claim: JobPlacement) -> None:
        if not claim.at_once:
            for piece in claim.pieces:
                self._waiters.setdefault(piece.node, set()).add(row)

    def _beneficiaries(self, victim: int) -> list[int]:
        """Rows that wait for places on the victim's nodes, best-ranked first."""
        rows = {row for piece in self._holders.pieces(victim) for row in self._waiters.get(piece.node, ())}
        return sorted(rows - {victim}, key=self._rank)

    def _keep_unneeded(self) -> bool:
        """Let a victim stay if those who took its places can be moved to what other victims leave; whether one does.

        Each claim takes the cheapest places at its turn, and a later preemption may free more than it needs.
        """
        before = len(self._victims)
        if before < 2:
            return False
        for victim in sorted(self._victims, key=self._rank):
            if self._may_stay(victim) and self._stays(victim):
                self._placing.verdict[victim] = JobVerdict.RUN
                self._victims.remove(victim)
                self._holders.restore(victim, self._rank(victim))
        return len(self._victims) < before

    def _may_stay(self, victim: int) -> bool:
        """Whether GPUs enough for it are left over where those who took its places could use them; a quick look."""
        placing, soon = self._placing, self._placing.free_capacity.soon
        rows = self._beneficiaries(victim)
        held = [placing.claims[row].pieces for row in [*rows, victim] if row in placing.claims]
        useful = np.zeros(len(soon.gpus), dtype=np.bool_)
        for shape in {self._shape(row) for row in rows}:
            gpus, cpus, memory_mib = shape.least
            enough = (soon.gpus >= gpus) & (soon.cpus >= cpus) & (soon.memory_mib >= memory_mib)
            useful |= enough & placing.free_capacity.classes.mask(shape)
        for pieces in [self._holders.pieces(victim), *held]:
            useful[[piece.node for piece in pieces]] = True
        back = placing.claims.get(victim)
        own = sum(piece.gpus for piece in back.pieces) if back else 0
        return int(placing.snapshot.jobs.gpus[victim]) <= int(soon.gpus[useful].sum()) + own

    def _stays(self, victim: int) -> bool:
        """Try to let a victim stay; leaves everything as it was if that leaves a claim without places."""
        placing, free_capacity, pieces = self._placing, self._placing.free_capacity, self._holders.pieces(victim)
        users = self._beneficiaries(victim)
        before = {row: placing.claims[row] for row in [*users, victim] if row in placing.claims}
        for claim in before.values():
            free_capacity.undo(claim)
        moved: dict[int, JobPlacement] = {}
        if free_capacity.is_free_soon(pieces):
            free_capacity.reoccupy(pieces)
            for row in users:
                found = free_capacity.find(self._shape(row))
                if found is None:
                    break
                free_capacity.hold(found)
                moved[row] = found
            if len(moved) == len(users):
                self._replace_claims(before, moved)
                return True
            for claim in moved.values():
                free_capacity.undo(claim)
            free_capacity.vacate(pieces)
        for claim in before.values():
            free_capacity.hold(claim)
        return False

    def _replace_claims(self, before: dict[int, JobPlacement], after: dict[int, JobPlacement]) -> None:
        for row, claim in before.items():
            del self._placing.claims[row]
            for piece in claim.pieces:
                self._waiters.get(piece.node, set()).discard(row)
        for row, claim in after.items():
            self._placing.record(row, claim)
            self._note_waiter(row, claim)

    def _mark_protected(self) -> None:
        """Tell running jobs that simply run from those that only run on because they may not be preempted."""
        placing, jobs = self._placing, self._placing.snapshot.jobs
        waiting = placing.candidates(self._ranked)
        if not len(waiting):
            return
        first = np.full(int(jobs.partition.max()) + 1, len(self._ranked), dtype=np.int64)
        np.minimum.at(first, jobs.partition[waiting], self._position[waiting])
        running = self._ranked[jobs.state[self._ranked] == JobState.RUNNING]
        fixed = running[~np.isin(running, self._holders.rows)]
        wanted = fixed[self._position[fixed] > first[jobs.partition[fixed]]]
        placing.verdict[wanted] = JobVerdict.PROTECTED

    def _preempts(self) -> tuple[PreemptJob, ...]:
        job_id = self._placing.snapshot.jobs.job_id
        plan = []
        for victim in sorted(self._victims, key=self._rank):
            rows = self._beneficiaries(victim)
            better = [row for row in rows if self._rank(row) < self._rank(victim)]
            ids = tuple(int(job_id[row]) for row in better or rows)
            shown = ", ".join(map(str, ids[:3])) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")
            who = f"job {shown}, which ranks" if len(ids) == 1 else f"jobs {shown}, which rank"
            reason = f"its place goes to {who} before it"
            plan.append(PreemptJob(int(job_id[victim]), ids, reason))
        return tuple(plan)
