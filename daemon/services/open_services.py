"""The services of one daemon, from cycle to cycle: what a decision sees of them, and what becomes of what it wants."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.cycle.slurm_state import SlurmState
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.services.drains import Drain
from slurm_soda.daemon.services.failed_runs import FailedRuns
from slurm_soda.daemon.services.going_first import GoingFirst
from slurm_soda.daemon.services.known_service import KnownService, ServiceKey
from slurm_soda.daemon.services.load_forecasts import LoadForecasts
from slurm_soda.daemon.services.node_bandwidths import NodeBandwidths
from slurm_soda.daemon.services.open_drains import OpenDrains, SeenServices, WantedDrain
from slurm_soda.daemon.services.owners_turns import take_turns
from slurm_soda.daemon.services.refusals import Refusals
from slurm_soda.daemon.services.service_board import ServiceBoard
from slurm_soda.daemon.services.service_load import MINUTE_S, LoadMinute
from slurm_soda.daemon.services.service_status import service_status
from slurm_soda.daemon.services.service_table import build_service_table
from slurm_soda.daemon.services.service_tasks import NO_TASKS, ServiceTasks, TaskHistory, waits_after_requeue
from slurm_soda.daemon.services.task_starts import StartStep, plan_starts
from slurm_soda.daemon.settings.services import ServicesSettings
from slurm_soda.daemon.store.audit_log import ChangeOutcome
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.services import (
    add_minutes,
    forget_services,
    load_drains,
    load_loads,
    load_low_since,
    load_services,
    save_drains,
    save_services,
)
from slurm_soda.policies.pipeline.actions import DrainInstance, ScaleService
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.services.forecast import MOST_DAYS
from slurm_soda.policies.services.place_services import renew_low_since
from slurm_soda.policies.services.service import Device
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.slurm_ext.client import SlurmClient
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.write.job_changes import JobChange
from slurm_soda.wire.services.router_report import RouterAnswer

DAY_S = 86_400.0
ABANDONED_AFTER_S = 3600.0
"""Whose router has been silent for so long has no service: its tasks get no leases, until it reports again."""
_ABANDONED = "its router has been silent for more than an hour: its tasks run as those of any array"


@dataclass(frozen=True, slots=True)
class ServiceStep:
    """One update or requeue to send."""

    change: JobChange
    start: StartStep | None = None
    drain: Drain | None = None

    @property
    def owner(self) -> str:
        """Whose service it is."""
        if self.drain is not None:
            return self.drain.key.owner
        return self.start.job.user if self.start is not None else ""


@dataclass(slots=True)
class OpenServices:
    """What a daemon knows of services; reports and drains come back from the store, everything else from Slurm."""

    settings: ServicesSettings
    board: ServiceBoard
    bandwidths: NodeBandwidths = field(default_factory=NodeBandwidths)
    drains: OpenDrains = field(default_factory=OpenDrains)
    tasks: Mapping[ServiceKey, ServiceTasks] = field(default_factory=dict)
    low_since_s: dict[ServiceKey, float] = field(default_factory=dict)
    forecasts: LoadForecasts = field(default_factory=LoadForecasts)
    _known: Sequence[KnownService] = ()
    """As the present cycle sees them."""
    _placed: Sequence[KnownService] = ()
    """Those of them that it decides on."""
    _history: TaskHistory = field(default_factory=TaskHistory)
    _requeued: set[int] = field(default_factory=set)
    """Jobs of tasks that wait again by a requeue of ours."""
    _refusals: Refusals = field(default_factory=Refusals)
    _failed_runs: FailedRuns = field(default_factory=FailedRuns)
    _going_first: GoingFirst = field(default_factory=GoingFirst)
    _gone: list[ServiceKey] = field(default_factory=list)
    _written: tuple[Sequence[KnownService], Sequence[LoadMinute]] = ((), ())

    def use(self, settings: ServicesSettings) -> None:
        """Other settings hold from now on."""
        self.settings = settings
        self.forecasts.horizon_s, self.drains.grace_s = settings.horizon_s, settings.drain_grace_s
        self.board.enabled, self.board.most_per_user = settings.enabled, settings.most_per_user
        self.board.mean_over_s = min(MINUTE_S, settings.cool_down_s)

    @property
    def waits_after_requeue(self) -> set[int]:
        """Jobs of tasks that wait again after a run."""
        return waits_after_requeue(self.tasks)

    @property
    def requeued(self) -> set[int]:
        """Those of them that were requeued by a change of ours, so that they were completing, seen or not."""
        return self._requeued & self.waits_after_requeue

    def observe(self, slurm_state: SlurmState) -> None:
        """Take in a reading of Slurm."""
        self.tasks = self._history.tasks(slurm_state.jobs.values(), slurm_state.now_s) if self.settings.enabled else {}
        at = Instant(slurm_state.now_s, slurm_state.steady_s)
        self._gone += self.board.forget(self.tasks.keys(), at)
        self._known = self.board.known() if self.settings.enabled else ()
        self._placed = [one for one in self._known if at.steady_s - one.reported_steady_s <= ABANDONED_AFTER_S]
        self._requeued &= slurm_state.jobs.keys()
        self._refusals.keep(slurm_state.jobs)

    def ask_limits(self, client: SlurmClient, at: Instant) -> None:
        """Ask Slurm how many tasks arrays may run whose owners limit that, where it matters: every quarter of a minute."""
        limits = self._history.limits
        if arrays := limits.to_ask(at.steady_s):
            try:
                limits.take(client.array_throttles(arrays), at.now_s)
            except SlurmError as error:  # what was seen holds
                log(logging.WARNING, "throttles-not-read", error=error)

    def fill(self, snapshot: ClusterSnapshot, at: Instant) -> ClusterSnapshot:
        """The snapshot, with the services."""
        if not self._placed:
            return snapshot
        table = build_service_table(
            self._placed,
            self.tasks,
            steady_s=at.steady_s,
            settings=self.settings,
            low_since_s=self.low_since_s,
            forecast_qps=self.forecasts.tell([one.key for one in self._placed], at.now_s, at.steady_s),
            draining=self.drains.by_job.keys(),
        )
        free_gb_s = self.bandwidths.free_gb_s(snapshot.nodes.name, at.steady_s)
        restarts = {job.job_id: job.restarts for own in self.tasks.values() for job in own.running}
        table = self._failed_runs.observe([one.key for one in self._placed], table, restarts, at.now_s)
        return replace(snapshot, services=replace(table, free_bandwidth_gb_s=free_gb_s))

    def advance(
        self,
        slurm_state: SlurmState,
        snapshot: ClusterSnapshot,
        plan: Plan | None,
        job_cache: JobCache,
        left: Collection[int],
        *,
        acts: bool,
        out_of_scope: Callable[[ServiceKey], str] = lambda _key: "",
    ) -> list[ServiceStep]:
        """What to send, each owner's leases that keep tasks from starting first; and the answers to routers.

        Args:
            slurm_state: as Slurm shows itself.
            snapshot: what the plan was made from.
            plan: what is wanted; ``None``: nothing was decided.
            job_cache: knows when jobs were first submitted.
            left: requeued jobs whose former run has certainly left its nodes.
            acts: sodad enforces; otherwise nothing of this changes anything.
            out_of_scope: why a service is not in scope, of which nothing is changed; empty if it is.
        """
        at = Instant(slurm_state.now_s, slurm_state.steady_s)
        scales = () if plan is None else [one for one in plan.actions if isinstance(one, ScaleService)]
        if plan is not None and len(snapshot.services.services):
            self._renew_low_since(snapshot, plan, at)
        seen = SeenServices({one.key: one for one in self._known}, self.tasks, slurm_state.jobs, at)
        if acts and plan is not None:
            drains = (one for one in self._wanted_drains(plan) if not out_of_scope(one.key))
            self.drains.begin(drains, seen, job_cache)
        steps = [ServiceStep(change, drain=drain) for change, drain in self.drains.advance(seen, acts=acts)]
        if acts:
            starts = sorted(self._starts(scales, at, left), key=lambda one: one.lets_start)
            steps = [ServiceStep(one.change, start=one) for one in starts] + steps
        # Where the change limits cut, no owner loses his leases to the many tasks of another.
        steps = take_turns(steps, lambda one: one.owner)
        self._answer(scales, snapshot, out_of_scope)
        return steps

    def next_s(self, soon_s: float) -> float:
        """When the next cycle is due for what is under way."""
        return soon_s if self.drains.by_job else math.inf

    def choose_first(
        self, plan: Plan, snapshot: ClusterSnapshot, at: Instant, left: Collection[int]
    ) -> tuple[set[int], set[int]]:
        """Waiting tasks that go before other jobs, and those of them for which there is room."""
        return self._going_first.choose(plan, snapshot, self.tasks, draining=self.drains.by_job, left=left, at=at)

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
            self._refusals.note(step.change.job_id, steady_s, refused=outcome.state == "failed")
            return
        if outcome.state == "failed":
            drain.note_refusal(steady_s)
        elif outcome.state == "done":
            drain.phase = "requeued"
            self._requeued.add(drain.job_id)
            self.drains.changed.append(drain)

    def save(self, session: Session, at: Instant) -> None:
        """Write what changed; :meth:`saved` once the transaction is through."""
        services, minutes = self.board.changed(), self.board.finished_minutes(at.now_s)
        save_services(session, services, self.low_since_s)
        add_minutes(session, minutes)
        forget_services(session, self._gone)
        save_drains(session, self.drains.changed, at)
        self._written = services, minutes

    def saved(self) -> None:
        """What :meth:`save` wrote is committed."""
        services, minutes = self._written
        self.board.saved(services)
        self.board.saved_minutes(minutes)
        self.forecasts.add(minutes)
        self.forecasts.forget(self._gone)
        self._written = (), ()
        self._gone = []
        self.drains.saved()

    def recall(self, session: Session, at: Instant, before: OpenServices | None) -> None:
        """As the store has it; ``before`` is what this process knew until now."""
        self.use(self.settings)
        self.board.recall(load_services(session, at))
        self.low_since_s = load_low_since(session)
        if before is None:
            self.forecasts.recall(load_loads(session, at.now_s - MOST_DAYS * DAY_S))
        else:
            self.forecasts = before.forecasts
        self.drains.recall(load_drains(session, at, self.drains.grace_s), None if before is None else before.drains)
        if before is not None:
            self._history, self.low_since_s = before._history, before.low_since_s
            self._requeued, self._refusals = before._requeued, before._refusals
            self._failed_runs, self._going_first = before._failed_runs, before._going_first

    def _renew_low_since(self, snapshot: ClusterSnapshot, plan: Plan, at: Instant) -> None:
        renewed = renew_low_since(snapshot, plan).tolist()
        names = [ServiceKey(one.owner, one.name) for one in snapshot.services.services]
        # What the daemon before saw holds on until the router reports to this one, or has been silent for long.
        kept = {
            one.key: self.low_since_s[one.key]
            for one in self._placed
            if math.isnan(one.load_qps)
            and at.steady_s - one.reported_steady_s <= self.settings.silent_after_s
            and one.key in self.low_since_s
        }
        found = {key: low_s for key, low_s in zip(names, renewed, strict=True) if not math.isnan(low_s)}
        self.low_since_s = kept | found

    def _wanted_drains(self, plan: Plan) -> Iterator[WantedDrain]:
        for one in plan.actions:
            if isinstance(one, DrainInstance):
                yield WantedDrain(one.job_id, ServiceKey(one.owner, one.service), one.reason)
        for key, asked in self.board.take_requests().items():
            for job_id in sorted(asked):
                yield WantedDrain(job_id, key, "its owner asked for it", by_owner=True)

    def _starts(self, scales: Iterable[ScaleService], at: Instant, left: Collection[int]) -> Iterator[StartStep]:
        for scale in scales:
            own = self.tasks.get(ServiceKey(scale.owner, scale.service), NO_TASKS)
            steps = plan_starts(
                scale,
                own.waiting[scale.device],
                own.count_staying(scale.device, self.drains.by_job),
                now_s=at.now_s,
                lease_s=self.settings.lease_s,
                left=left,
            )
            yield from (step for step in steps if self._refusals.may_try(step.job.job_id, at.steady_s))

    def _answer(
        self, scales: Sequence[ScaleService], snapshot: ClusterSnapshot, out_of_scope: Callable[[ServiceKey], str]
    ) -> None:
        """Routers and people are told what holds from now on."""
        by_key: dict[ServiceKey, dict[Device, ScaleService]] = {}
        for scale in scales:
            by_key.setdefault(ServiceKey(scale.owner, scale.service), {})[scale.device] = scale
        drains = self.drains.by_service()
        table, answers, statuses = snapshot.services, {}, {}
        forecasts = dict(zip((one.key for one in self._placed), table.forecast_qps.tolist(), strict=False))
        placed = {one.key for one in self._placed}
        for one in self._known:
            wanted = by_key.get(one.key, {})
            nothing = "sodad decides nothing now" if one.key in placed else _ABANDONED
            nothing = out_of_scope(one.key) or nothing
            reason = next((scale.reason for scale in wanted.values()), nothing)
            leaving = {drain.job_id: drain.why for drain in drains.get(one.key, ())}
            counts = {device: wanted[device].instances if device in wanted else 0 for device in Device}
            answers[one.key] = RouterAnswer(
                tuple(sorted(leaving)), counts[Device.CPU], counts[Device.GPU], reason[:1000]
            )
            statuses[one.key] = service_status(
                one,
                self.tasks.get(one.key, NO_TASKS),
                draining=leaving,
                wanted=counts,
                reason=reason,
                forecast_qps=forecasts.get(one.key),
            )
        self.board.answer(answers, self._known)
        self.board.statuses = statuses
