"""Gives running GPU jobs just enough of their cores (SODA, Section V-B): one trial each, a turn after every sample."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm_soda.agent.cpusets.core_limits import JobCoreLimits
from slurm_soda.agent.reporting.core_messages import CoreMessages
from slurm_soda.agent.reporting.run_records import NodeRun
from slurm_soda.agent.resource_controller import NodeSample
from slurm_soda.agent.settings.core_tuning import CoreTuningSettings
from slurm_soda.agent.state_file import StateFileError
from slurm_soda.agent.tuning.search_progress import CoreSearchProgress, read_search_progress, write_search_progress
from slurm_soda.agent.tuning.trial import HOLDER, CoreTuningTrial
from slurm_soda.agent.tuning.trial_context import TrialContext
from slurm_soda.policies.cpu_fit.core_search import SearchRules
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.wire.records import JobOpened


class CoreTuningController:
    """The trials of one node. Its turn comes after that of the cpuset controller, which knows the runs then."""

    def __init__(
        self, settings: CoreTuningSettings, path: Path, sets: JobCoreLimits, core_messages: CoreMessages
    ) -> None:
        """``path``: the record of searches, in a directory of root's."""
        self._path = path
        self._core_messages = core_messages
        self._faults: list[str] = []
        self._trials: dict[int, CoreTuningTrial] = {}
        self._left: dict[int, CoreSearchProgress] = {}
        """Searches of an agent before this one."""
        rules = SearchRules(most_steps=settings.most_steps, free_unneeded=settings.free_unneeded)
        self._unix_s = 0.0
        self._context = TrialContext(
            settings, rules, sets, core_messages, self._remember, self._faults.append, lambda: self._unix_s
        )

    @property
    def interval_s(self) -> float:
        """As its trials want."""
        return min((trial.next_sample_within_s for trial in self._trials.values()), default=math.inf)

    def recover(self, now_s: float) -> Sequence[str]:
        """Take up what an agent before this one was about."""
        try:
            self._left = read_search_progress(self._path)
        except StateFileError as error:
            return [str(error)]
        return []

    def turn(self, sample: NodeSample) -> Sequence[str]:
        """Give each GPU job its sample, and forget those that ended."""
        self._unix_s = sample.unix_s
        runs = {run.key.job_id: run for run in sample.runs if run.opened is not None and run.opened.gpus}
        self._forget(runs)
        holders = Counter(gpu for run in runs.values() if run.opened for gpu in run.opened.gpus)
        for run in runs.values():
            if run.opened is None or run.closed is not None:
                continue
            if run.left_out:
                self._give_back(run.key.job_id)
                continue
            trial = self._trial(run, run.opened, sample.now_s)
            if any(holders[gpu] > 1 for gpu in run.opened.gpus):
                trial.leave(sample.now_s)
                continue
            order = self._core_messages.orders.get((run.opened.job_id, run.opened.restart))
            trial.take(sample.now_s, _utilisation(run.opened, sample), order)
        self._left.clear()  # of runs that ended while no agent was here
        faults = list(self._faults)
        self._faults.clear()
        return faults

    def close(self) -> Sequence[str]:
        """Searches stay on record; the cpuset controller gives the cores back."""
        return []

    def counts(self) -> Mapping[str, int]:
        """Nothing: the cpuset controller counts the cores."""
        return {}

    def _trial(self, run: NodeRun, opened: JobOpened, now_s: float) -> CoreTuningTrial:
        trial = self._trials.get(run.key.job_id)
        if trial is None:
            left = self._left.pop(run.key.job_id, None)
            progress = left if left is not None and left.start_s == run.key.start_s else None
            trial = self._trials[run.key.job_id] = CoreTuningTrial(self._context, run, opened, progress, now_s)
        return trial

    def _give_back(self, job_id: int) -> None:
        """End the search for a job that is not in scope any more; it has all its cores again."""
        trial, left = self._trials.pop(job_id, None), self._left.pop(job_id, None)
        if trial is None and left is None:
            return
        try:
            self._context.sets.restore(job_id, HOLDER)
            self._write()
        except (SodaError, StateFileError) as error:
            self._faults.append(str(error))

    def _forget(self, runs: dict[int, NodeRun]) -> None:
        gone = [job_id for job_id, trial in self._trials.items() if not _same(runs.get(job_id), trial)]
        for job_id in gone:
            del self._trials[job_id]
        if gone:
            try:
                self._write()
            except StateFileError as error:
                self._faults.append(str(error))

    def _remember(self, progress: CoreSearchProgress) -> None:
        self._write(progress)

    def _write(self, fresh: CoreSearchProgress | None = None) -> None:
        searches = dict(self._left)
        searches |= {job_id: trial.progress for job_id, trial in self._trials.items() if trial.progress is not None}
        if fresh is not None:
            searches[fresh.job_id] = fresh
        write_search_progress(self._path, searches.values())


def _same(run: NodeRun | None, trial: CoreTuningTrial) -> bool:
    return run is not None and trial.is_for(run)


def _utilisation(opened: JobOpened, sample: NodeSample) -> float | None:
    """Mean of all GPUs of a run on this node; ``None`` unless all could be read."""
    own = [sample.gpus[gpu].util_ratio for gpu in opened.gpus if gpu in sample.gpus]
    return math.fsum(own) / len(own) if len(own) == len(opened.gpus) else None
