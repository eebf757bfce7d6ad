"""The services of one daemon, from cycle to cycle: what a decision sees of them, and what becomes of what it wants."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.config import ServicesSettings
from slurm_soda.daemon.cycle.slurm_state import SlurmState
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.services.drains import Drain, SeenInstance, decide_drain
from slurm_soda.daemon.services.known_service import KnownService, ServiceKey
from slurm_soda.daemon.services.service_board import ServiceBoard
from slurm_soda.daemon.services.service_load import ServiceMinute
from slurm_soda.daemon.services.service_status import service_status
from slurm_soda.daemon.services.service_table import (
    NO_TASKS,
    build_service_table,
    instance_state,
    reported_instances,
)
from slurm_soda.daemon.services.service_tasks import ServiceTasks, TaskHistory, device_of, waits_after_requeue
from slurm_soda.daemon.services.task_starts import StartStep, plan_starts
from slurm_soda.daemon.store.audit_log import ChangeOutcome
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.services import (
    add_minutes,
    forget_services,
    load_drains,
    load_low_since,
    load_services,
    save_drains,
    save_services,
)
from slurm_soda.policies.pipeline.actions import DrainInstance, ScaleService
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.services.place_services import renew_low_since
from slurm_soda.policies.services.service import Device, InstanceState
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.slurm_ext.write.job_changes import JobChange, drained_change
from slurm_soda.wire.services.router_report import RouterAnswer


@dataclass(frozen=True, slots=True)
class ServiceStep:
    """One update or requeue to send."""

    change: JobChange
    start: StartStep | None = None
    drain: Drain | None = None


@dataclass(slots=True)
class OpenServices:
    """What a daemon knows of services; reports and drains come back from the store, everything else from Slurm."""

    settings: ServicesSettings
    board: ServiceBoard
    drains: dict[int, Drain] = field(default_factory=dict)
    """Those that are not over, by job."""
    tasks: Mapping[ServiceKey, ServiceTasks] = field(default_factory=dict)
    low_since_s: dict[ServiceKey, float] = field(default_factory=dict)
    _known: Sequence[KnownService] = ()
    """As the present decision sees them."""
    _history: TaskHistory = field(default_factory=TaskHistory)
    _changed_drains: list[Drain] = field(default_factory=list)
    _gone: list[ServiceKey] = field(default_factory=list)
    _written: tuple[Sequence[KnownService], Sequence[ServiceMinute]] = ((), ())

    def use(self, settings: ServicesSettings) -> None:
        """Other settings hold from now on."""
        self.settings = settings
        self.board.enabled, self.board.most_per_user = settings.enabled, settings.most_per_user

    @property
    def waits_after_requeue(self) -> set[int]:
        """Jobs of tasks that wait again after a run."""
        return waits_after_requeue(self.tasks)

    def observe(self, slurm_state: SlurmState) -> None:
        """Take in a reading of Slurm."""
        self.tasks = self._history.tasks(slurm_state.jobs.values(), slurm_state.now_s) if self.settings.enabled else {}
        at = Instant(slurm_state.now_s, slurm_state.steady_s)
        self._gone += self.board.forget(self.tasks.keys(), at)
        self._known = self.board.known() if self.settings.enabled else ()

    def fill(self, snapshot: ClusterSnapshot, steady_s: float) -> ClusterSnapshot:
        """The snapshot, with the services."""
        if not self._known:
            return snapshot
        table = build_service_table(
            self._known,
            self.tasks,
            steady_s=steady_s,
            settings=self.settings,
            low_since_s=self.low_since_s,
            forecast_qps={},
            draining=self.drains.keys(),
        )
        return replace(snapshot, services=table)

    def advance(
        self,
        slurm_state: SlurmState,
        snapshot: ClusterSnapshot,
        plan: Plan | None,
        job_cache: JobCache,
        left: Collection[int],
        *,
        acts: bool,
    ) -> list[ServiceStep]:
        """What to send, leases that keep tasks from starting first; and the answers to routers.

        Args:
            slurm_state: as Slurm shows itself.
            snapshot: what the plan was made from.
            plan: what is wanted; ``None``: nothing was decided.
            job_cache: knows when jobs were first submitted.
            left: requeued jobs whose former run has certainly left its nodes.
            acts: sodad enforces; otherwise nothing of this changes anything.
        """
        at = Instant(slurm_state.now_s, slurm_state.steady_s)
        scales = () if plan is None else [one for one in plan.actions if isinstance(one, ScaleService)]
        if plan is not None and len(snapshot.services.services):
            self._renew_low_since(snapshot, plan)
        if acts and plan is not None:
            self._begin_drains(slurm_state, plan, job_cache, at)
        steps = list(self._drain_steps(slurm_state, at, acts=acts))
        if acts:
            steps = [ServiceStep(one.change, start=one) for one in self._starts(scales, at, left)] + steps
        self._answer(slurm_state, scales, snapshot)
        return steps

    def next_s(self, soon_s: float) -> float:
        """When the next cycle is due for what is under way."""
        return soon_s if self.drains else math.inf

    def first_tasks(self, plan: Plan) -> set[int]:
        """Waiting tasks that go before all other jobs."""
        found: set[int] = set()
        for one in plan.actions:
            if isinstance(one, ScaleService) and one.first:
                own = self.tasks.get(ServiceKey(one.owner, one.service), NO_TASKS)
                found |= {record.job.job_id for record in own.waiting[one.device] if record.standing == "free"}
        return found

    def note_sent(self, step: ServiceStep) -> None:
        """A step is recorded, and about to be sent."""
        if step.start is not None and step.start.lets_start:
            self._history.note_let(step.start.job, step.start.task)
        elif step.start is not None:
            self._history.note_leased(step.start.job)

    def note(self, step: ServiceStep, outcome: ChangeOutcome, steady_s: float) -> None:
        """Take in what became of a step that was sent."""
        drain = step.drain
        if drain is None:
            return
        if outcome.state == "failed":
            drain.note_refusal(steady_s)
        elif outcome.state == "done":
            drain.phase = "requeued"
            self._changed_drains.append(drain)

    def save(self, session: Session, at: Instant) -> None:
        """Write what changed; :meth:`saved` once the transaction is through."""
        services, minutes = self.board.changed(), self.board.finished_minutes(at.now_s)
        save_services(session, services, self.low_since_s)
        add_minutes(session, minutes)
        forget_services(session, self._gone)
        save_drains(session, self._changed_drains, at)
        self._written = services, minutes

    def saved(self) -> None:
        """What :meth:`save` wrote is committed."""
        services, minutes = self._written
        self.board.saved(services)
        self.board.saved_minutes(minutes)
        self._written = (), ()
        self._changed_drains, self._gone = [], []
        self.drains = {job_id: one for job_id, one in self.drains.items() if one.phase != "over"}

    def recall(self, session: Session, at: Instant, before: OpenServices | None) -> None:
        """As the store has it; ``before`` is what this process knew until now."""
        self.use(self.settings)
        self.board.recall(load_services(session, at))
        self.low_since_s = load_low_since(session)
        self.drains = {one.job_id: one for one in load_drains(session, at, self.settings.drain_grace_s)}
        if before is None:
            return
        self._history, self.low_since_s = before._history, before.low_since_s
        for job_id, known in before.drains.items():
            read = self.drains.get(job_id)
            if read is not None and read.pk == known.pk:
                read.deadline_s, read.asked_steady_s = known.deadline_s, known.asked_steady_s

    def _renew_low_since(self, snapshot: ClusterSnapshot, plan: Plan) -> None:
        renewed = renew_low_since(snapshot, plan).tolist()
        names = [ServiceKey(one.owner, one.name) for one in snapshot.services.services]
        self.low_since_s = {key: low_s for key, low_s in zip(names, renewed, strict=True) if not math.isnan(low_s)}

    def _begin_drains(self, slurm_state: SlurmState, plan: Plan, job_cache: JobCache, at: Instant) -> None:
        running = {job.job_id: key for key, own in self.tasks.items() for job in own.running}
        wanted = [
            (one.job_id, ServiceKey(one.owner, one.service), one.reason, False)
            for one in plan.actions
            if isinstance(one, DrainInstance)
        ]
        for key, asked in self.board.take_requests().items():
            wanted += [(job_id, key, "its owner asked for it", True) for job_id in sorted(asked)]
        for job_id, key, why, by_owner in wanted:
            job = slurm_state.jobs.get(job_id)
            if job is None or job_id in self.drains or running.get(job_id) != key:
                continue
            if not job.requeue or not job.batch:
                log(
                    logging.WARNING, "instance-not-drained", job=job_id, error="Slurm may not requeue it (--no-requeue)"
                )
                continue
            drain = Drain(
                job_id=job_id,
                submit_s=job_cache.submit_s(job_id),
                restart=job.restarts,
                key=key,
                why=why,
                asked_s=at.now_s,
                asked_steady_s=at.steady_s,
                deadline_s=at.steady_s + self.settings.drain_grace_s,
                by_owner=by_owner,
            )
            self.drains[job_id] = drain
            self._changed_drains.append(drain)

    def _drain_steps(self, slurm_state: SlurmState, at: Instant, *, acts: bool) -> Iterator[ServiceStep]:
        known = {one.key: one for one in self._known}
        for drain in self.drains.values():
            service, job = known.get(drain.key), slurm_state.jobs.get(drain.job_id)
            told = service is not None and service.reported_steady_s > drain.asked_steady_s
            seen = SeenInstance(
                job=job,
                reported=reported_instances(service).get(drain.job_id) if told and service is not None else None,
                others_ready=self._count_ready(drain.key, service),
                least=0 if service is None else service.limits.least,
                steady_s=at.steady_s,
                acts=acts,
            )
            decision = decide_drain(drain, seen)
            if decision.phase != drain.phase:
                drain.phase, drain.end = decision.phase, decision.end
                drain.ended_s = at.now_s
                self._changed_drains.append(drain)
            if decision.requeue and job is not None and at.steady_s >= drain.retry_s:
                reason = f"instance of {drain.key.name} leaves: {drain.why}"
                yield ServiceStep(drained_change(job.job_id, job.restarts, reason, f"drain:{job.job_id}"), drain=drain)

    def _count_ready(self, key: ServiceKey, service: KnownService | None) -> int:
        if service is None:
            return 0
        reported = reported_instances(service)
        jobs = self.tasks.get(key, NO_TASKS).running
        states = [instance_state(job, reported.get(job.job_id), self.drains.keys())[0] for job in jobs]
        return states.count(InstanceState.READY)

    def _starts(self, scales: Iterable[ScaleService], at: Instant, left: Collection[int]) -> Iterator[StartStep]:
        for scale in scales:
            own = self.tasks.get(ServiceKey(scale.owner, scale.service), NO_TASKS)
            running = [job for job in own.running if device_of(job) is scale.device and job.job_id not in self.drains]
            yield from plan_starts(
                scale,
                own.waiting[scale.device],
                len(running),
                now_s=at.now_s,
                lease_s=self.settings.lease_s,
                left=left,
            )

    def _answer(self, slurm_state: SlurmState, scales: Sequence[ScaleService], snapshot: ClusterSnapshot) -> None:
        """Routers and people are told what holds from now on."""
        by_key: dict[ServiceKey, dict[Device, ScaleService]] = {}
        for scale in scales:
            by_key.setdefault(ServiceKey(scale.owner, scale.service), {})[scale.device] = scale
        drains: dict[ServiceKey, list[int]] = {}
        for drain in self.drains.values():
            if drain.phase != "over":
                drains.setdefault(drain.key, []).append(drain.job_id)
        table, answers, statuses = snapshot.services, {}, {}
        forecasts = dict(zip((one.key for one in self._known), table.forecast_qps.tolist(), strict=False))
        for one in self._known:
            wanted = by_key.get(one.key, {})
            reason = next((scale.reason for scale in wanted.values()), "sodad decides nothing now")
            counts = {device: wanted[device].instances if device in wanted else 0 for device in Device}
            answers[one.key] = RouterAnswer(
                tuple(sorted(drains.get(one.key, ()))), counts[Device.CPU], counts[Device.GPU], reason[:1000]
            )
            statuses[one.key] = service_status(
                one,
                self.tasks.get(one.key, NO_TASKS),
                draining={job_id: self.drains[job_id].why for job_id in drains.get(one.key, ())},
                wanted=counts,
                reason=reason,
                forecast_qps=forecasts.get(one.key),
            )
        self.board.answer(answers, self._known)
        self.board.statuses = statuses
