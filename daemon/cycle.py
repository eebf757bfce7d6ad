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

from slurm_soda.daemon.arrays.side import ArraySide, ours_among
from slurm_soda.daemon.clock import Clock
from slurm_soda.daemon.completion import Completion
from slurm_soda.daemon.config import Settings
from slurm_soda.daemon.cores.starts import Starts, Thoughts
from slurm_soda.daemon.epoch import Life, SupersededError
from slurm_soda.daemon.knowledge.foresight import Foresight
from slurm_soda.daemon.learning import Learner
from slurm_soda.daemon.logline import LOGGER, log
from slurm_soda.daemon.plain import plain
from slurm_soda.daemon.preemptions import Preemptions
from slurm_soda.daemon.rails import Breaker, Rails
from slurm_soda.daemon.recording import Recorder, Work, shown_plan
from slurm_soda.daemon.sending import Recorded, resolve, send
from slurm_soda.daemon.sight import Sight, Watcher
from slurm_soda.daemon.stopwatch import Stopwatch
from slurm_soda.daemon.store import ledger
from slurm_soda.daemon.store.book import JobBook
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.ledger import Outcome, Unsettled
from slurm_soda.daemon.store.notes import NoteWriter
from slurm_soda.daemon.store.preemptions import load_preemptions
from slurm_soda.daemon.terms import Terms, read_overrides, terms_of
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState
from slurm_soda.slurm_ext.actuator import Change, rewrite_changes
from slurm_soda.slurm_ext.client import SlurmClient
from slurm_soda.slurm_ext.errors import SlurmError, SodaError

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


class Cycles:
    """Runs cycles over one store and one Slurm."""

    def __init__(
        self, settings: Settings, store: Store, client: SlurmClient, *, life: Life, clock: Clock, completion: Completion
    ) -> None:
        self.settings = settings
        self._store, self._client, self._life, self._clock = store, client, life, clock
        self._completion = completion
        self._watcher, self._recorder = Watcher(client), Recorder(store, life)
        self._rails, self._breaker = Rails(settings.rails), Breaker(settings.rails)
        self._learner, self._foresight = Learner(), Foresight(store)
        self.complaints: Callable[[], Sequence[str]] = tuple
        """What is wrong elsewhere in this daemon, for people who look at its cycles."""
        self._stale = False
        self._recall()

    def reload(self, settings: Settings) -> None:
        """Use other settings from the next cycle on; store, lock and API stay as they were at start."""
        self.settings = settings
        self._preemptions.settings = settings.preemption
        self._starts.settings = settings.cores
        self._rails.settings = self._breaker.settings = settings.rails

    def close(self) -> None:
        """End this life in good order."""
        self._completion.close()
        with self._store.write() as session:
            self._life.end(session, self._clock.now_s())

    def _recall(self) -> None:
        """Read from the store what a daemon must know to go on."""
        self._stale = False
        self._book, self._notes = JobBook(self._store), NoteWriter()
        self._preemptions = Preemptions(self.settings.preemption)
        self._starts = Starts(self.settings.cores, self._store, self._client)
        with self._store.read() as session:
            self._arrays = ArraySide(Path(self.settings.state_dir), session, self._client)
            self._preemptions.adopt(load_preemptions(session))
            self._unsettled = ledger.unsettled(session)
            since_s = self._clock.now_s() - self.settings.rails.min_change_interval_s
            for job_id, at_s in ledger.recent_changes(session, since_s):
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

    def _terms(self, now_s: float) -> Terms:
        if self._stale:
            self._recall()
        with self._store.read() as session:
            self._life.check(session)
            learn = partial(self._learner.parameters, session, now_s=now_s)
            return terms_of(self.settings, read_overrides(session), learn)

    def _run(self, now_s: float, watch: Stopwatch, terms: Terms) -> CycleReport:
        acts = terms.mode == "enforce" and not self._breaker.is_open(now_s)
        with watch("observe"):
            sight = self._observe(now_s, watch)
        with watch("decide"):
            requeued = {*self._preemptions.by_job, *self._arrays.aborted(sight.jobs)}
            snapshot = sight.snapshot(self._book, leaving=self._preemptions.leaving, requeued=requeued)
            with watch("decide.run_times"):
                snapshot = self._foresight.fill(snapshot, sight.jobs, self._book)
            plan = None if terms.mode == "observe" else self._arrays.decide(terms.policy, snapshot)
        with watch("cores"):
            # A Slurm that fails is not asked for details which nothing would come of.
            asks = plan is not None and not self._breaker.is_open(now_s)
            thoughts = self._starts.think(sight, self._book, acts=acts) if asks else Thoughts()
        with watch("act"):
            work = self._weigh(sight, snapshot, plan, thoughts, acts=acts)
            recorded = self._recorder.intend(
                work, self._book, self._arrays, now_s=now_s, mode=terms.mode, policy=terms.policy.name
            )
            self._send(recorded, work, watch)
        with watch("record"):
            report = self._report(terms, snapshot, work, acts=acts)
            row = partial(self._row, terms, report, work, watch)
            self._recorder.close(work, self._book, self._notes, now_s=self._clock.now_s(), columns=row)
            self._preemptions.drop_over()
            with watch("record.learn"):
                self._foresight.step(now_s, sight.nodes, self._book)
        if self._breaker.note_success(watch.reading()["observe"], now_s):
            log(logging.ERROR, "breaker-open", until_s=self._breaker.open_until_s, cause=self._breaker.cause)
        acts = acts and not self._breaker.is_open(now_s)
        return replace(report, timings_s=watch.reading(), acts=acts)

    def _observe(self, now_s: float, watch: Stopwatch) -> Sight:
        sight = self._watcher.look(now_s, watch)
        with watch("observe.memory"):
            listed = set(sight.jobs)
            self._book.observe(list(sight.jobs.values()), now_s)
            ours = {job_id: p.restart for job_id, p in self._preemptions.by_job.items() if p.phase != "intended"}
            self._arrays.look(sight, self._book, ours_among(ours))
            self._completion.step(self._book, listed, now_s)
            self._book.forget(listed, now_s, accounting=self._completion.ask is not None)
        return sight

    def _weigh(
        self, sight: Sight, snapshot: ClusterSnapshot, plan: Plan | None, thoughts: Thoughts, *, acts: bool
    ) -> Work:
        """From the plan to changes, and from these to the ones that the rails let through."""
        now_s, jobs = sight.now_s, sight.jobs
        settled = self._settle(sight)
        steps, changed = self._preemptions.advance(jobs, plan, now_s, may_begin=acts)
        self._count_preemptions()
        begun = [] if plan is None else self._preemptions.begin(plan, jobs, self._book, now_s)
        ordinary: list[Change] = list(thoughts.changes)
        if plan is not None:
            returns = [] if self._breaker.is_open(now_s) else self._arrays.returns(sight, self.settings.arrays)
            ordinary = returns + ordinary + rewrite_changes(plan, jobs)
            ordinary += self._arrays.orders(snapshot, plan, self.settings.arrays, depth=self.settings.cycle.order_depth)
        planned = len(steps) + len(begun) + len(ordinary)
        if not acts:
            begun, ordinary = [], []
        elif plan is not None:
            self._book.promote(plan.promoted.tolist(), now_s)
        urges = steps + begun
        passed = self._rails.admit([urge.change for urge in urges], ordinary, now_s)
        admitted = {id(change) for change in passed.changes}
        urges = [urge for urge in urges if id(urge.change) in admitted]
        fresh = [urge.preempting for urge in begun if id(urge.change) in admitted]
        self._preemptions.adopt(fresh)
        return Work(sight, plan, urges, fresh, changed, settled, planned, passed, thoughts.rows)

    def _settle(self, sight: Sight) -> list[Outcome]:
        """What became of changes whose outcome nobody saw, as far as this sight tells."""
        judged = [
            (each, resolve(each, sight.jobs.get(job_id), sight.site_factors.get(job_id, 0), sight.now_s))
            for each in self._unsettled
            for job_id in (each.change.job_id,)
        ]
        self._unsettled = [each for each, outcome in judged if outcome is None]
        return [outcome for _, outcome in judged if outcome is not None]

    def _send(self, recorded: Sequence[Recorded], work: Work, watch: Stopwatch) -> None:
        """Send what is recorded, and take in what became of it."""
        if not recorded:
            return
        with self._store.read() as session:
            self._life.check(session)
        urge_of = {id(urge.change): urge for urge in work.urges}
        with watch("act.send"):
            for outcome, (action_id, change) in zip(send(self._client, recorded), recorded, strict=True):
                work.outcomes.append(outcome)
                urge = urge_of.get(id(change))
                if urge is not None:
                    now_s = self._clock.now_s()
                    self._preemptions.note(urge, outcome, work.sight.jobs[change.job_id], now_s)
                if outcome.state == "sent":
                    self._unsettled.append(Unsettled(action_id, change, urge.preempting.restart if urge else None))
                if outcome.state == "failed":
                    self._arrays.refused(change, self._clock.now_s())
                if outcome.error:
                    log(logging.WARNING, "refused", job=change.job_id, kind=change.kind, error=outcome.error)

        self._count_preemptions()

    def _count_preemptions(self) -> None:
        for job_id in self._preemptions.take_succeeded():
            self._book.count_preemption(job_id)

    def _report(self, terms: Terms, snapshot: ClusterSnapshot, work: Work, *, acts: bool) -> CycleReport:
        now_s, states = work.sight.now_s, snapshot.jobs.state
        due_s = [work.passed.retry_s, now_s + self.settings.cycle.interval_s]
        if acts:
            due_s.append(self._arrays.next_s(work.sight, now_s + self.settings.cycle.busy_interval_s))
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

    def _row(self, terms: Terms, report: CycleReport, work: Work, watch: Stopwatch) -> dict[str, Any]:
        """The columns of the cycle's row, made last so that the timings are nearly whole."""
        facts: dict[str, Any] = {"preempting": len(self._preemptions.by_job), "deferred": work.passed.deferred}
        facts |= self._breaker_facts(work.sight.now_s)
        if problems := [*terms.problems, *self.complaints()]:
            facts["problems"] = problems
        if work.plan is not None:
            facts |= {"plan": shown_plan(work.plan), "policy": dict(work.plan.facts)}
        return {
            "pending": report.pending, "running": report.running, "planned": report.planned, "sent": report.sent,
            "timings_s": watch.reading(), "facts": plain(facts),
        }  # fmt: skip

    def _breaker_facts(self, now_s: float) -> dict[str, Any]:
        if not self._breaker.is_open(now_s):
            return {}
        return {"breaker_open_until_s": self._breaker.open_until_s, "breaker_cause": self._breaker.cause}

    def _failed(self, now_s: float, watch: Stopwatch, terms: Terms | None, error: Exception) -> CycleReport:
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
