"""One cycle: observe, decide, act, record. It reads like its diagram.

Everything that may reach Slurm is committed first, so a crash at any instant leaves a store that names it; a restarted
daemon, or this one after an error, reads the store again and goes on from what Slurm then shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from sqlalchemy.orm import Session

from slurm_soda.daemon.cycle.change_limits import CircuitBreaker
from slurm_soda.daemon.cycle.cycle_outcome import CycleOutcome
from slurm_soda.daemon.cycle.daemon_state import DaemonContext, DaemonState
from slurm_soda.daemon.cycle.effective_settings import EffectiveSettings, EffectiveSettingsReader, ModeChangedError
from slurm_soda.daemon.cycle.epoch import SupersededError
from slurm_soda.daemon.cycle.observation import SnapshotReader
from slurm_soda.daemon.cycle.plan_execution import PlanExecutor
from slurm_soda.daemon.cycle.recorder import CycleRecorder, CycleReport, CycleResult, cycle_report
from slurm_soda.daemon.cycle.snapshot_requests import SnapshotRequests
from slurm_soda.daemon.cycle.stale_lifts import StaleLifts
from slurm_soda.daemon.cycle.stopwatch import Stopwatch
from slurm_soda.daemon.cycle.store_cluster import claim_for_cluster
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.policies.pipeline.stages import pipeline_of
from slurm_soda.slurm_ext.errors import SlurmError


def _any_mode(_session: Session) -> None:
    """What a cycle sends that began nothing, but ends what was begun, holds in each mode."""


class CycleRunner:
    """Runs cycles over one store and one Slurm."""

    def __init__(self, settings: Settings, context: DaemonContext) -> None:
        self.settings = settings
        self._context, self._clock = context, context.clock
        self._settings_reader = EffectiveSettingsReader(context.store, context.lease.daemon_epoch)
        self._observer = SnapshotReader(context)
        self.actor, self._breaker = PlanExecutor(context, settings), CircuitBreaker(settings.change_limits)
        self._recorder = CycleRecorder(context, self._breaker)
        self._stale_lifts, self._mode = StaleLifts(context, self.actor), settings.mode
        self._requests = SnapshotRequests(context.store, Path(settings.state_dir))
        self.problems: Callable[[], Sequence[str]] = tuple
        """What is wrong elsewhere in this daemon, for people who look at its cycles."""
        self.on_cycle: Callable[[CycleOutcome], None] = lambda _outcome: None
        """Told of each cycle once it is over; must not fail."""
        self.last_error = ""
        """Why the last cycle did nothing; empty if it went well."""
        self._stale = self._of_cluster = False
        self._state = self._recall(None)

    def reload(self, settings: Settings) -> None:
        """Use other settings from the next cycle on; store, lock and API stay as they were at start."""
        self.settings = settings
        self._state.use(settings)
        self.actor.use(settings)
        self._breaker.settings = settings.change_limits
        self._context.lease.use(settings.cycle.lease_s)

    def close(self) -> None:
        """End this daemon epoch in good order."""
        self._context.close()

    def _recall(self, before: DaemonState | None) -> DaemonState:
        """Read from the store what a daemon must know to go on."""
        self._stale = False
        state = DaemonState.recalled(self.settings, self._context, before)
        self.actor.recall(state.job_cache)
        return state

    def run(self) -> CycleReport:
        """One cycle. Whatever goes wrong is written down, and nothing more is done in it.

        Raises:
            SupersededError: a newer daemon has taken over.
        """
        watch, effective = Stopwatch(self._clock), None
        self.actor.begin_cycle()
        try:
            self._context.store.check_in_place()
            self._context.store.checkpoint_when_due()
            self._context.lease.renew()
            self._check_cluster(watch.began.now_s)
            if self._stale:
                self._state = self._recall(self._state)
            effective = self._settings_reader.read(self.settings, watch.began.steady_s)
            if effective.mode == "enforce" and (reason := self._context.reason_to_observe()):
                effective = replace(effective, mode="observe", problems=(*effective.problems, reason))
            self._mode = effective.mode
            return self._run(watch, effective)
        except SupersededError:
            raise
        except ModeChangedError:
            self._stale = True
            return self.run()
        except SlurmError as error:
            return self._failed(watch, effective, error)
        except Exception as error:  # noqa: BLE001 - a daemon outlives its mistakes: it says so, and begins anew from the store
            report = self._failed(watch, effective, error)
            self._stale = True
            return report

    def _check_cluster(self, now_s: float) -> None:
        """Once Slurm tells its name: the store is this cluster's.

        Raises:
            OtherClusterError: it is another one's.
        """
        if not self._of_cluster and (name := self._context.cluster_name()):
            claim_for_cluster(self._context.store, name, now_s)
            self._of_cluster = True

    def _run(self, watch: Stopwatch, effective: EffectiveSettings) -> CycleReport:
        state, observer, actor, at = self._state, self._observer, self.actor, watch.began
        acts = effective.mode == "enforce" and not self._breaker.is_open(at.steady_s)
        # A Slurm that fails is not asked for details which nothing would come of.
        asks = effective.mode != "observe" or effective.snapshot_request is not None
        asks = asks and not self._breaker.is_open(at.steady_s)
        with watch("observe"):
            slurm_state = observer.read(state, at, watch, self.settings, asks=asks)
        if acts and slurm_state.no_order:
            acts, problems = False, (*effective.problems, slurm_state.no_order)
            effective = replace(effective, mode="advise", problems=problems)
        with watch("decide"):
            snapshot = observer.snapshot(state, slurm_state, self.settings, watch, asks=asks, acts=acts)
            plan = None if effective.mode == "observe" else pipeline_of(effective.policy).decide(snapshot)
            cpu_proposals = [] if plan is None else state.cpu_fits.conclude(plan, slurm_state, state.job_cache)
        with watch("act"):
            result = actor.prepare(state, slurm_state, snapshot, plan, cpu_proposals, acts=acts)
            still_wanted = self._settings_reader.check_enforces if acts else _any_mode
            recorded = self._recorder.intend(result, state, effective, at, still_wanted)
            actor.send(state, recorded, result, watch, still_wanted)
        with watch("record"):
            report = cycle_report(result, state, effective, self.settings.cycle, acts=acts)
            elsewhere = [*filter(None, (observer.sharing.problem,)), *self.problems()]
            self._recorder.close(result, state, effective, report, watch, problems_elsewhere=elsewhere)
            state.preemptions.drop_over()
            state.shares.drop_over()
            self._requests.serve(effective.snapshot_request, snapshot, effective.policy, plan, mode=effective.mode)
            with watch("record.learn"):
                observer.learn(state, slurm_state, snapshot, plan)
            with watch("record.prune"):
                self._recorder.pruner.step(self.settings.store.keep_days)
        self._recorder.note_success(watch, at)
        self._stale_lifts.note_complete()
        self.last_error = ""
        report = replace(report, timings_s=watch.reading(), acts=acts and not self._breaker.is_open(at.steady_s))
        self._tell(watch, report, effective.policy.name, result)
        return report

    def _failed(self, watch: Stopwatch, effective: EffectiveSettings | None, error: Exception) -> CycleReport:
        """A cycle without action: say why, everywhere where somebody may look."""
        at, mode = watch.began, effective.mode if effective else self.settings.mode
        policy = effective.policy.name if effective else self.settings.policy.name
        # One that only observes leaves SiteFactors as they are.
        lifts = self._stale_lifts.take_back() if self._mode == "enforce" else ""
        self.last_error = self._recorder.fail(error, watch, at, mode=mode, policy=policy, consequence=lifts)
        next_s = at.now_s + self.settings.cycle.retry_s
        report = CycleReport(mode, error=self.last_error, began_s=at.now_s, next_s=next_s)
        self._tell(watch, report, policy)
        return report

    def _tell(self, watch: Stopwatch, report: CycleReport, policy: str, result: CycleResult | None = None) -> None:
        score = self._observer.start_forecaster.score
        self.on_cycle(
            CycleOutcome(watch.began, report, policy, self.settings, self._breaker, self._state, result, score)
        )
