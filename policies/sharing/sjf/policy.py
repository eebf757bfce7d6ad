"""Shortest job first that lets jobs share GPUs: SJF-FFS and SJF-BSBF (Luo et al., Sections V-B and VI-A)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from slurm_soda.policies.assembly import assemble, rank, rankable
from slurm_soda.policies.demand import Shape
from slurm_soda.policies.ordered import Ordered
from slurm_soda.policies.placement import Piece
from slurm_soda.policies.plan import Plan, Verdict
from slurm_soda.policies.room import Claim
from slurm_soda.policies.sharing.arithmetic.subbatch import BOUND_CAUTION, Decision, decide
from slurm_soda.policies.sharing.company import Company
from slurm_soda.policies.sharing.plan import SharingPlan, shared, unshared
from slurm_soda.policies.sharing.sjf import waiting
from slurm_soda.policies.sharing.sjf.long_jobs import LONG_S, SHARE, LongJobs, quieter_hours_come
from slurm_soda.policies.sharing.sjf.newcomers import BY_DAY, LEAST_LOSS, PATIENCE, Newcomers
from slurm_soda.policies.sharing.sjf.releases import Releases
from slurm_soda.policies.sharing.sjf.screening import Screen
from slurm_soda.policies.sharing.tenancy import Tenancy, rows_on
from slurm_soda.policies.sharing.view import SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, IntColumn
from slurm_soda.policies.walk import Refusals, Walk

BEST, FIRST = "sjf-bsbf", "sjf-ffs"
MOST = 2
"""Jobs on a GPU: more "rarely improve performance" (Section IV-B)."""
_DIGITS = 6
"""Of seconds: costs that differ by less are the same."""


@dataclass(frozen=True, slots=True)
class SharingSjf:
    """Shortest first; a job that finds no GPUs of its own may join running ones. Nobody is preempted.

    On a snapshot that does not know single GPUs it is ``sjf``, and says so in its facts (``sharing_known`` is 0).

    Attributes:
        name: :data:`BEST` joins where that ends earlier on average (Algorithms 1 and 2), :data:`FIRST` at the first GPUs
            that have room, which is the paper's yardstick.
        most: jobs on one GPU.
        caution: slowdowns count as so many of their expected errors worse than known.
        bound_caution: so many, if these are more, where an owner's bound is at stake, as nobody is parted again.
        literal: Algorithm 1 to the letter. Otherwise :data:`BEST` joins those first whom joining costs least a GPU, where
            the paper joins those first who end soonest; and a long job leaves free GPUs to shorter ones in want of them.
        daytime: work comes by day, so long jobs can run when it is quieter: it joins nobody where GPUs of its own are
            sooner free, and long jobs hold only a part of the GPUs. Not with ``literal``, and not while somebody waits
            since yesterday, or the queue is deep (:func:`.quieter_hours_come`).
        long_s, long_share: with ``daytime`` jobs of more run time than this hold at most this part of the GPUs while
            much shorter ones are there.
    """

    name: str
    most: int = MOST
    caution: float = 0.0
    bound_caution: float = BOUND_CAUTION
    literal: bool = False
    daytime: bool = True
    long_s: float = LONG_S
    long_share: float = SHARE

    @property
    def ours(self) -> bool:
        """Whether it goes beyond the paper."""
        return self.name == BEST and not self.literal

    @property
    def jobs_per_gpu(self) -> int:
        """As set."""
        return self.most

    @property
    def starts_only(self) -> Literal[True]:
        """It preempts nobody."""
        return True

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """O(n log n) in jobs; then O(log m) for a job with GPUs of its own, and O(GPUs + running jobs x sub-batches) in
        numpy for one that looks for company. A job that was refused speaks for all longer ones of its kind, so there are at
        most as many such looks as GPUs that are joined, plus one a kind and size. Of each two kinds that meet so, knowledge
        is asked once for each sub-batch.
        """
        if not isinstance(snapshot, SharingSnapshot):
            return unshared(Ordered("sjf").decide(snapshot), self.name)
        return _Pass(self, snapshot).run()


class _Pass:
    """One decision."""

    def __init__(self, policy: SharingSjf, snapshot: SharingSnapshot) -> None:
        self._policy, self._snapshot = policy, snapshot
        self._walk = Walk(snapshot)
        self._tenancy = Tenancy(snapshot, self._walk.room)
        self._company = Company(snapshot, self._tenancy)
        self._screen: Screen | None = None
        self._newcomers: Newcomers | None = None
        self._long_jobs: LongJobs | None = None
        self._usable_gpus = int(np.count_nonzero(snapshot.nodes.usable[self._tenancy.node]))
        self._by_day = policy.ours and policy.daytime and self._quieter_hours_come()
        self._releases = Releases(self._tenancy, self._company) if self._by_day else None
        self._devices: dict[int, tuple[int, ...]] = {}
        self._sub_batches: dict[int, int] = {}
        self._decisions: dict[int, Decision] = {}
        self._refused: dict[tuple[object, ...], float] = {}
        """Least work of a refused job, by what else it is told from."""
        self._alone = 0
        self._masks: dict[int, BoolColumn] = {}

    def _quieter_hours_come(self) -> bool:
        """For those who wait for GPUs, and whose run time somebody knows."""
        jobs = self._snapshot.jobs
        waits = (self._walk.verdict == Verdict.WAIT) & (jobs.gpus > 0) & np.isfinite(jobs.remaining_s)
        return quieter_hours_come(jobs.waited_s[waits], self._usable_gpus)

    def run(self) -> SharingPlan:
        """Walk the order."""
        jobs, walk = self._snapshot.jobs, self._walk
        score: FloatColumn = jobs.executed_s + jobs.remaining_s
        if self._policy.ours:
            self._heed_shorter_ones(score)
        ranked = rank(rankable(self._snapshot), score, jobs.submit_s)
        rows = walk.candidates(ranked)
        refusals = Refusals()
        for row, code in zip(rows.tolist(), walk.demand.code[rows].tolist(), strict=True):
            shape = walk.demand.shapes[code]
            held_back = self._held_back(row, float(score[row])) if shape.wants_gpus else None
            if held_back is not None:
                self._decisions[row] = held_back
                continue
            pieces = None if refusals.cover(shape) else walk.room.now.find(shape)
            if pieces is not None:
                self._start_alone(row, shape, pieces)
            else:
                refusals.add(shape)
                if shape.wants_gpus:
                    self._join(row, code, shape)
            if self._long_jobs is not None and row in self._devices:
                self._long_jobs.start(float(score[row]), int(jobs.gpus[row]))
        return self._plan(ranked, score)

    def _heed_shorter_ones(self, run_s: FloatColumn) -> None:
        jobs, verdict = self._snapshot.jobs, self._walk.verdict
        waits: BoolColumn = verdict == Verdict.WAIT
        runs: BoolColumn = verdict == Verdict.RUN
        if self._by_day:
            limit_gpus = self._policy.long_share * self._usable_gpus
            self._long_jobs = LongJobs(run_s, jobs.gpus, waits, runs, limit_gpus=limit_gpus, long_s=self._policy.long_s)
        sharing = rows_on(self._tenancy, np.flatnonzero([len(tenants) > 1 for tenants in self._tenancy.tenants]))
        in_want, lacks = waits.copy(), waits.astype(np.float64)
        in_want[sharing] = True
        lacks[sharing] = [1.0 - 1.0 / self._company.pace(row) for row in sharing]
        patience, least_loss = (BY_DAY, LEAST_LOSS) if self._by_day else (PATIENCE, 0.0)
        self._newcomers = Newcomers(run_s, jobs.gpus, in_want, lacks, runs, patience=patience, least_loss=least_loss)

    def _held_back(self, row: int, run_s: float) -> Decision | None:
        """Why a job had better leave free GPUs to shorter ones, as it would hold them for long and cannot be stopped."""
        if self._newcomers is None:
            return None
        jobs = self._snapshot.jobs
        gpus, waited_s, work_s = int(jobs.gpus[row]), float(jobs.waited_s[row]), float(jobs.remaining_s[row])
        free_gpus = int(self._walk.room.now.gpus.sum())
        if self._newcomers.go_first(run_s, gpus, waited_s, free_gpus):
            wanted_gpus = self._newcomers.wanted_gpus(run_s, gpus)
            return waiting.for_newcomers(work_s, wanted_gpus, self._newcomers.waits_s(run_s) - waited_s)
        if self._long_jobs is not None and self._long_jobs.too_many(run_s, gpus, waited_s):
            held_gpus, limit_gpus = self._long_jobs.held_gpus(run_s), self._long_jobs.limit_gpus
            return waiting.for_fewer_long_jobs(work_s, held_gpus, limit_gpus, self._long_jobs.waits_s(run_s) - waited_s)
        return None

    def _start_alone(self, row: int, shape: Shape, pieces: Sequence[Piece]) -> None:
        devices = self._tenancy.take_empty(pieces)
        if shape.wants_gpus:
            self._devices[row] = devices
            self._alone += 1
        self._walk.claim(row, Claim(list(pieces), at_once=True))

    def _join(self, row: int, code: int, shape: Shape) -> None:
        """Find company for a job, or let it wait."""
        work_s = float(self._snapshot.jobs.remaining_s[row])
        consent = self._company.consent(row)
        if not consent.shares or not math.isfinite(work_s) or self._company.kind(row) is None:
            return
        key = (self._company.kind(row), int(self._snapshot.sharing.batch[row]), code, consent.max_slowdown)
        if work_s >= self._refused.get(key, math.inf):
            return
        if self._screen is None:
            self._screen = Screen(
                self._snapshot, self._tenancy, self._company, self._policy.most,
                max(self._policy.caution, self._policy.bound_caution),
            )  # fmt: skip
        for devices, pieces in self._places(row, code, shape, self._screen):
            decision = self._judge(row, devices)
            if row not in self._decisions or decision.share:
                self._decisions[row] = decision
            if decision.share:
                self._start_beside(row, devices, pieces, decision)
                return
        self._refused[key] = work_s

    def _places(self, row: int, code: int, shape: Shape, screen: Screen) -> Iterator[tuple[list[int], list[Piece]]]:
        """Devices for a job, best first: shared ones before free ones, as free ones would not make it end earlier."""
        if code not in self._masks:
            self._masks[code] = self._tenancy.classes.mask(shape)
        nodes = self._masks[code]
        gpus = int(self._snapshot.jobs.gpus[row])
        _, cpus, memory_mib = shape.least
        now = self._walk.room.now
        roomy: BoolColumn = nodes & (now.cpus >= cpus) & (now.memory_mib >= memory_mib)
        if not self._enough(shape, gpus, roomy, screen.by_node(np.arange(len(screen)))):
            return
        order = self._order(row, nodes, screen)
        enough = self._enough(shape, gpus, roomy, screen.by_node(order))
        picked = self._tenancy.pick(shape, self._ranked(order, roomy, screen)) if enough else None
        if picked is not None:
            yield picked

    def _enough(self, shape: Shape, gpus: int, nodes: BoolColumn, shared: IntColumn) -> bool:
        """Whether free GPUs and these shared ones, by node, might do."""
        per_node = np.where(nodes, shared + self._walk.room.now.gpus, 0)
        if shape.units:
            return int(per_node.sum()) >= gpus
        return int(np.count_nonzero(per_node >= shape.gpus)) >= shape.nodes

    def _order(self, row: int, nodes: BoolColumn, screen: Screen) -> IntColumn:
        """Groups of devices that a job may join: the first ones first, or those where it gains, best first."""
        if self._policy.name == FIRST:
            return np.flatnonzero(screen.may_meet(row))
        gpus = int(self._snapshot.jobs.gpus[row])
        together, after, apart = screen.means_s(row)
        if self._releases is not None:
            missing = gpus - int(self._walk.room.now.gpus[nodes].sum())
            after = np.minimum(after, apart + self._releases.wait_s(nodes, missing) / 2)
        gains = np.flatnonzero(together < after)
        if not self._policy.ours:
            return gains[np.argsort(together[gains], kind="stable")]
        used = np.minimum(screen.room(nodes)[gains], gpus)
        cost = (together - apart)[gains] / np.maximum(used, 1)
        if not self._by_day:
            return gains[np.argsort(cost, kind="stable")]
        # Partners that outlast the new job cost the same: then, as in the paper, who ends soonest.
        return gains[np.lexsort((apart[gains], np.round(cost, _DIGITS)))]

    def _ranked(self, order: IntColumn, nodes: BoolColumn, screen: Screen) -> Iterator[int]:
        yield from screen.devices(order, nodes)
        yield from self._tenancy.free(nodes)

    def _judge(self, row: int, devices: Sequence[int]) -> Decision:
        """Algorithm 2 beside everybody who is on these devices."""
        company = self._company
        rows = rows_on(self._tenancy, devices)
        new = company.new_job(row)
        batch = int(self._snapshot.sharing.batch[row])
        own = [[device for device in devices if one in self._tenancy.tenants[device]] for one in rows]
        partners = [company.partner(one, mine) for one, mine in zip(rows, own, strict=True)]
        decision = decide(
            new, partners,
            lambda size: [company.meet(row, size if new.batch > 1 else batch, one, devices) for one in rows],
            self._policy.caution, self._policy.bound_caution,
        )  # fmt: skip
        if self._policy.name == FIRST and not decision.share:
            fits = next((trial for trial in decision.trials if not trial.refused), None)
            if fits is not None:
                reason = "starts at once: first fit does not ask whether that ends earlier on average"
                return replace(decision, share=True, start_s=0.0, chosen=fits, reason=reason)
        return decision

    def _start_beside(self, row: int, devices: Sequence[int], pieces: Sequence[Piece], decision: Decision) -> None:
        self._walk.room.hold(self._tenancy.take(devices, pieces))
        self._walk.record(row, Claim(list(pieces), at_once=True))
        self._devices[row] = tuple(devices)
        batch = int(self._snapshot.sharing.batch[row])
        if decision.chosen is not None and 0 < decision.chosen.sub_batch < batch and len(decision.trials) > 1:
            self._sub_batches[row] = decision.chosen.sub_batch

    def _plan(self, ranked: IntColumn, score: FloatColumn) -> SharingPlan:
        waits = bool(len(self._walk.candidates(ranked)))
        # Those who start alone now can be joined by those who wait as soon as they run.
        soon = self._alone and waits and bool(self._snapshot.sharing.shares.any())
        plan = assemble(
            self._walk, self._policy.name, ranked, score=score, score_name="run_time_s",
            next_event_s=self._snapshot.now_s if soon else math.inf,
        )  # fmt: skip
        beside = {"starts_beside_others": float(len(self._devices) - self._alone)}
        return shared(
            plan, self._snapshot.jobs.job_id, self._devices, beside,
            sub_batches=self._sub_batches, decisions=self._decisions,
        )  # fmt: skip
