"""One cycle: observe, decide, act, record. It reads like its diagram.

Everything that may reach Slurm is committed first, so a crash at any instant leaves a store that names it; a restarted
daemon, or this one after an error, reads the store again and goes on from what Slurm then shows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.clock import Clock
from slurm_soda.daemon.config import Settings
from slurm_soda.daemon.cpu_fit.cpu_fitting import CpuFitProposals, CpuFitting
from slurm_soda.daemon.cycle.accounting_lookup import AccountingLookup
from slurm_soda.daemon.cycle.change_limits import ChangeLimits, CircuitBreaker
from slurm_soda.daemon.cycle.effective_settings import EffectiveSettings, effective_settings, read_admin_settings
from slurm_soda.daemon.cycle.epoch import DaemonEpoch, SupersededError
from slurm_soda.daemon.cycle.json_values import to_json_values
from slurm_soda.daemon.cycle.recorder import CycleRecorder, CycleResult, summarize_plan
from slurm_soda.daemon.cycle.sending import RecordedChange, resolve_outcome, send_recorded_changes
from slurm_soda.daemon.cycle.slurm_state import SlurmReader, SlurmState
from slurm_soda.daemon.cycle.stopwatch import Stopwatch
from slurm_soda.daemon.learning.policy_parameters import PolicyParameterLearner
from slurm_soda.daemon.learning.run_time_predictions import RunTimePredictor
from slurm_soda.daemon.logs import LOGGER, log
from slurm_soda.daemon.pools.pool_stage import PoolStage, requeued_by_us
from slurm_soda.daemon.preemption.active_preemptions import ActivePreemptions
from slurm_soda.daemon.store import audit_log
from slurm_soda.daemon.store.audit_log import ChangeOutcome, UnsettledChange
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.jobs.job_notes import JobNoteWriter
from slurm_soda.daemon.store.preemptions import load_preemptions
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState
from slurm_soda.slurm_ext.client import SlurmClient
from slurm_soda.slurm_ext.errors import SlurmError, SodaError
from slurm_soda.slurm_ext.write.job_changes import JobChange

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
    next_s: float = NO_EVENT_S
    """When the next cycle is due without any event."""
    timings_s: dict[str, float] = field(default_factory=dict)
    acts: bool = False
    """It may change Slurm, and the breaker is closed: so may others after it."""


class CycleRunner:
    """Runs cycles over one store and one Slurm."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        client: SlurmClient,
        *,
        daemon_epoch: DaemonEpoch,
        clock: Clock,
        completion: AccountingLookup,
    ) -> None:
        self.settings = settings
        self._store, self._client, self._daemon_epoch, self._clock = store, client, daemon_epoch, clock
        self._completion = completion
        self._slurm_reader, self._recorder = SlurmReader(client), CycleRecorder(store, daemon_epoch)
        self._rails, self._breaker = ChangeLimits(settings.change_limits), CircuitBreaker(settings.change_limits)
        self._learner, self._run_time_predictor = PolicyParameterLearner(), RunTimePredictor(store)
        self.problems: Callable[[], Sequence[str]] = tuple
        """What is wrong elsewhere in this daemon, for people who look at its cycles."""
        self._stale = False
        self._recall()

    def reload(self, settings: Settings) -> None:
        """Use other settings from the next cycle on; store, lock and API stay as they were at start."""
        self.settings = settings
        self._preemptions.settings = settings.preemption
        self._starts.settings = settings.cores
        self._rails.settings = self._breaker.settings = settings.change_limits

    def close(self) -> None:
        """End this life in good order."""
        self._completion.close()
        with self._store.write() as session:
            self._daemon_epoch.end(session, self._clock.now_s())

    def _recall(self) -> None:
        """Read from the store what a daemon must know to go on."""
        self._stale = False
        self._job_cache, self._notes = JobCache(self._store), JobNoteWriter()
        self._preemptions = ActivePreemptions(self.settings.preemption)
        self._starts = CpuFitting(self.settings.cores, self._store, self._client)
        with self._store.read() as session:
            self._arrays = PoolStage(Path(self.settings.state_dir), session, self._client)
            self._preemptions.adopt(load_preemptions(session))
            self._unsettled = audit_log.unsettled_changes(session)
            since_s = self._clock.now_s() - self.settings.change_limits.min_change_interval_s
            for job_id, at_s in audit_log.recent_changes(session, since_s):
                self._rails.remember(job_id, at_s)

    def run(self) -> CycleReport:
        """One cycle. Whatever goes wrong is written down, and nothing more is done in it.

        Raises:
            SupersededError: a newer daemon has taken over.
        """
        now_s, watch, terms = self._clock.now_s(), Stopwatch(self._clock), None
        try:
            terms = self._terms(now_s)
            return self._run(now_s, watch, terms)
        except SupersededError:
            raise
        except SlurmError as error:
            return self._failed(now_s, watch, terms, error)
        except Exception as error:  # noqa: BLE001 - a daemon outlives its mistakes: it says so, and begins anew from the store
            report = self._failed(now_s, watch, terms, error)
            self._stale = True
            return report

    def _terms(self, now_s: float) -> EffectiveSettings:
        if self._stale:
            self._recall()
        with self._store.read() as session:
            self._daemon_epoch.check(session)
            learn = partial(self._learner.parameters, session, now_s=now_s)
            return effective_settings(self.settings, read_admin_settings(session), learn)

    def _run(self, now_s: float, watch: Stopwatch, terms: EffectiveSettings) -> CycleReport:
        acts = terms.mode == "enforce" and not self._breaker.is_open(now_s)
        with watch("observe"):
            slurm_state = self._observe(now_s, watch)
        with watch("decide"):
            requeued = {*self._preemptions.by_job, *self._arrays.aborted(slurm_state.jobs)}
            snapshot = slurm_state.snapshot(self._job_cache, leaving=self._preemptions.leaving, requeued=requeued)
            with watch("decide.run_times"):
                snapshot = self._run_time_predictor.fill(snapshot, slurm_state.jobs, self._job_cache)
            plan = None if terms.mode == "observe" else self._arrays.decide(terms.policy, snapshot)
        with watch("cores"):
            # A Slurm that fails is not asked for details which nothing would come of.
            asks = plan is not None and not self._breaker.is_open(now_s)
            proposals = self._starts.propose(slurm_state, self._job_cache, acts=acts) if asks else CpuFitProposals()
        with watch("act"):
            work = self._weigh(slurm_state, snapshot, plan, proposals, acts=acts)
            recorded = self._recorder.intend(
                work, self._job_cache, self._arrays, now_s=now_s, mode=terms.mode, policy=terms.policy.name
            )
            self._send(recorded, work, watch)
        with watch("record"):
            report = self._report(terms, snapshot, work, acts=acts)
            row = partial(self._row, terms, report, work, watch)
            self._recorder.close(work, self._job_cache, self._notes, now_s=self._clock.now_s(), columns=row)
            self._preemptions.drop_over()
            with watch("record.learn"):
                self._run_time_predictor.step(now_s, slurm_state.nodes, self._job_cache)
        if self._breaker.note_success(watch.reading()["observe"], now_s):
            log(logging.ERROR, "breaker-open", until_s=self._breaker.open_until_s, cause=self._breaker.cause)
        acts = acts and not self._breaker.is_open(now_s)
        return replace(report, timings_s=watch.reading(), acts=acts)

    def _observe(self, now_s: float, watch: Stopwatch) -> SlurmState:
        slurm_state = self._slurm_reader.look(now_s, watch)
        with watch("observe.memory"):
            listed = set(slurm_state.jobs)
            self._job_cache.observe(list(slurm_state.jobs.values()), now_s)
            ours = {job_id: p.restart for job_id, p in self._preemptions.by_job.items() if p.phase != "intended"}
            self._arrays.look(slurm_state, self._job_cache, requeued_by_us(ours))
            self._completion.step(self._job_cache, listed, now_s)
            self._job_cache.forget(listed, now_s, accounting=self._completion.ask is not None)
        return slurm_state

    def _weigh(
        self,
        slurm_state: SlurmState,
        snapshot: ClusterSnapshot,
        plan: Plan | None,
        proposals: CpuFitProposals,
        *,
        acts: bool,
    ) -> CycleResult:
        """From the plan to changes, and from these to the ones that the rails let through."""
        now_s, jobs = slurm_state.now_s, slurm_state.jobs
        settled = self._settle(slurm_state)
        steps, changed = self._preemptions.advance(jobs, plan, now_s, may_begin=acts)
        self._count_preemptions()
        begun = [] if plan is None else self._preemptions.begin(plan, jobs, self._job_cache, now_s)
        ordinary: list[JobChange] = list(proposals.changes)
        if plan is not None:
            returns = [] if self._breaker.is_open(now_s) else self._arrays.returns(slurm_state, self.settings.arrays)
            ordinary = returns + ordinary
            ordinary += self._arrays.orders(snapshot, plan, self.settings.arrays, depth=self.settings.cycle.order_depth)
        planned = len(steps) + len(begun) + len(ordinary)
        if not acts:
            begun, ordinary = [], []
        elif plan is not None:
            self._job_cache.promote(plan.promoted.tolist(), now_s)
        preemption_steps = steps + begun
        passed = self._rails.admit([preemption_step.change for preemption_step in preemption_steps], ordinary, now_s)
        admitted = {id(change) for change in passed.changes}
        preemption_steps = [
            preemption_step for preemption_step in preemption_steps if id(preemption_step.change) in admitted
        ]
        fresh = [
            preemption_step.active_preemption for preemption_step in begun if id(preemption_step.change) in admitted
        ]
        self._preemptions.adopt(fresh)
        return CycleResult(
            slurm_state, plan, preemption_steps, fresh, changed, settled, planned, passed, proposals.rows
        )

    def _settle(self, slurm_state: SlurmState) -> list[ChangeOutcome]:
        """What became of changes whose outcome nobody saw, as far as this sight tells."""
        judged = [
            (
                each,
                resolve_outcome(
                    each, slurm_state.jobs.get(job_id), slurm_state.site_factors.get(job_id, 0), slurm_state.now_s
                ),
            )
            for each in self._unsettled
            for job_id in (each.change.job_id,)
        ]
        self._unsettled = [each for each, outcome in judged if outcome is None]
        return [outcome for _, outcome in judged if outcome is not None]

    def _send(self, recorded: Sequence[RecordedChange], work: CycleResult, watch: Stopwatch) -> None:
        """Send what is recorded, and take in what became of it."""
        if not recorded:
            return
        with self._store.read() as session:
            self._daemon_epoch.check(session)
        urge_of = {id(preemption_step.change): preemption_step for preemption_step in work.preemption_steps}
        with watch("act.send"):
            for outcome, (action_id, change) in zip(
                send_recorded_changes(self._client, recorded), recorded, strict=True
            ):
                work.outcomes.append(outcome)
                preemption_step = urge_of.get(id(change))
                if preemption_step is not None:
                    now_s = self._clock.now_s()
                    self._preemptions.note(preemption_step, outcome, work.slurm_state.jobs[change.job_id], now_s)
                if outcome.state == "sent":
                    self._unsettled.append(
                        UnsettledChange(
                            action_id, change, preemption_step.active_preemption.restart if preemption_step else None
                        )
                    )
                if outcome.state == "failed":
                    self._arrays.refused(change, self._clock.now_s())
                if outcome.error:
                    log(logging.WARNING, "refused", job=change.job_id, kind=change.kind, error=outcome.error)

        self._count_preemptions()

    def _count_preemptions(self) -> None:
        for job_id in self._preemptions.take_succeeded():
            self._job_cache.count_preemption(job_id)

    def _report(
        self, terms: EffectiveSettings, snapshot: ClusterSnapshot, work: CycleResult, *, acts: bool
    ) -> CycleReport:
        now_s, states = work.slurm_state.now_s, snapshot.jobs.state
        due_s = [work.passed.retry_s, now_s + self.settings.cycle.interval_s]
        if acts:
            due_s.append(self._arrays.next_s(work.slurm_state, now_s + self.settings.cycle.busy_interval_s))
        if self._preemptions.by_job or self._unsettled:
            due_s.append(now_s + self.settings.cycle.busy_interval_s)
        if work.plan is not None:
            due_s.append(work.plan.next_event_s)
        return CycleReport(
            mode=terms.mode,
            pending=int((states == JobState.PENDING).sum()),
            running=int((states == JobState.RUNNING).sum()),
            planned=work.planned,
            sent=len(work.outcomes),
            next_s=min(due_s),
        )

    def _row(
        self, terms: EffectiveSettings, report: CycleReport, work: CycleResult, watch: Stopwatch
    ) -> dict[str, Any]:
        """The columns of the cycle's row, made last so that the timings are nearly whole."""
        facts: dict[str, Any] = {"preempting": len(self._preemptions.by_job), "deferred": work.passed.deferred}
        facts |= self._breaker_facts(work.slurm_state.now_s)
        if problems := [*terms.problems, *self.problems()]:
            facts["problems"] = problems
        if work.plan is not None:
            facts |= {"plan": summarize_plan(work.plan), "policy": dict(work.plan.facts)}
        return {
            "pending": report.pending,
            "running": report.running,
            "planned": report.planned,
            "sent": report.sent,
            "timings_s": watch.reading(),
            "facts": to_json_values(facts),
        }

    def _breaker_facts(self, now_s: float) -> dict[str, Any]:
        if not self._breaker.is_open(now_s):
            return {}
        return {"breaker_open_until_s": self._breaker.open_until_s, "breaker_cause": self._breaker.cause}

    def _failed(self, now_s: float, watch: Stopwatch, terms: EffectiveSettings | None, error: Exception) -> CycleReport:
        """A cycle without action: say why, everywhere where somebody may look."""
        text = str(error) if isinstance(error, SodaError) else f"{type(error).__name__}: {error}"
        expected = isinstance(error, SodaError | SQLAlchemyError)
        log(logging.WARNING if expected else logging.ERROR, "no-action", error=text)
        if not expected:
            LOGGER.exception("unexpected")
        if self._breaker.note_failure(now_s, text):
            log(logging.ERROR, "breaker-open", until_s=self._breaker.open_until_s, cause=text)
        mode = terms.mode if terms else self.settings.mode
        policy = terms.policy.name if terms else self.settings.policy.name
        columns = {"error": text, "timings_s": watch.reading(), "facts": self._breaker_facts(now_s)}
        try:
            self._recorder.fail(now_s=now_s, mode=mode, policy=policy, columns=columns)
        except SQLAlchemyError as second:
            log(logging.ERROR, "store-unusable", error=second)
        return CycleReport(mode, error=text, next_s=now_s + self.settings.cycle.retry_s)
