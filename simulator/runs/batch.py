"""Many simulations at once, over processes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path

from slurm_soda.policies.errors import PolicyError
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.report.atomic_files import write_atomically
from slurm_soda.simulator.report.per_job import per_job_csv
from slurm_soda.simulator.report.run_results import FailedRun, SimulatedRun, reduce_outcome
from slurm_soda.simulator.runs.policy_choice import PolicyChoice
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.wire.errors import SodaError

RunProgressCallback = Callable[[int, int], None]
"""Called after each run with the number of finished ones, and of all."""

MIN_JOBS_FOR_PROCESSES = 1_000
"""Jobs to simulate, over all runs, below which starting processes takes longer than it saves."""


@dataclass(frozen=True, slots=True)
class SimulationBatch:
    """Every policy on every scenario."""

    scenarios: tuple[Scenario, ...]
    choices: tuple[PolicyChoice, ...]
    csv_folder: Path | None = None
    """Where each run leaves its per-job CSV."""
    charts: bool = False
    """Whether Gantt charts are wanted, of the first scenario; where a run is too large, there is none."""

    def __len__(self) -> int:
        return len(self.scenarios) * len(self.choices)

    def csv_path(self, number: int) -> Path | None:
        """File of a run: ``jobs-POLICY.csv``, and ``-seed-N`` before the end where there are several seeds."""
        if self.csv_folder is None:
            return None
        scenario, choice = self.member(number)
        seed = f"-seed-{scenario.seed}" if len(self.scenarios) > 1 else ""
        return self.csv_folder / f"jobs-{choice.label}{seed}.csv"

    def member(self, number: int) -> tuple[Scenario, PolicyChoice]:
        """Scenario and policy of a run: all seeds of the first policy come first."""
        choice, scenario = divmod(number, len(self.scenarios))
        return self.scenarios[scenario], self.choices[choice]

    def run(self, number: int, progress: RunProgressCallback | None = None) -> SimulatedRun:
        """One of the runs.

        Raises:
            PolicyError: a parameter is not allowed.
            SimulatorError: it cannot be run, or its file cannot be written.
        """
        scenario, choice = self.member(number)
        outcome = scenario.run(scenario.policy(choice.name, choice.parameters), progress, choice.nodes, choice.serves)
        path = self.csv_path(number)
        if path is not None:
            write_atomically(path, per_job_csv(outcome).encode("utf-8", "surrogateescape"))
        first = number % len(self.scenarios) == 0
        return reduce_outcome(outcome, choice.label, scenario.seed, charts=self.charts and first)

    def check(self) -> None:
        """Whether what was asked for makes sense, as far as it shows before anything runs.

        Raises:
            PolicyError: a parameter is not allowed.
            SimulatorError: a policy cannot run in such a scenario.
        """
        for scenario in self.scenarios[:1]:
            for choice in self.choices:
                scenario.check(scenario.policy(choice.name, choice.parameters), choice.nodes)

    def attempt(self, number: int) -> SimulatedRun | FailedRun:
        """One of the runs, or why it failed: it may not take the others along."""
        try:
            return self.run(number)
        except (SodaError, PolicyError) as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - a fault in one policy leaves what the others found
            reason = f"a fault of slurm-soda, {type(error).__name__}: {error}; sodactl simulate shows where"
        scenario, choice = self.member(number)
        return FailedRun(choice.label, scenario.seed, " ".join(reason.split()))


def run_batch(
    batch: SimulationBatch, *, workers: int | None = None, progress: RunProgressCallback | None = None
) -> list[SimulatedRun | FailedRun]:
    """All runs, in the order of their numbers, whoever finished first; a run that fails leaves the others.

    Args:
        batch: what to run.
        workers: processes; 1: this one alone. By default one a CPU, or this one alone for little work.
        progress: told how far the batch is.

    Raises:
        PolicyError: a parameter is not allowed.
        SimulatorError: a policy cannot run in such a scenario, which is said before anything runs; or a process died.
    """
    batch.check()
    count = min(workers or _default_workers(batch), len(batch))
    if count <= 1:
        return [_told(batch.attempt(number), number + 1, len(batch), progress) for number in range(len(batch))]
    return _in_processes(batch, count, progress)


def _told(
    run: SimulatedRun | FailedRun, done: int, total: int, progress: RunProgressCallback | None
) -> SimulatedRun | FailedRun:
    if progress is not None:
        progress(done, total)
    return run


def _default_workers(batch: SimulationBatch) -> int:
    jobs = len(batch.choices) * sum(len(scenario.workload) for scenario in batch.scenarios)
    return 1 if jobs < MIN_JOBS_FOR_PROCESSES else len(os.sched_getaffinity(0))


def _in_processes(
    batch: SimulationBatch, workers: int, progress: RunProgressCallback | None
) -> list[SimulatedRun | FailedRun]:
    executor = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (batch,))
    try:
        waiting = _submit(executor, len(batch))
        for done, finished in enumerate(as_completed(waiting), 1):
            _result(finished)
            if progress is not None:
                progress(done, len(batch))
    except BaseException:
        # Its semaphores are there while its own thread runs: a command that ends at once would leave them behind.
        ending = threading.Thread(target=executor.shutdown, kwargs={"cancel_futures": True}, daemon=True)
        ending.start()
        for child in active_children():
            child.terminate()
        ending.join(_ENDING_S)
        raise
    executor.shutdown()
    return [future.result() for future in waiting]


def _submit(executor: ProcessPoolExecutor, runs: int) -> list[Future[SimulatedRun | FailedRun]]:
    """Start the workers, which inherit that Ctrl-C is held back: it reaches every process, and one speaks for all."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return [executor.submit(_work, number) for number in range(runs)]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _result(finished: Future[SimulatedRun | FailedRun]) -> SimulatedRun | FailedRun:
    try:
        return finished.result()
    except BrokenProcessPool:
        raise SimulatorError(
            "a process that simulated has died, perhaps for want of memory; try fewer with --workers"
        ) from None


_ENDING_S = 5.0
"""So long is waited for processes that were told to end; it takes milliseconds."""

_batch: SimulationBatch | None = None
"""In a worker: what it was started for."""


def _begin(batch: SimulationBatch) -> None:
    global _batch  # noqa: PLW0603 - a worker lives for one batch
    _batch = batch
    end_with_parent()


def end_with_parent() -> None:
    """In a worker: end when the process that started it does, however it ends."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(number: int) -> SimulatedRun | FailedRun:
    assert _batch is not None
    return _batch.attempt(number)
