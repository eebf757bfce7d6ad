"""What becomes of a cycle: the row that it leaves, the two transactions around what it sends, and what the loop is told.

What will be sent is written before it is sent; what became of it, afterwards.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.cycle.change_limits import AdmittedChanges, CircuitBreaker
from slurm_soda.daemon.cycle.daemon_state import DaemonContext, DaemonState
from slurm_soda.daemon.cycle.effective_settings import EffectiveSettings
from slurm_soda.daemon.cycle.sending import RecordedChange
from slurm_soda.daemon.cycle.slurm_state import SlurmState
from slurm_soda.daemon.cycle.stopwatch import Stopwatch
from slurm_soda.daemon.cycle.store_pruner import StorePruner
from slurm_soda.daemon.logs import LOGGER, log
from slurm_soda.daemon.preemption.active_preemptions import PreemptionStep
from slurm_soda.daemon.preemption.state_machine import ActivePreemption
from slurm_soda.daemon.services.open_services import ServiceStep
from slurm_soda.daemon.settings.scheduling import CycleSettings
from slurm_soda.daemon.sharing.open_shares import ShareStep
from slurm_soda.daemon.sharing.share_state import Share
from slurm_soda.daemon.sharing.sharing_snapshot import describe_shares
from slurm_soda.daemon.store import audit_log
from slurm_soda.daemon.store.audit_log import ChangeOutcome, IntendedChange
from slurm_soda.daemon.store.cpu_fit import save_proposals
from slurm_soda.daemon.store.manual_shares import save_manual_shares
from slurm_soda.daemon.store.preemptions import add_preemptions, save_phases
from slurm_soda.daemon.store.shares import add_shares, save_shares
from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.daemon.store.tables.cpu_fit import CpuProposalRow
from slurm_soda.daemon.store.tables.sharing import ManualShareRow
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.write.job_changes import ChangeKey


def to_json_values(value: Any) -> Any:
    """The same value with undecodable bytes written as escapes and numbers that are none as ``null``."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {to_json_values(str(key)): to_json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_values(item) for item in value]
    return value


MAX_SHOWN = 50
"""Starts and preemptions of a plan that a cycle's row names."""

NO_EVENT_S = float("inf")


@dataclass(frozen=True, slots=True)
class CycleReport:
    """What one cycle did, for the loop and the log."""

    mode: str
    error: str = ""
    pending: int = 0
    running: int = 0
    planned: int = 0
    sent: int = 0
    began_s: float = 0.0
    """The cycle's instant, by the wall clock."""
    next_s: float = NO_EVENT_S
    """When the next cycle is due without any event, by the wall clock as it was then."""
    timings_s: dict[str, float] = field(default_factory=dict)
    acts: bool = False
    """It may change Slurm, and the breaker is closed: so may others after it."""

    @property
    def pause_s(self) -> float:
        """From this cycle's beginning to the next one's, whatever is done to the wall clock meanwhile."""
        return self.next_s - self.began_s


@dataclass(slots=True)
class CycleResult:
    """One cycle in the making: what the plan wants and what may be done about it."""

    slurm_state: SlurmState
    snapshot: ClusterSnapshot
    plan: Plan | None
    preemption_steps: list[PreemptionStep]
    """Steps of preemptions, those that begin included."""
    begun: list[ActivePreemption]
    """Preemptions that begin with this cycle; others that the change limits held back are forgotten."""
    changed: list[ActivePreemption]
    """Preemptions whose phase changed by what Slurm shows."""
    settled: list[ChangeOutcome]
    """Changes of earlier cycles whose outcome is known now."""
    planned: int
    admitted: AdmittedChanges
    cpu_proposals: Sequence[CpuProposalRow] = ()
    """New or changed CPU-fit proposals."""
    share_steps: Sequence[ShareStep] = ()
    """Steps of shares whose change was admitted."""
    changed_shares: Sequence[Share] = ()
    """Shares in the store of which something changed without a step."""
    manual_shares: Sequence[ManualShareRow] = ()
    """What admins want shared of which something changed."""
    service_steps: Sequence[ServiceStep] = ()
    """Steps of services whose change was admitted."""
    cycle_id: int = 0
    """Key of the cycle's row, once it is recorded."""
    outcomes: list[ChangeOutcome] = field(default_factory=list)
    """Of the changes that were sent, in their order."""

    @property
    def without_effect(self) -> list[int]:
        """Keys of the preemptions that are lost because the job's run ended by itself."""
        lost = [(p, self.slurm_state.jobs.get(p.job_id)) for p in self.changed if p.phase == "lost"]
        return [p.pk for p, job in lost if job is not None and job.restarts == p.restart]

    @property
    def preemption_step_of(self) -> dict[ChangeKey, PreemptionStep]:
        """Steps of preemptions by their change."""
        return {preemption_step.change.key: preemption_step for preemption_step in self.preemption_steps}

    @property
    def share_step_of(self) -> dict[ChangeKey, ShareStep]:
        """Steps of shares by their change."""
        return {step.change.key: step for step in self.share_steps}

    @property
    def service_step_of(self) -> dict[ChangeKey, ServiceStep]:
        """Steps of services by their change."""
        return {step.change.key: step for step in self.service_steps}


@dataclass(slots=True)
class CycleRecorder:
    """Writes cycles down, for one daemon epoch."""

    context: DaemonContext
    breaker: CircuitBreaker
    pruner: StorePruner = field(init=False)

    def __post_init__(self) -> None:
        self.pruner = StorePruner(self.context)

    def intend(
        self,
        result: CycleResult,
        state: DaemonState,
        effective: EffectiveSettings,
        at: Instant,
        still_wanted: Callable[[Session], None],
    ) -> list[RecordedChange]:
        """First transaction: everything known, and every change that is about to be sent.

        Raises:
            ModeChangedError: by ``still_wanted``, which looks into the store; nothing was written.
            SupersededError: a newer daemon has taken over; nothing was written.
            LeaseLapsedError: this daemon was paused since it read Slurm; nothing was written.
        """
        lease, job_cache, preemption_step_of = self.context.lease, state.job_cache, result.preemption_step_of
        now_s = at.now_s
        with self.context.store.write() as session:
            if result.admitted.changes:
                lease.check_age()
                still_wanted(session)
            lease.renew_within(session)
            result.cycle_id = audit_log.open_cycle(
                session,
                epoch_id=lease.daemon_epoch.epoch_id,
                started_s=now_s,
                mode=effective.mode,
                policy=effective.policy.name,
            )
            audit_log.record_outcomes(session, result.settled, now_s)
            save_phases(session, result.changed, at)
            audit_log.void_requeues(session, result.without_effect, now_s)
            add_preemptions(session, result.begun, at)
            save_shares(session, [share for share in result.changed_shares if share.pk], at)
            save_manual_shares(session, result.manual_shares, now_s)
            add_shares(session, state.shares.unrecorded, result.cycle_id, at)
            state.save(session, at)
            state.scope.note_stage(session, effective.mode, now_s)
            save_proposals(session, result.cpu_proposals)
            intents = []
            for change in result.admitted.changes:
                preemption_step = preemption_step_of.get(change.key)
                intents.append(
                    IntendedChange(
                        change,
                        job_cache.submit_s(change.job_id),
                        preemption_step.active_preemption.pk if preemption_step else None,
                    )
                )
            keys = audit_log.record_intents(
                session, intents, epoch_id=lease.daemon_epoch.epoch_id, cycle_id=result.cycle_id, now_s=now_s
            )
        state.saved()
        return list(zip(keys, result.admitted.changes, strict=True))

    def close(
        self,
        result: CycleResult,
        state: DaemonState,
        effective: EffectiveSettings,
        report: CycleReport,
        watch: Stopwatch,
        *,
        problems_elsewhere: Sequence[str],
    ) -> None:
        """Second transaction: what became of it all."""
        at, job_cache = Instant.read(self.context.clock), state.job_cache
        now_s = at.now_s
        moved = [
            preemption_step.active_preemption
            for preemption_step in result.preemption_steps
            if preemption_step.active_preemption.pk
        ]
        with self.context.store.write() as session:
            audit_log.record_outcomes(session, result.outcomes, now_s)
            save_phases(session, moved, at)
            save_shares(session, [step.share for step in result.share_steps], at)
            job_cache.save(session, now_s)
            if result.plan is not None:
                shares = describe_shares(result.plan, result.snapshot, state.shares.unguarded)
                for job_id, why in state.shares.refusals.items():
                    shares.setdefault(job_id, {"no_guest": why})["refused"] = why
                outside = state.scope.notes(result.plan.notes.job_id.tolist())
                state.notes.write(session, result.plan.notes, job_cache.jobs, shares, outside)
            elsewhere = [*filter(None, (state.scope.unknown,)), *problems_elsewhere]
            facts = self._facts(result, state.preemptions.unfinished, [*effective.problems, *elsewhere])
            if counts := state.scope.counts(result.slurm_state, result.plan):
                facts["scope"] = counts
            # Its columns come last, so that the timings are nearly whole.
            audit_log.close_cycle(
                session,
                result.cycle_id,
                pending=report.pending,
                running=report.running,
                planned=report.planned,
                sent=report.sent,
                facts=to_json_values(facts),
                timings_s=watch.reading(),
            )
        job_cache.saved()

    def fail(
        self, error: Exception, watch: Stopwatch, at: Instant, *, mode: str, policy: str, consequence: str = ""
    ) -> str:
        """Write down and count a cycle that did nothing; gives the reason for people, with what followed from it."""
        text = "; ".join(filter(None, (self._text(error), consequence)))
        if self.breaker.note_failure(at.steady_s, text):
            log(logging.ERROR, "breaker-open", until_s=at.wall(self.breaker.open_until_s), cause=text)
        columns = {"error": text, "timings_s": watch.reading(), "facts": self._breaker_facts(at)}
        try:
            self._write_failure(at.now_s, mode, policy, columns)
        except (SQLAlchemyError, StoreError) as second:
            # Whoever asks why no cycle is recorded needs this cause first.
            text = "; then: ".join(dict.fromkeys((self._text(second), text)))
        expected = isinstance(error, SodaError | SQLAlchemyError)
        log(logging.WARNING if expected else logging.ERROR, "no-action", error=text)
        if not expected:
            LOGGER.error("unexpected", exc_info=error)
        return text

    def _text(self, error: Exception) -> str:
        if isinstance(error, SQLAlchemyError):
            return str(self.context.store.error_of(error))
        return str(error) if isinstance(error, SodaError) else f"{type(error).__name__}: {error}"

    def note_success(self, watch: Stopwatch, at: Instant) -> None:
        """Count a cycle that went well, unless Slurm was slow in it."""
        if self.breaker.note_success(watch.reading()["observe"], at.steady_s):
            log(logging.ERROR, "breaker-open", until_s=at.wall(self.breaker.open_until_s), cause=self.breaker.cause)

    def _write_failure(self, now_s: float, mode: str, policy: str, columns: Mapping[str, Any]) -> None:
        lease = self.context.lease
        with self.context.store.write() as session:
            lease.write_heartbeat(session)
            cycle_id = audit_log.open_cycle(
                session, epoch_id=lease.daemon_epoch.epoch_id, started_s=now_s, mode=mode, policy=policy
            )
            audit_log.close_cycle(session, cycle_id, **columns)

    def _facts(self, result: CycleResult, active_preemptions: int, problems: Sequence[str]) -> dict[str, Any]:
        facts: dict[str, Any] = {"preempting": active_preemptions, "deferred": result.admitted.deferred}
        facts |= self._breaker_facts(Instant(result.slurm_state.now_s, result.slurm_state.steady_s))
        if problems:
            facts["problems"] = list(problems)
        if result.plan is not None:
            facts |= {"plan": summarize_plan(result.plan), "policy": dict(result.plan.facts)}
        return facts

    def _breaker_facts(self, at: Instant) -> dict[str, Any]:
        if not self.breaker.is_open(at.steady_s):
            return {}
        return {"breaker_open_until_s": at.wall(self.breaker.open_until_s), "breaker_cause": self.breaker.cause}


def cycle_report(
    result: CycleResult, state: DaemonState, effective: EffectiveSettings, settings: CycleSettings, *, acts: bool
) -> CycleReport:
    """What the loop is told of a cycle that went well, before its timings are known."""
    now_s, states = result.slurm_state.now_s, result.snapshot.jobs.state
    soon_s = now_s + settings.busy_interval_s
    at = Instant(now_s, result.slurm_state.steady_s)
    due_s = [at.wall(result.admitted.retry_s), now_s + settings.interval_s]
    if acts:
        due_s.append(state.pools.next_s(result.slurm_state, soon_s))
    unanswered = any(outcome.state == "sent" for outcome in result.outcomes)
    if state.preemptions.unfinished or result.preemption_steps or state.shares.under_way or unanswered:
        due_s.append(soon_s)
    due_s.append(soon_s if result.service_steps else state.services.next_s(soon_s))
    if result.plan is not None:
        due_s.append(result.plan.next_event_s)
    return CycleReport(
        mode=effective.mode,
        pending=int((states == JobState.PENDING).sum()),
        running=int((states == JobState.RUNNING).sum()),
        planned=result.planned,
        sent=len(result.outcomes),
        began_s=now_s,
        next_s=min(due_s),
    )


def summarize_plan(plan: Plan) -> dict[str, Any]:
    """The heart of a plan as plain data, for people; long lists are cut."""
    preempts: Sequence[dict[str, Any]] = [
        {"job_id": one.job_id, "for_jobs": list(one.for_jobs)[:MAX_SHOWN], "reason": one.reason}
        for one in plan.preempts[:MAX_SHOWN]
    ]
    return {
        "starts": plan.starts[:MAX_SHOWN].tolist(),
        "preempts": list(preempts),
        "promoted": plan.promoted[:MAX_SHOWN].tolist(),
    }
