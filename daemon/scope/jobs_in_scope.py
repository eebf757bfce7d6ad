"""What a cycle knows of the scope: jobs that are not in it, and changes of ours to such jobs, which are taken back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.cycle.slurm_state import SlurmState
from slurm_soda.daemon.scope.counts import count_scope
from slurm_soda.daemon.scope.own_changes import OwnChange, find_own_changes
from slurm_soda.daemon.scope.stage_record import note_stage
from slurm_soda.daemon.services.known_service import ServiceKey
from slurm_soda.daemon.services.service_tasks import RUNNING_STATES, ServiceTasks
from slurm_soda.daemon.settings.scope import ScopeSettings
from slurm_soda.daemon.store.audit_log import STANDING_STATES, ChangeOutcome
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.tables.scheduling import Action
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.scope.scope import LeftOut, Scope
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.hostlist import expand_hosts
from slurm_soda.slurm_ext.write.job_changes import ChangeKey, JobChange
from slurm_soda.wire.core_tuning import MAX_LEFT_OUT

RETRY_S = 60.0
"""What Slurm refused to take back is tried again so much later."""
_KINDS = ("order", "rewrite", "lease")
"""Kinds of changes that are taken back here; shares end by their own steps."""


def scope_of(settings: ScopeSettings) -> Scope:
    """The scope that a configuration names."""
    return Scope(
        partitions=frozenset(settings.partitions),
        accounts=frozenset(settings.accounts),
        qos=frozenset(settings.qos),
        users=frozenset(settings.users),
    )


def not_in_scope(why: LeftOut, job: SlurmJob) -> str:
    """As people read it."""
    names = {
        LeftOut.PARTITION: job.partition,
        LeftOut.ACCOUNT: job.account,
        LeftOut.QOS: job.qos,
        LeftOut.USER: job.user,
    }
    return f"not in scope: {why.word} {names.get(why) or '(none)'}"


@dataclass(slots=True)
class JobsInScope:
    """The scope of one daemon, from cycle to cycle."""

    settings: ScopeSettings
    left_out: Mapping[int, LeftOut] = field(default_factory=dict)
    """Jobs of the last reading that are not in scope."""
    unknown: str = ""
    """What the scope names and this Slurm does not have; empty: nothing."""
    _jobs: Mapping[int, SlurmJob] = field(default_factory=dict)
    _services: Mapping[ServiceKey, LeftOut] = field(default_factory=dict)
    _clean: set[int] = field(default_factory=set)
    """Of those jobs, those of which nothing of ours is left."""
    _retry_s: dict[int, float] = field(default_factory=dict)
    _taking_back: dict[ChangeKey, int] = field(default_factory=dict)
    """The actions that changes under way take back."""
    _undone: list[ChangeOutcome] = field(default_factory=list)
    _stage: tuple[str, ScopeSettings] | None = None
    """As recorded by this daemon."""

    @property
    def scope(self) -> Scope:
        """As configured."""
        return scope_of(self.settings)

    def use(self, settings: ScopeSettings) -> None:
        """Another scope holds from now on."""
        self.settings = settings

    def keep(self, before: JobsInScope | None) -> None:
        """Go on from what this process knew."""
        if before is not None:
            self._clean, self._retry_s = before._clean, before._retry_s

    def read(
        self,
        slurm_state: SlurmState,
        base_of: Callable[[str], str],
        tasks: Mapping[ServiceKey, ServiceTasks],
    ) -> None:
        """Find out which jobs and services are not in scope. O(jobs); nothing where every job is.

        Args:
            slurm_state: this cycle's.
            base_of: the site's own partition behind one of a pool's.
            tasks: of services.
        """
        scope, self._jobs = self.scope, slurm_state.jobs
        if scope.whole:
            self.left_out, self.unknown, self._services = {}, "", {}
            self._clean.clear()
            return
        known: dict[tuple[str, str, str, str], LeftOut] = {}
        found = {}
        for job_id, job in slurm_state.jobs.items():
            key = (job.partition, job.account, job.qos, job.user)
            why = known.get(key)
            if why is None:
                why = known[key] = scope.leaves_out(*key, base_of)
            if why:
                found[job_id] = why
        self.left_out = found
        self._clean &= found.keys()
        self._services = {key: why for key, own in tasks.items() if (why := self._of_service(own))}
        self.unknown = _unknown_partitions(scope, slurm_state)

    def _of_service(self, own: ServiceTasks) -> LeftOut:
        waiting = (record.job for records in own.waiting.values() for record in records)
        found = (self.left_out.get(job.job_id) for job in (*own.running, *waiting))
        return next(filter(None, found), LeftOut.NOT)

    def fill(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """The snapshot, with what is not in scope."""
        if self.scope.whole:
            return snapshot
        codes = [self.left_out.get(job_id, 0) for job_id in snapshot.jobs.job_id.tolist()]
        jobs = snapshot.jobs.with_columns(left_out=np.array(codes, dtype=np.int64))
        named = [ServiceKey(one.owner, one.name) for one in snapshot.services.services]
        services = np.array([self._services.get(key, 0) for key in named], dtype=np.int64)
        return replace(snapshot, jobs=jobs, services=replace(snapshot.services, left_out=services))

    def why(self, job_id: int) -> str:
        """Why a job is not in scope, for people; empty if it is."""
        left_out = self.left_out.get(job_id)
        return not_in_scope(left_out, self._jobs[job_id]) if left_out and job_id in self._jobs else ""

    def why_service(self, key: ServiceKey) -> str:
        """Why a service is not in scope, for people; empty if it is."""
        left_out = self._services.get(key)
        return f"not in scope: a task's {left_out.word}" if left_out else ""

    def notes(self, job_ids: Iterable[int]) -> dict[int, str]:
        """Of these jobs those that are not in scope, with the reason for people."""
        return {job_id: self.why(job_id) for job_id in job_ids if job_id in self.left_out}

    def counts(self, slurm_state: SlurmState, plan: Plan | None) -> dict[str, Any]:
        """Jobs in scope and others, and what the plan would do to the others; nothing where every job is in scope."""
        scope = self.scope
        return {} if scope.whole else count_scope(scope, self.left_out, slurm_state.jobs, plan)

    def left_out_by_node(self) -> dict[str, tuple[int, ...]]:
        """Jobs that run and are not in scope, by node, for the nodes' agents."""
        found: dict[str, list[int]] = {}
        for job_id in self.left_out:
            job = self._jobs[job_id]
            if job.state not in RUNNING_STATES or not job.node_names:
                continue
            try:
                nodes = expand_hosts(job.node_names)
            except SlurmReplyError:
                continue
            for node in nodes:
                found.setdefault(node, []).append(job_id)
        return {node: tuple(job_ids[:MAX_LEFT_OUT]) for node, job_ids in found.items()}

    def note_stage(self, session: Session, mode: str, now_s: float) -> None:
        """Record since when sodad runs in this mode on this scope, once it does."""
        stage = (mode, self.settings)
        if stage != self._stage:
            note_stage(session, mode, self.settings, now_s)
            self._stage = stage

    def take_back(self, store: Store, slurm_state: SlurmState) -> list[JobChange]:
        """What is to be sent so that nothing of ours is left of waiting jobs out of scope: each is looked up once.

        What may have reached Slurm without an answer is looked at again once that is settled.
        """
        open_ids = [
            job_id
            for job_id in self.left_out
            if job_id not in self._clean
            and self._jobs[job_id].state == "PENDING"
            and slurm_state.steady_s >= self._retry_s.get(job_id, float("-inf"))
        ]
        self._taking_back.clear()
        if not open_ids:
            return []
        standing = _standing_actions(store, open_ids)
        changes = []
        for job_id in open_ids:
            actions = standing.get(job_id, ())
            own, settled = find_own_changes(self._jobs[job_id], actions, slurm_state.site_factors, self.why(job_id))
            if settled and not own:
                self._clean.add(job_id)
            changes += [self._noted(one) for one in own]
        return changes

    def _noted(self, own: OwnChange) -> JobChange:
        self._taking_back[own.change.key] = own.action_id
        return own.change

    def note(self, change: JobChange, outcome: ChangeOutcome, steady_s: float) -> None:
        """Take in what became of a change that was sent; others than those of :meth:`take_back` are none of ours."""
        action_id = self._taking_back.get(change.key)
        if action_id is None:
            return
        if outcome.state == "done":
            self._undone.append(ChangeOutcome(action_id, "undone"))
        elif outcome.state == "failed":
            self._retry_s[change.job_id] = steady_s + RETRY_S

    def take_undone(self) -> list[ChangeOutcome]:
        """Actions that were taken back since the last call."""
        undone, self._undone = self._undone, []
        return undone


def _standing_actions(store: Store, job_ids: Collection[int]) -> Mapping[int, Sequence[Action]]:
    """Changes that are in force, or may be, of each job, newest first."""
    found: dict[int, list[Action]] = {}
    with store.read() as session:
        for part in split_list(sorted(job_ids)):
            query = select(Action).where(
                Action.job_id.in_(part), Action.kind.in_(_KINDS), Action.state.in_(STANDING_STATES)
            )
            for action in session.scalars(query.order_by(Action.id.desc())):
                found.setdefault(action.job_id, []).append(action)
    return found


def _unknown_partitions(scope: Scope, slurm_state: SlurmState) -> str:
    known = {name for node in slurm_state.nodes for name in node.partitions}
    unknown = sorted(scope.partitions - known)
    if not unknown or not known:
        return ""
    return (
        f"scope.partitions: no node of this Slurm is in {', '.join(unknown)}; it has {', '.join(sorted(known)[:20])}:"
        " correct soda.toml"
    )
