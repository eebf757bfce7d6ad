"""Requests of waiting GPU jobs: which to change, to how many cores, and why others are left alone (SODA, Section V-B).

A job is looked at in detail once; again only if its request, its nodes or what is known of its owner changes, or after a
pause if Slurm's answer could not be read. What its owner does to the request after us, or an admin by ``sodactl undo``,
stands.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy.orm import Session

from slurm_soda.daemon.config import CpuFitSettings
from slurm_soda.daemon.cpu_fit.node_capacity import smallest_node_capacity
from slurm_soda.daemon.cpu_fit.owner_histories import OwnerHistories
from slurm_soda.daemon.cpu_fit.unchanged_reasons import (
    newest_cpu_actions,
    outcome_is_unknown,
    start_source_text,
    why_kind_is_excluded,
    why_past_forbids,
    why_request_is_excluded,
)
from slurm_soda.daemon.cycle.request_details import RequestDetails
from slurm_soda.daemon.cycle.slurm_state import SlurmState
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.store.cpu_fit import proposals_of, storable_text
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.tables.cpu_fit import CpuProposalRow
from slurm_soda.daemon.store.tables.scheduling import Action
from slurm_soda.policies.cpu_fit.request_resize import WaitingRequest
from slurm_soda.policies.cpu_fit.start_cores import CoreRequest, NodeCapacity
from slurm_soda.policies.errors import PolicyError
from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob, SlurmNode
from slurm_soda.slurm_ext.errors import SlurmError, SlurmReplyError
from slurm_soda.slurm_ext.read.job_request import JobRequest, PartitionLimits
from slurm_soda.slurm_ext.write.cpu_changes import cpu_change
from slurm_soda.slurm_ext.write.job_changes import JobChange

MAX_CALLS_PER_CYCLE = 50
"""Jobs looked at in detail in one cycle; each costs a call to Slurm, some 10 ms."""

UNREADABLE_RETRY_S = 60.0
"""A job about which Slurm's answer cannot be read is left alone for so long; then the pause between questions counts."""

LIMITS_MAX_AGE_S = 60.0
"""What partitions and nodes allow is looked at again after this long."""


@dataclass(slots=True)
class CpuFitProposals:
    """What one cycle thinks of waiting jobs' requests."""

    changes: list[JobChange] = field(default_factory=list)
    rows: list[CpuProposalRow] = field(default_factory=list)
    """New or changed ones, to be recorded before anything is sent."""


@dataclass(frozen=True, slots=True)
class _Assessment:
    """What was found about one job, as long as :attr:`stamp` holds."""

    stamp: tuple[object, ...]
    cores: int | None = None
    source: str = ""
    left_alone: str = ""
    change: JobChange | None = None
    """Wanted; sent again until Slurm shows it, so that what the rails held back is not forgotten."""
    until_s: float = float("inf")
    """Holds no longer than this in any case."""


class CpuFitting:
    """Thinks about waiting jobs, cycle after cycle."""

    def __init__(self, settings: CpuFitSettings, store: Store, client: SlurmClient) -> None:
        self.settings = settings
        self._store, self._client = store, client
        self._sizing = OwnerHistories()
        self._details = RequestDetails(client, MAX_CALLS_PER_CYCLE)
        self._known: dict[int, _Assessment] = {}
        self._rows: dict[int, CpuProposalRow] = {}
        self._recalled: set[int] = set()
        """Jobs whose row of an earlier daemon was looked for."""
        self._limits: Mapping[str, PartitionLimits] = {}
        self._limits_until_s = float("-inf")
        self._means: dict[tuple[object, ...], NodeCapacity | None] = {}
        """By what a job asks of nodes; as old as the limits."""

    def propose(self, slurm_state: SlurmState, job_cache: JobCache, *, acts: bool) -> CpuFitProposals:
        """Changes that waiting jobs' requests need now, most urgent first as Slurm orders them, and new thoughts.

        What Slurm does not tell waits for a later cycle: order and preemption do not depend on it.

        Args:
            acts: the changes may be sent, so that it matters what became of earlier ones.
        """
        proposals, jobs = CpuFitProposals(), self._candidates(slurm_state.jobs.values())
        self._details.begin(slurm_state.now_s)
        try:
            if jobs and self._read_limits(slurm_state.now_s):
                with self._store.read() as session:
                    self._think(session, slurm_state, job_cache, jobs, proposals, acts=acts)
        except SlurmError as error:
            self._details.unanswered(error)
            log(logging.WARNING, "requests-left-alone", error=error)
        ids = {job.job_id for job in jobs}
        self._known = {job_id: known for job_id, known in self._known.items() if job_id in ids}
        self._rows = {job_id: row for job_id, row in self._rows.items() if job_id in ids}
        self._recalled &= ids
        self._details.keep(ids)
        return proposals

    def _candidates(self, jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
        if self.settings.rewrite == "off":
            return []
        waiting = [job for job in jobs if job.state == "PENDING" and job.gpus > 0]
        if self.settings.rewrite == "hinted":
            waiting = [job for job in waiting if job.hints.category is not None]
        return sorted(waiting, key=lambda job: (-job.priority, job.job_id))

    def _read_limits(self, now_s: float) -> bool:
        """Whether the limits are known; old ones do while Slurm is better not asked."""
        if now_s >= self._limits_until_s and not self._details.quiet(now_s):
            self._limits, self._limits_until_s = self._client.partition_limits(), now_s + LIMITS_MAX_AGE_S
            self._means.clear()
        return self._limits_until_s > float("-inf")

    def _capacity_for(self, job: SlurmJob, nodes: Sequence[SlurmNode]) -> NodeCapacity | None:
        place = (job.partition, job.gpus, job.nodes, job.gpu_type, job.req_node_names)
        if place not in self._means:
            try:
                self._means[place] = smallest_node_capacity(job, nodes, self._limits)
            except SlurmReplyError as error:  # the nodes that it asks for by name
                log(logging.WARNING, "nodes-not-readable", job=job.job_id, error=error)
                self._means[place] = None
        return self._means[place]

    def _think(
        self,
        session: Session,
        slurm_state: SlurmState,
        job_cache: JobCache,
        jobs: Sequence[SlurmJob],
        proposals: CpuFitProposals,
        *,
        acts: bool,
    ) -> None:
        self._sizing.refresh(session)
        self._recall(session, jobs)
        found: list[tuple[SlurmJob, _Assessment]] = []
        for job in jobs:
            known, means = self._known.get(job.job_id), self._capacity_for(job, slurm_state.nodes)
            stamp = (*_request_key(job), means, self._sizing.revision(job.user))
            if known is None or known.stamp != stamp or slurm_state.now_s >= known.until_s:
                known = self._look(session, job, means, stamp, slurm_state.now_s)
            if known is not None:  # else its turn comes in a later cycle
                found.append((job, known))
        # What is held back unchanged and may not be sent now was judged before.
        weighed = {
            job.job_id: job_cache.submit_s(job.job_id)
            for job, known in found
            if known.change is not None and (acts or self._known.get(job.job_id) is not known)
        }
        before = newest_cpu_actions(session, weighed)
        for job, wanted in found:
            known = wanted
            if wanted.change is not None and job.job_id in weighed:
                known = _after_earlier_action(before.get(job.job_id), wanted, wanted.change)
            if known is not None:
                self._conclude(job, job_cache.submit_s(job.job_id), known, slurm_state.now_s, proposals)

    def _recall(self, session: Session, jobs: Iterable[SlurmJob]) -> None:
        """Thoughts of an earlier daemon."""
        unseen = [job.job_id for job in jobs if job.job_id not in self._recalled]
        self._recalled.update(unseen)
        # The newest of an id comes last: Slurm may give ids anew.
        self._rows |= {row.job_id: row for row in sorted(proposals_of(session, unseen), key=lambda row: row.submit_s)}

    def _look(
        self, session: Session, job: SlurmJob, means: NodeCapacity | None, stamp: tuple[object, ...], now_s: float
    ) -> _Assessment | None:
        """What there is to say of one job; ``None`` if Slurm has not told."""
        try:
            return self._without_detail(session, job, means, stamp) or self._with_detail(session, job, means, stamp)
        except SlurmReplyError:
            text = "Slurm's answer about its request cannot be read (see sodad's log)"
            return _Assessment(stamp, left_alone=text, until_s=now_s + UNREADABLE_RETRY_S)
        except PolicyError as error:
            return _Assessment(stamp, left_alone=f"its request makes no sense: {error}")

    def _without_detail(
        self, session: Session, job: SlurmJob, means: NodeCapacity | None, stamp: tuple[object, ...]
    ) -> _Assessment | None:
        """What can be said without asking Slurm for the detail; ``None`` if the request may have to change."""
        if refusal := why_kind_is_excluded(job):
            return _Assessment(stamp, left_alone=refusal)
        if means is None:
            return _Assessment(stamp, left_alone="no node has its GPUs")
        tasks = -(-job.tasks // job.nodes)
        waiting = WaitingRequest(_core_request(job), tasks, tasks * job.cpus_per_task)
        resized = self._sizing.resized(session, job.user, waiting, NodeCapacity(means.cores))
        if resized.cores * job.nodes != job.cpus:
            return None
        return _Assessment(stamp, resized.cores, resized.start.source)

    def _with_detail(
        self, session: Session, job: SlurmJob, means: NodeCapacity | None, stamp: tuple[object, ...]
    ) -> _Assessment | None:
        """What follows from all that the job asks for; ``None`` if Slurm does not tell."""
        request = None if means is None else self._details.ask(job.job_id)
        if means is None or request is None:
            return None
        if refusal := _why_inconsistent(job, request) or why_request_is_excluded(request):
            return _Assessment(stamp, left_alone=refusal)
        present = request.even_tasks_per_node * request.cpus_per_task
        waiting = WaitingRequest(_core_request(job, request), request.even_tasks_per_node, present)
        resized = self._sizing.resized(session, job.user, waiting, means)
        if resized.cores == present:
            return _Assessment(stamp, resized.cores, resized.start.source)
        reason = f"cores: {resized.cores} instead of {present} on each node, {start_source_text(resized.start)}"
        change = cpu_change(request, resized.cores_per_task, resized.memory_mib, reason)
        return _Assessment(stamp, resized.cores, resized.start.source, change=change)

    def _conclude(
        self, job: SlurmJob, submit_s: float, known: _Assessment, now_s: float, proposals: CpuFitProposals
    ) -> None:
        if known.change is not None:
            proposals.changes.append(known.change)
        if self._known.get(job.job_id) is known:
            return
        self._known[job.job_id] = known
        row, present = self._rows.get(job.job_id), -(-job.cpus // job.nodes)
        if row is not None and row.submit_s != submit_s:
            row = None  # of an earlier job with this id
        if row is None and known.change is None and not known.left_alone:
            return  # right as it was submitted
        ours = row is not None and present in (row.asked_cores, row.cores)
        fresh = CpuProposalRow(
            job_id=job.job_id,
            submit_s=submit_s,
            at_s=now_s,
            asked_cores=row.asked_cores if row and ours else present,
            cores=known.cores,
            source=known.source,
            left_alone=storable_text(known.left_alone, 255),
        )
        if row is None or _proposal_key(row) != _proposal_key(fresh):
            self._rows[job.job_id] = fresh
            proposals.rows.append(fresh)


def _after_earlier_action(before: Action | None, known: _Assessment, change: JobChange) -> _Assessment | None:
    """What is left of a wanted change in the light of the one before; ``None`` while nobody knows what became of that."""
    if outcome_is_unknown(before):
        return None
    refusal = why_past_forbids(before, change)
    return replace(known, left_alone=refusal, change=None) if refusal else known


def _why_inconsistent(job: SlurmJob, request: JobRequest) -> str:
    """A request that changed since all jobs were read is looked at again as soon as they show that."""
    return "" if request.cpus == job.cpus else f"Slurm says {job.cpus} CPUs in one place and {request.cpus} in another"


def _proposal_key(row: CpuProposalRow) -> tuple[object, ...]:
    return row.asked_cores, row.cores, row.source, row.left_alone


def _request_key(job: SlurmJob) -> tuple[object, ...]:
    return (
        job.submit_s,
        job.cpus,
        job.cpus_per_task,
        job.tasks,
        job.nodes,
        job.gpus,
        job.memory_mib,
        job.partition,
        job.req_node_names,
        job.hints,
    )


def _core_request(job: SlurmJob, detail: JobRequest | None = None) -> CoreRequest:
    hints = job.hints
    return CoreRequest(
        gpus=-(-job.gpus // job.nodes),
        category=hints.category,
        model=hints.model,
        pipelined=hints.pipelined,
        large_weights=hints.large_weights,
        heavy_preprocessing=hints.heavy_preprocessing,
        memory_mib=detail.memory_per_node_mib if detail else 0,
        memory_per_core_mib=detail.memory_per_cpu_mib if detail else 0,
    )
