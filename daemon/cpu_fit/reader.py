"""Everything that is read for waiting jobs' CPUs: from Slurm, a few jobs a cycle, and from the store.

A job is asked about in detail once; again only if its request, its nodes or what is known of its owner changes, or after a
pause if Slurm's answer could not be read. Whether there is a question, :mod:`slurm_soda.policies.cpu_fit.fit` says.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from sqlalchemy.orm import Session

from slurm_soda.daemon.cpu_fit.fit_histories import FitHistories
from slurm_soda.daemon.cpu_fit.limits_lookup import LimitsLookup
from slurm_soda.daemon.cpu_fit.question_turns import QuestionTurns
from slurm_soda.daemon.cpu_fit.request_values import candidate_of, detail_of, earlier_change_of
from slurm_soda.daemon.cycle.request_details import RequestDetailReader
from slurm_soda.daemon.cycle.slurm_state import SlurmState
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.settings.scheduling import CpuFitSettings
from slurm_soda.daemon.store.cpu_fit import newest_resizes
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.policies.cpu_fit.fit import (
    UNREADABLE,
    EarlierChange,
    EarlierResize,
    RequestDetail,
    fit_with_detail,
    fit_without_detail,
)
from slurm_soda.policies.cpu_fit.limits import AccountingLimits, binding_limit
from slurm_soda.policies.cpu_fit.requests import CpuRequests, EarlierResizes, RequestDetails, WaitingCase
from slurm_soda.policies.cpu_fit.start_cores import NodeCapacity
from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob
from slurm_soda.slurm_ext.errors import SlurmError, SlurmReplyError
from slurm_soda.slurm_ext.read.job_request import PartitionLimits
from slurm_soda.slurm_ext.read.node_capacity import CandidateNodes
from slurm_soda.slurm_ext.read.snapshot import is_ordinary_job

MAX_QUERIES_PER_CYCLE = 50
"""Jobs whose request is read in detail in one cycle; each costs two calls to Slurm, three on 26.05, of some 10 ms."""

LIMITS_FOR_S = 60.0
"""What partitions and nodes allow is read again after this long."""


@dataclass(frozen=True, slots=True, eq=False)
class _Alike:
    """What jobs of one user that are alike have in common; they share this object."""

    user: str
    case: WaitingCase
    needs_detail: bool


@dataclass(slots=True)
class _Answer:
    """What Slurm said of one job's request; valid as long as :attr:`asked_as` holds."""

    asked_as: tuple[object, ...]
    detail: RequestDetail
    resizes: bool
    """The request should change."""
    earlier: EarlierChange | None = None
    looked_up: bool = False
    """:attr:`earlier` is what the store said."""

    @property
    def unsettled(self) -> bool:
        """What became of an earlier change must be looked up."""
        in_flight = self.earlier is not None and self.earlier.outcome == EarlierResize.IN_FLIGHT
        return in_flight or not self.looked_up


class CpuRequestReader:
    """Reads what is known of waiting jobs' requests, cycle after cycle.

    A cycle takes O(n log n) for n waiting jobs (they are sorted). What a job's record says is worked out only for records
    that are new, for one owner's jobs when that owner has a new fit, and for all when limits are read again. The store is
    asked about the jobs to be changed, several hundred in one query.
    """

    def __init__(self, settings: CpuFitSettings, store: Store, client: SlurmClient, limits: LimitsLookup) -> None:
        self.settings = settings
        self._store, self._client, self._limits_lookup = store, client, limits
        self._accounting = AccountingLimits()
        self._histories = FitHistories()
        self._details = RequestDetailReader(client, MAX_QUERIES_PER_CYCLE)
        self._turns = QuestionTurns()
        self._answers: dict[int, _Answer] = {}
        self._limits: Mapping[str, PartitionLimits] = {}
        self._limits_until_s = float("-inf")
        self._capacities: dict[tuple[object, ...], NodeCapacity | None] = {}
        """By what a job asks of nodes; as old as the limits."""
        self._alike: dict[tuple[object, ...], _Alike] = {}
        """By :data:`_ALIKE`; as old as the limits and the histories."""
        self._alike_of: dict[int, tuple[SlurmJob, _Alike]] = {}
        """By job id, with the record that it holds for; as old as :attr:`_alike`."""
        self._columns: tuple[object, ...] = ()
        """What :attr:`_requests` was built from: as long as that is so, each cycle gets the same object."""
        self._requests = CpuRequests()

    def read(self, slurm_state: SlurmState, job_cache: JobCache, *, acts: bool) -> CpuRequests:
        """What is known now, with answers to at most :data:`MAX_QUERIES_PER_CYCLE` new questions.

        What Slurm does not say now waits for a later cycle: order and preemption do not depend on it.

        Args:
            slurm_state: what was read from Slurm in this cycle.
            job_cache: which jobs these are.
            acts: changes may be sent, so that it matters what became of earlier ones.
        """
        jobs, requests = self._candidates(slurm_state.jobs.values()), CpuRequests()
        self._details.begin(slurm_state.steady_s)
        try:
            if jobs and self._read_accounting(slurm_state.steady_s) and self._read_limits(slurm_state.steady_s):
                with self._store.read() as session:
                    requests = self._read(session, slurm_state, job_cache, jobs, acts=acts)
        except SlurmError as error:
            self._details.unanswered(error)
            log(logging.WARNING, "requests-left-alone", error=error)
        ids = {job.job_id for job in jobs}
        self._answers = {job_id: answer for job_id, answer in self._answers.items() if job_id in ids}
        # Who changes a job so that nobody asks about it, and back, begins nothing anew.
        self._details.keep(slurm_state.jobs)
        self._turns.keep(slurm_state.jobs, {job.user for job in jobs})
        return requests

    def _candidates(self, jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
        if self.settings.rewrite == "off":
            return []
        waiting = [job for job in jobs if job.state == "PENDING" and job.gpus > 0 and not job.shared_gpus]
        waiting = [job for job in waiting if job.hints.service is None]  # profiled with the cores that they ask for
        if self.settings.rewrite == "hinted":
            waiting = [job for job in waiting if job.hints.category is not None]
        waiting.sort(key=attrgetter("job_id"))
        waiting.sort(key=attrgetter("priority"), reverse=True)
        return waiting

    def _read_accounting(self, steady_s: float) -> bool:
        """Whether it is known what accounting limits: until then no job is changed."""
        known = self._limits_lookup.current(steady_s)
        if known is not None and known != self._accounting:
            self._accounting = known
            self._alike.clear()
            self._alike_of.clear()
        return known is not None

    def _read_limits(self, steady_s: float) -> bool:
        """Whether the limits are known; old ones do while Slurm is better not asked."""
        if steady_s >= self._limits_until_s and not self._details.quiet(steady_s):
            self._limits, self._limits_until_s = self._client.partition_limits(), steady_s + LIMITS_FOR_S
            self._capacities.clear()
            self._alike.clear()
            self._alike_of.clear()
        return self._limits_until_s > float("-inf")

    def _read(
        self, session: Session, slurm_state: SlurmState, job_cache: JobCache, jobs: Sequence[SlurmJob], *, acts: bool
    ) -> CpuRequests:
        if owners := self._histories.refresh(session):
            self._alike = {key: one for key, one in self._alike.items() if one.user not in owners}
            self._alike_of = {job_id: known for job_id, known in self._alike_of.items() if known[1].user not in owners}
        alike = []
        nodes = CandidateNodes(slurm_state.nodes)
        for job in jobs:
            same = self._alike_of.get(job.job_id)
            if same is None or same[0] is not job:
                same = self._alike_of[job.job_id] = job, self._alike_with(session, job, nodes)
            alike.append(same[1])
        asking = {job.job_id: one.case for job, one in zip(jobs, alike, strict=True) if one.needs_detail}
        answers = self._ask_in_turn([job for job in jobs if job.job_id in asking], asking, slurm_state.steady_s)
        known = [(job_id, answers[job_id]) for job_id in asking if job_id in answers]
        details = {job_id: None if answer is None else answer.detail for job_id, answer in known}
        doubtful = [job_id for job_id, answer in known if answer is not None and answer.resizes]
        earlier = self._earlier(session, job_cache, doubtful, acts=acts)
        columns = [job.job_id for job in jobs], alike, details, earlier
        if columns != self._columns:
            self._columns, self._requests = columns, _requests(*columns)
        return self._requests

    def _alike_with(self, session: Session, job: SlurmJob, nodes: CandidateNodes) -> _Alike:
        """What every reading of Slurm shows of a job, with what the store and the nodes say of it."""
        key = (_ALIKE(job), is_ordinary_job(job))
        if key not in self._alike:
            limit = binding_limit(self._accounting, job.user, job.account, job.qos)
            waiting, node = candidate_of(job, limit), self._capacity_for(job, nodes)
            case = WaitingCase(waiting, node, self._histories.of(session, job.user))
            self._alike[key] = _Alike(job.user, case, fit_without_detail(*case) is None)
        return self._alike[key]

    def _capacity_for(self, job: SlurmJob, nodes: CandidateNodes) -> NodeCapacity | None:
        place = (job.partition, job.gpus, job.nodes, job.gpu_type, job.req_node_names)
        if place not in self._capacities:
            try:
                self._capacities[place] = nodes.smallest_for(job, self._limits)
            except SlurmReplyError as error:  # the nodes that it asks for by name
                log(logging.WARNING, "nodes-not-readable", job=job.job_id, error=error)
                self._capacities[place] = None
        return self._capacities[place]

    def _ask_in_turn(
        self, jobs: Sequence[SlurmJob], cases: Mapping[int, WaitingCase], steady_s: float
    ) -> dict[int, _Answer | None]:
        """Slurm's word on these jobs; ``None``: it cannot be read. One that is missing has its turn in a later cycle."""
        found: dict[int, _Answer | None] = {}
        for job in jobs:
            known = self._answers.get(job.job_id)
            if known is not None and known.asked_as == _asked_as(job, cases[job.job_id]):
                found[job.job_id] = known
        for job in self._turns.order([job for job in jobs if job.job_id not in found]):
            try:
                answer = self._ask(job, cases[job.job_id], steady_s)
            except SlurmReplyError:
                found[job.job_id] = None
                continue
            if answer is not None:
                found[job.job_id] = answer
        return found

    def _ask(self, job: SlurmJob, case: WaitingCase, steady_s: float) -> _Answer | None:
        """Slurm's word on one job; ``None``: not in this cycle.

        Raises:
            SlurmReplyError: its answer cannot be read.
        """
        asked_as = _asked_as(job, case)
        of_owner = (case.job, *asked_as[1:])
        if not self._turns.may_ask(job.job_id, of_owner, steady_s):
            return None
        request = self._details.ask(job.job_id)
        if request is None:
            return None
        self._turns.note(job, of_owner, steady_s)
        detail = detail_of(request)
        fit = UNREADABLE if case.node is None else fit_with_detail(case.job, detail, case.node, case.history)
        answer = self._answers[job.job_id] = _Answer(asked_as, detail, fit.resized is not None)
        return answer

    def _earlier(
        self, session: Session, job_cache: JobCache, job_ids: Sequence[int], *, acts: bool
    ) -> dict[int, EarlierChange]:
        """What became of earlier changes; looked up once, and again to act or where it was not known yet."""
        asked = {job_id: job_cache.submit_s(job_id) for job_id in job_ids if acts or self._answers[job_id].unsettled}
        found = newest_resizes(session, asked)
        for job_id in asked:
            answer, action = self._answers[job_id], found.get(job_id)
            answer.earlier, answer.looked_up = None if action is None else earlier_change_of(action), True
        known = {job_id: self._answers[job_id].earlier for job_id in job_ids}
        return {job_id: earlier for job_id, earlier in known.items() if earlier is not None}


def _asked_as(job: SlurmJob, case: WaitingCase) -> tuple[object, ...]:
    """What an answer about a job depends on."""
    return (case, job.submit_s, job.memory_mib, job.partition, job.req_node_names, job.hints)


_ALIKE = attrgetter(
    "user", "account", "qos", "partition", "gpus", "nodes", "gpu_type", "req_node_names", "tasks", "cpus_per_task",
    "cpus", "array_task", "hints.pipelined", "hints.large_weights", "hints.heavy_preprocessing", "hints.category",
    "hints.model",
)  # fmt: skip
"""Jobs for which these are equal have the same row in the snapshot."""


def _requests(
    job_ids: Sequence[int],
    alike: Sequence[_Alike],
    details: Mapping[int, RequestDetail | None],
    earlier: Mapping[int, EarlierChange],
) -> CpuRequests:
    """The tables of a snapshot; jobs that are alike are in them once."""
    row = {one: at for at, one in enumerate(dict.fromkeys(alike))}
    distinct = [(one.user, one.case.node, one.case.job) for one in row]
    histories = {one.user: one.case.history for one in row}
    requests = CpuRequests.build(job_ids, [row[one] for one in alike], distinct, histories)
    return replace(requests, details=RequestDetails.build(details), earlier=EarlierResizes.build(earlier))
