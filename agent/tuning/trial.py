"""One run's cores from the first sample to its end: warm up, measure, set, measure again, settle, watch."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from slurm_soda.agent.cpusets.errors import JobGoneError
from slurm_soda.agent.reporting.run_records import NodeRun
from slurm_soda.agent.tuning.search_progress import CoreSearchProgress
from slurm_soda.agent.tuning.trial_context import TrialContext
from slurm_soda.agent.tuning.tuning_reports import report_fit, report_measurement
from slurm_soda.agent.tuning.utilisation_window import UtilisationWindow
from slurm_soda.policies.cpu_fit.core_search import SettleCores
from slurm_soda.policies.cpu_fit.measurement import IDLE_RATIO, Measurement
from slurm_soda.policies.cpu_fit.phase_watch import PhaseWatchRules, entered_new_phase
from slurm_soda.policies.errors import PolicyError
from slurm_soda.wire.core_tuning import CoreOrder
from slurm_soda.wire.errors import SodaError
from slurm_soda.wire.records import JobOpened

HOLDER = "tuning"
LEAST_SAMPLES = 3
MOST_REPEATS = 2
"""A step in which the job paused is measured again, so often in one search."""
WATCH_PARTS = 10
"""A step's length is so many samples of a watch: only what lasts for a step is a phase."""
MAX_BREAK_S = 3600.0
CUT_SHORT = "cut_short"
KEPT = "kept"


class TrialPhase(Enum):
    """What a trial waits for."""

    WARMING = "utilisation"
    SETTLING = "the job to feel its new cores"
    MEASURING = "samples"
    WAITING = "an order from the controller"
    WATCHING = "another phase of the job"
    LEFT = "nothing"


class CoreTuningTrial:
    """The tuning of one run on this node; one on several nodes, or an unknown number, goes by the controller's orders."""

    def __init__(
        self, context: TrialContext, run: NodeRun, opened: JobOpened, progress: CoreSearchProgress | None, now_s: float
    ) -> None:
        """``progress``: of an agent before this one."""
        self._context = context
        self._run = run
        self._opened = opened
        self._busy_since_s: float | None = None
        self._window = UtilisationWindow(now_s)
        self._until_s = now_s
        self._repeats = 0
        self._recent: deque[float] = deque(maxlen=WATCH_PARTS)
        self._fruitless = 0
        self.phase = TrialPhase.WARMING
        self.progress = progress
        if progress is not None:
            self._attempt(lambda: self._resume(progress, now_s))

    @property
    def next_sample_within_s(self) -> float:
        """Seconds to the next sample that it wants, at most."""
        measuring = self.phase in (TrialPhase.SETTLING, TrialPhase.MEASURING)
        unstable = self.phase is TrialPhase.WATCHING and self.progress is not None and self.progress.stable is None
        return self._context.settings.sample_s if measuring or unstable else math.inf

    def is_for(self, run: NodeRun) -> bool:
        """Whether this is the trial of that run, not of an earlier one of the same job."""
        return run.key == self._run.key

    def take(self, now_s: float, ratio: float | None, order: CoreOrder | None) -> None:
        """One sample of the run's GPUs, if they could be read, and the latest order for it."""
        if order is not None and self.progress is not None and self.phase not in (TrialPhase.LEFT, TrialPhase.WARMING):
            known = self.progress
            self._attempt(lambda: self._obey(order, known, now_s))
        self._attempt(lambda: self._take(now_s, ratio))

    def leave(self, now_s: float) -> None:
        """Something else makes its samples worthless (another job on its GPUs): begin anew when that is over."""
        self._busy_since_s = None
        if self.phase in (TrialPhase.SETTLING, TrialPhase.MEASURING, TrialPhase.WAITING):
            self._attempt(lambda: self._abandon(now_s))

    def _take(self, now_s: float, ratio: float | None) -> None:
        settings = self._context.settings
        if self.phase is TrialPhase.SETTLING and now_s >= self._until_s:
            self.phase = TrialPhase.MEASURING
            self._window = UtilisationWindow(now_s)
        elif self.phase is TrialPhase.WAITING and now_s >= self._until_s and self.progress is not None:
            self._settle(self.progress, self.progress.start, CUT_SHORT, now_s)
        elif ratio is None:
            return
        elif self.phase is TrialPhase.WARMING:
            self._warm(now_s, ratio)
        elif self.phase is TrialPhase.MEASURING:
            self._window.samples.append(ratio)
            if now_s >= self._window.since_s + settings.step_s and len(self._window.samples) >= LEAST_SAMPLES:
                self._finish_step(now_s)
        elif self.phase is TrialPhase.WATCHING:
            self._window.samples.append(ratio)
            self._watch(now_s)

    def _warm(self, now_s: float, ratio: float) -> None:
        if ratio < IDLE_RATIO:
            self._busy_since_s = None
            return
        self._busy_since_s = now_s if self._busy_since_s is None else self._busy_since_s
        if now_s < self._busy_since_s + self._context.settings.warm_up_s:
            return
        try:
            core_range = self._context.sets.core_range(self._run.key.job_id)
        except JobGoneError:  # its processes are not seen yet; a job that ended gets no more samples
            self._busy_since_s = None
            return
        known = self.progress
        number, start = (known.number, min(known.start, core_range.limit)) if known else (0, core_range.start)
        self._begin(CoreSearchProgress(*self._name(), number, start, core_range.limit, start), now_s)

    def _begin(self, progress: CoreSearchProgress, now_s: float) -> None:
        """A search begins, with the cores that the run has."""
        self._repeats = 0
        self._remember(progress)
        self._window = UtilisationWindow(now_s)
        self.phase = TrialPhase.MEASURING

    def _finish_step(self, now_s: float) -> None:
        window, progress = self._window, self.progress
        if progress is None:
            return
        if window.idle:
            self._abandon(now_s)
            return
        if window.broken and self._repeats < MOST_REPEATS:
            self._repeats += 1
            self._window = UtilisationWindow(now_s)
            return
        progress = progress.after(window.measurement(progress.cores), self._context.unix_s())
        self._remember(progress)
        self._tell(progress)
        self._decide(progress, now_s)

    def _decide(self, progress: CoreSearchProgress, now_s: float) -> None:
        if self._opened.nodes != 1:
            self._until_s = now_s + self._context.settings.order_timeout_s
            self.phase = TrialPhase.WAITING
            return
        advice = progress.search(self._context.rules).advice()
        if isinstance(advice, SettleCores):
            self._settle(progress, advice.cores, advice.reason.name.lower(), now_s)
        else:
            self._set(replace(progress, cores=advice.cores, step=progress.step + 1), now_s)

    def _set(self, progress: CoreSearchProgress, now_s: float) -> None:
        """Change the cores, and measure with them."""
        self._remember(progress)
        cores = self._context.sets.limit(progress.job_id, progress.cores, HOLDER)
        if cores != progress.cores:  # somebody else wants fewer
            self._remember(replace(progress, cores=cores))
        self._until_s = now_s + self._context.settings.settle_s
        self.phase = TrialPhase.SETTLING

    def _settle(self, progress: CoreSearchProgress, cores: int, reason: str, now_s: float) -> None:
        before = self.progress.cores if self.progress else cores
        at_s = round(self._context.unix_s(), 3)
        progress = replace(progress, cores=cores, settled=reason, at_s=at_s, stable=None)
        self._remember(progress)
        self._hold(progress)
        self._fruitless = self._fruitless + 1 if progress.number and cores == progress.start else 0
        quiet_s = WATCH_PARTS * self._context.settings.step_s * 2.0 ** min(self._fruitless - 1, 20)
        self._until_s = now_s + (min(quiet_s, MAX_BREAK_S) if self._fruitless else 0.0)
        settle_s = self._context.settings.settle_s if before != cores else 0.0
        self._window = UtilisationWindow(now_s + settle_s)
        self._recent.clear()
        self._repeats = 0
        self._context.core_messages.fits.append(report_fit(self._opened, progress))
        self.phase = TrialPhase.WATCHING

    def _hold(self, progress: CoreSearchProgress) -> None:
        """Give a settled run its cores; where those are what it came with, nothing is held."""
        sets, job_id = self._context.sets, progress.job_id
        if progress.cores == sets.core_range(job_id).start:
            sets.restore(job_id, HOLDER)
        else:
            sets.limit(job_id, progress.cores, HOLDER)

    def _watch(self, now_s: float) -> None:
        progress, window, settings = self.progress, self._window, self._context.settings
        if progress is None or now_s < window.since_s:
            window.samples.clear()
            return
        if progress.stable is None:
            if now_s >= window.since_s + settings.step_s and len(window.samples) >= LEAST_SAMPLES:
                self._window = UtilisationWindow(now_s)
                self._repeats += 1
                if not window.broken or self._repeats > MOST_REPEATS:
                    self._found_stable(progress, window.measurement(progress.cores), now_s)
            return
        if now_s < window.since_s + settings.step_s / WATCH_PARTS:
            return
        self._window = UtilisationWindow(now_s)
        self._recent.append(math.fsum(window.samples) / len(window.samples))
        if now_s >= self._until_s and entered_new_phase(
            progress.stable, tuple(self._recent), PhaseWatchRules(WATCH_PARTS)
        ):
            number = progress.number + 1
            self._begin(
                CoreSearchProgress(*self._name(), number, progress.cores, progress.limit, progress.cores), now_s
            )

    def _found_stable(self, progress: CoreSearchProgress, stable: Measurement, now_s: float) -> None:
        """The level of a settled run; one that does worse than it came gets its cores back."""
        first = progress.measured[0] if progress.measured else stable
        least = (
            first.utilisation_ratio * (1 - self._context.rules.tolerance_ratio) - 2 * math.sqrt(2) * first.noise_ratio
        )
        if progress.cores != progress.start and stable.utilisation_ratio < least and self._opened.nodes == 1:
            self._settle(progress, progress.start, KEPT, now_s)
        else:
            self._remember(replace(progress, stable=stable))

    def _obey(self, order: CoreOrder, progress: CoreSearchProgress, now_s: float) -> None:
        """Bring a run on several nodes to the controller's latest order; one that is carried out changes nothing."""
        if order.search < progress.number or self._opened.nodes == 1:
            return
        if order.search > progress.number:
            fresh = CoreSearchProgress(*self._name(), order.search, progress.cores, progress.limit, progress.cores, -1)
            self._remember(fresh)
            progress = fresh
        cores = min(order.cores, progress.limit)
        if order.settled:
            if not progress.settled or progress.cores != cores:
                self._settle(progress, cores, order.reason or KEPT, now_s)
        elif order.step > progress.step and self.phase not in (TrialPhase.SETTLING, TrialPhase.MEASURING):
            self._set(replace(progress, cores=cores, step=order.step, settled="", stable=None), now_s)

    def _resume(self, progress: CoreSearchProgress, now_s: float) -> None:
        """Go on where an agent before this one was; it was given all its cores in between."""
        if progress.settled:
            self._hold(progress)
            self._context.core_messages.fits.append(report_fit(self._opened, progress))  # it may not have been reported
            self.phase = TrialPhase.WATCHING
        elif len(progress.measured) > progress.step:
            self._tell(progress)
            self._hold(progress)
            self._decide(progress, now_s)
        else:
            self._set(progress, now_s)

    def _abandon(self, now_s: float) -> None:
        """Back to the cores at the start, until the GPUs work again."""
        self._busy_since_s = None
        self.phase = TrialPhase.WARMING
        if self.progress is not None:
            self._remember(replace(self.progress, cores=self.progress.start, step=0, measured=()))
            self._hold(replace(self.progress, cores=self.progress.start))

    def _attempt(self, do: Callable[[], None]) -> None:
        """A job that is not seen begins anew when it is; one whose cores cannot be set is left alone."""
        try:
            try:
                do()
            except JobGoneError:
                self._lose_sight()
        except (SodaError, PolicyError) as error:
            self._give_up(str(error))

    def _lose_sight(self) -> None:
        """It ended, or its processes were missed for a moment: nothing of it stays changed, and no measurement counts."""
        self._busy_since_s = None
        self.phase = TrialPhase.WARMING
        self._context.sets.restore(self._run.key.job_id, HOLDER)
        if self.progress is not None:
            known = self.progress
            # A search that has ended may have been reported: what comes is another one.
            number = known.number + 1 if known.settled else known.number
            self._remember(CoreSearchProgress(*self._name(), number, known.start, known.limit, known.start))

    def _give_up(self, why: str) -> None:
        """Its cores cannot be set: leave it alone for good, with all that Slurm gave it."""
        self.phase = TrialPhase.LEFT
        self._context.fault(f"cores of job {self._run.key.job_id} are not tuned: {why}")
        try:
            self._context.sets.restore(self._run.key.job_id, HOLDER)
        except SodaError as error:
            self._context.fault(f"job {self._run.key.job_id}: {error}")

    def _remember(self, progress: CoreSearchProgress) -> None:
        self._context.remember(progress)
        self.progress = progress

    def _name(self) -> tuple[int, int]:
        return self._run.key.job_id, self._run.key.start_s

    def _tell(self, progress: CoreSearchProgress) -> None:
        self._context.core_messages.measurements.append(report_measurement(self._opened, progress))
