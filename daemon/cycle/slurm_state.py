"""One reading of the cluster: everything that a cycle looks at, read once."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field, replace

import numpy as np

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.cycle.stopwatch import Stopwatch
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.policies.bands.bands import OFF, PriorityParts, assign_bands, find_tiers
from slurm_soda.policies.engine.lift_bounds import mark_overdue
from slurm_soda.policies.engine.preemption import limit_preemptions
from slurm_soda.policies.engine.vain_preemptions import GpuRequest, bar_preemptions
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, JobTable
from slurm_soda.slurm_ext.client import Allocation, SlurmClient, SlurmJob, SlurmNode
from slurm_soda.slurm_ext.errors import PriorityPluginError, SlurmCommandError, SlurmError, SlurmReplyError
from slurm_soda.slurm_ext.read.job_states import waits_for_places
from slurm_soda.slurm_ext.read.node_needs import KeptNodeFlags, with_node_needs
from slurm_soda.slurm_ext.read.priority_parts import ShownPriority
from slurm_soda.slurm_ext.read.snapshot import build_snapshot, is_preemptible, needs_allocation
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob

AllocationKey = tuple[int, int]
"""Job id and restart count: a run keeps its allocation."""

UNREADABLE_ALLOCATION_S = 60.0
"""A run whose allocation cannot be read is taken to be spread evenly over its nodes for so long."""

ALLOCATIONS_WITHIN_S = 3.0
"""A cycle begins no further question about allocations after so long. A daemon that starts on a full cluster learns them in
several cycles; until then it takes what it does not know to be spread evenly."""

RUNS_PER_QUESTION = 50
"""Runs that Slurm is asked about together: as many answers as fit into a fraction of a second."""

TIERS_FOR_S = 60.0
"""PriorityTiers are taken to stay as they are for so long."""


_UNKNOWN = (math.nan, math.nan)
"""Points of a job that Slurm told none of."""


@dataclass(frozen=True, slots=True)
class SlurmState:
    """What Slurm said, at one instant."""

    now_s: float
    """By the wall clock, as Slurm's own times."""
    steady_s: float
    """By the clock that nobody sets: for all that lasts."""
    jobs: Mapping[int, SlurmJob]
    nodes: list[SlurmNode]
    site_factors: Mapping[int, int]
    allocations: Mapping[int, Allocation]
    tiers: Mapping[str, int] = field(default_factory=dict)
    """PriorityTier of partitions; empty where no two of them have waiting jobs."""
    waiting: Mapping[int, WaitingJob] | None = None
    """What else Slurm tells of waiting jobs; ``None`` where nobody asked, as nobody is preempted for or joined by them.
    Nobody is preempted for a job that is missing either: for none where Slurm did not answer."""
    node_flags: KeptNodeFlags = field(default_factory=KeptNodeFlags)
    priority_parts: Mapping[int, ShownPriority] = field(default_factory=dict)
    """Of jobs that wait, and of those that were seen to wait before they ran; empty where nobody asked."""
    most_earned: int = 0
    """Points of priority that fair share and age can give together."""
    no_order: str = ""
    """Why jobs cannot be ordered at this site, so that nothing is to be changed; empty where they can."""

    def snapshot(
        self,
        job_cache: JobCache,
        *,
        leaving: Collection[int],
        requeued: Collection[int],
        refused: Collection[int],
        max_preemptions: int = 0,
        paused: Collection[GpuRequest] = (),
        passing_limit_s: float = math.inf,
    ) -> ClusterSnapshot:
        """What a policy sees of this Slurm state.

        Args:
            job_cache: the jobs' past; it has taken in this Slurm state.
            leaving: running jobs that were told to checkpoint: their places count as being vacated.
            requeued: jobs that we requeued and that wait out Slurm's begin time.
            refused: running jobs that Slurm refused to requeue lately: no policy chooses them.
            max_preemptions: nor those that were preempted so often; 0: no bound.
            paused: requests for which others were preempted in vain lately: no one is preempted for such jobs.
            passing_limit_s: jobs that have waited so long are overdue, unless Slurm says that they lack more than resources:
                then it keeps no nodes for them.
        """
        snapshot = build_snapshot(
            self.now_s,
            list(self.jobs.values()),
            self.nodes,
            self.site_factors,
            job_cache.past(),
            self.allocations,
            requeued=requeued,
        )
        snapshot = with_node_needs(snapshot, self.jobs, self.nodes, self.waiting, self.node_flags)
        table = bar_preemptions(limit_preemptions(snapshot.jobs, max_preemptions), paused)
        table = self._with_overdue(table, passing_limit_s)
        if leaving:
            going = np.isin(table.job_id, list(leaving)) & (table.state == JobState.RUNNING)
            table = table.with_columns(state=np.where(going, np.int8(JobState.COMPLETING), table.state))
        if refused:
            table = table.with_columns(preemptible=table.preemptible & ~np.isin(table.job_id, list(refused)))
        return replace(snapshot, jobs=table, tiers=self.tiers)

    def with_bands(self, snapshot: ClusterSnapshot, bands: str) -> ClusterSnapshot:
        """The snapshot, which knows its pools, with the band of each job; tiers of pools are no wish of the site."""
        if bands == OFF:
            return snapshot
        jobs = snapshot.jobs
        shown = [self.priority_parts.get(job_id, _UNKNOWN) for job_id in jobs.job_id.tolist()]
        points = np.array(shown, dtype=np.float64).reshape(len(shown), 2)
        # A run from before this sodad: as another job of its user in its partition, whose fair share is the same.
        known = {key: at for at, key in enumerate(_owners(jobs)) if not math.isnan(points[at, 0])}
        for at, key in enumerate(_owners(jobs)):
            if math.isnan(points[at, 0]) and jobs.state[at] == JobState.RUNNING and key in known:
                points[at] = points[known[key]]
        parts = PriorityParts(find_tiers(snapshot, of_base=True), points[:, 0], points[:, 1], self.most_earned)
        waits = (jobs.state == JobState.PENDING) | (jobs.state == JobState.BLOCKED)
        return replace(snapshot, jobs=jobs.with_columns(band=assign_bands(parts, bands, ~waits)))

    def _with_overdue(self, table: JobTable, passing_limit_s: float) -> JobTable:
        table = mark_overdue(table, passing_limit_s)
        rows = np.flatnonzero(table.overdue)
        jobs = [self.jobs[job_id] for job_id in table.job_id[rows].tolist()]
        table.overdue[rows] = [waits_for_places(job.state, job.reason) for job in jobs]
        return table


def _owners(jobs: JobTable) -> list[tuple[int, int]]:
    """User and partition of each job."""
    return list(zip(jobs.user.tolist(), jobs.partition.tolist(), strict=True))


def _may_preempt(jobs: Mapping[int, SlurmJob]) -> bool:
    """Whether GPU jobs wait beside others that may be preempted."""
    waits = any(job.state == "PENDING" and job.gpus for job in jobs.values())
    return waits and any(job.state == "RUNNING" and job.gpus and is_preemptible(job) for job in jobs.values())


def _may_join(jobs: Mapping[int, SlurmJob]) -> bool:
    """Whether GPU jobs wait beside others that run: a guest is sent to nodes by name, so what else it asks for counts."""
    waits = any(job.state == "PENDING" and job.gpus for job in jobs.values())
    return waits and any(job.state == "RUNNING" and job.gpus for job in jobs.values())


@dataclass(slots=True)
class SlurmReader:
    """Reads Slurm; remembers what multi-node runs hold, which Slurm tells only run by run."""

    client: SlurmClient
    _held: dict[AllocationKey, Allocation] = field(default_factory=dict)
    _unreadable: dict[AllocationKey, float] = field(default_factory=dict)
    """Runs of which the answer could not be read, and when, by the steady clock, they are asked about again."""
    unknown: int = 0
    """Runs at the last reading that Slurm has not been asked about yet."""
    _most: int = RUNS_PER_QUESTION
    """Runs in the next question: fewer after one that Slurm did not answer in time."""
    _tiers: Mapping[str, int] = field(default_factory=dict)
    _tiers_of: Set[str] = frozenset()
    """Lists of partitions that jobs named when the tiers were read."""
    _tiers_until_s: float = float("-inf")
    _priority_parts: Mapping[int, ShownPriority] = field(default_factory=dict)
    _most_earned: int = 0
    _most_earned_until_s: float = float("-inf")
    _node_flags: KeptNodeFlags = field(default_factory=KeptNodeFlags)
    _waiting_failed: bool = False
    """The last question about waiting jobs was not answered, and the log says so."""

    def read(
        self, at: Instant, watch: Stopwatch, *, asks: bool = True, devices: bool = False, bands: bool = False
    ) -> SlurmState:
        """Read everything once; without ``asks`` nothing that matters for a decision alone, with ``devices`` also which GPUs
        jobs hold, with ``bands`` of what priorities are made.

        Raises:
            SlurmError: Slurm did not answer, or not readably.
        """
        with watch("observe.jobs"):
            jobs = {record.job_id: record for record in self.client.jobs()}
        with watch("observe.nodes"):
            nodes = self.client.nodes()
        with watch("observe.site_factors"):
            site_factors, no_order = self._site_factors()
        with watch("observe.allocations"):
            allocations = self._allocations(jobs, at.steady_s, watch, devices=devices)
        with watch("observe.tiers"):
            tiers = self._partition_tiers(jobs, at.steady_s)
        with watch("observe.waiting"):
            if bands and asks and not no_order:
                self._read_priorities(jobs, at.steady_s)
            waiting = self._waiting() if asks and (_may_preempt(jobs) or (devices and _may_join(jobs))) else None
        return SlurmState(
            at.now_s, at.steady_s, jobs, nodes, site_factors, allocations, tiers, waiting, self._node_flags,
            dict(self._priority_parts), self._most_earned, no_order,
        )  # fmt: skip

    def _read_priorities(self, jobs: Mapping[int, SlurmJob], steady_s: float) -> None:
        """A job that starts keeps what it waited with, as in Slurm; without an answer all keep what they had."""
        kept = {job_id: shown for job_id, shown in self._priority_parts.items() if job_id in jobs}
        try:
            if steady_s >= self._most_earned_until_s:
                self._most_earned = self.client.most_earned_priority()
                self._most_earned_until_s = steady_s + TIERS_FOR_S
            if any(job.state == "PENDING" for job in jobs.values()):
                kept |= self.client.priority_parts()
        except SlurmError as error:
            log(logging.WARNING, "priorities-not-read", error=error)
        self._priority_parts = kept

    def _site_factors(self) -> tuple[Mapping[int, int], str]:
        """SiteFactors, and why there are none."""
        try:
            return self.client.site_factors(), ""
        except PriorityPluginError as error:
            return {}, str(error)

    def _waiting(self) -> Mapping[int, WaitingJob]:
        """Nothing of any job where Slurm does not answer: the cycle goes on, and preempts no one."""
        try:
            waiting = self.client.waiting_jobs()
        except SlurmError as error:
            if not self._waiting_failed:
                log(logging.WARNING, "waiting-jobs-not-read", error=error)
            self._waiting_failed = True
            return {}
        self._waiting_failed = False
        return waiting

    def _partition_tiers(self, jobs: Mapping[int, SlurmJob], steady_s: float) -> Mapping[str, int]:
        """Asked for once a minute, and when a job names a new partition; never where all jobs wait in one."""
        lists = {job.partition for job in jobs.values() if job.state == "PENDING"}
        if len(lists) < 2:
            return {}
        if steady_s >= self._tiers_until_s or not lists <= self._tiers_of:
            self._tiers_of, self._tiers_until_s = lists, steady_s + TIERS_FOR_S
            try:
                self._tiers = self.client.partition_tiers()
            except SlurmError as error:
                # Without them jobs of more partitions count as competing, and nothing else changes.
                log(logging.WARNING, "tiers-not-read", error=error)
        return self._tiers

    def _allocations(
        self, jobs: Mapping[int, SlurmJob], steady_s: float, watch: Stopwatch, *, devices: bool
    ) -> dict[int, Allocation]:
        wide = [job for job in jobs.values() if job.state == "RUNNING" and needs_allocation(job, devices=devices)]
        keys = {record.job_id: (record.job_id, record.restarts) for record in wide}
        present = set(keys.values())
        self._held = {key: held for key, held in self._held.items() if key in present}
        self._unreadable = {key: again_s for key, again_s in self._unreadable.items() if key in present}
        wanted = [k for k in present - self._held.keys() if steady_s >= self._unreadable.get(k, float("-inf"))]
        self.unknown = len(wanted)
        until_s = watch.clock.elapsed_s() + ALLOCATIONS_WITHIN_S
        # The newest are asked about first, since their nodes are those that change; those on one node last, whose GPUs alone
        # are not known.
        wanted.sort(key=lambda key: (jobs[key[0]].nodes > 1, key))
        while wanted and watch.clock.elapsed_s() < until_s:
            part, wanted = wanted[-self._most :], wanted[: -self._most]
            try:
                self._ask(part, steady_s)
            except SlurmCommandError as error:
                self._most = max(self._most // 2, 1)
                if any(jobs[job_id].nodes > 1 for job_id, _ in part):
                    raise
                # Without their GPUs nobody shares with these; everything else goes on.
                log(logging.WARNING, "gpus-of-jobs-not-read", error=error)
                break
            self.unknown = len(wanted)
        if not wanted:
            self._most = RUNS_PER_QUESTION
        return {job_id: self._held[key] for job_id, key in keys.items() if key in self._held}

    def _ask(self, part: Collection[AllocationKey], steady_s: float) -> None:
        """Ask what some runs hold. One odd job must not blind us to all others: it is asked about again later."""
        answers = self.client.allocations([job_id for job_id, _ in part])
        for key in part:
            answer = answers[key[0]]
            if isinstance(answer, SlurmReplyError):
                log(logging.WARNING, "allocation-not-readable", job=key[0], error=answer)
                self._unreadable[key] = steady_s + UNREADABLE_ALLOCATION_S
            else:
                self._held[key] = answer
