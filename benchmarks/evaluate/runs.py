"""One policy on one workload of a cell: run once, kept in a file, and read again as long as its inputs are the same."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.evaluate.cells import PREDICTED, TRUTH, Cell
from slurm_soda.daemon.settings.scheduling import PreemptionSettings
from slurm_soda.policies.sharing.job_kinds import InterferenceEstimator
from slurm_soda.policies.sharing.mechanism.mechanism import find_mechanism
from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.simulator.cluster import SimulatedCluster, parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.generators.registry import find_generator, generate_workload
from slurm_soda.simulator.report.atomic_files import write_atomically
from slurm_soda.simulator.report.run_results import FailedRun
from slurm_soda.simulator.runs.agreeing_users import AgreeingUsers
from slurm_soda.simulator.runs.batch import SimulationBatch, end_with_parent
from slurm_soda.simulator.runs.estimates import with_estimates
from slurm_soda.simulator.runs.policy_choice import PolicyChoice
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.site.description import Qos, SiteDescription
from slurm_soda.simulator.whatif.candidates import RESTART_S
from slurm_soda.simulator.workload import Workload
from slurm_soda.sodactl.simulation.inputs.slowdown_predictors import fit_leave_one_out

GPU = "v100"
"""Of all families' clusters, and of the table of pairs."""
USERS_PART = 0.5
"""Our choice: the part of the GPUs that one user may hold, whatever the policy (MaxTRESPerUser)."""
SAVED_EVERY_S = 600.0
"""Jobs that can checkpoint save their state so often; a guest loses what it did since."""
_ROOT = Path(__file__).parents[2]
_CODE = ("simulator", "policies", "learning")


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What one run needs."""

    cell: Cell
    seed: int
    policy: str
    jobs: int
    pairs: Path | None
    """Table of measured pairs; None: :attr:`slowdown`."""
    slowdown: float
    """Where there is no table: any two jobs fit, and each takes so many times as long; policies expect turns."""

    def inputs(self) -> str:
        """All of it as one text; the table by its bytes, not by its place."""
        pairs = self.slowdown if self.pairs is None else _file_hash(self.pairs)
        values = {**asdict(self), "pairs": pairs, "saved_every_s": SAVED_EVERY_S, "restart_s": RESTART_S}
        values["users_part"] = USERS_PART
        del values["slowdown"]
        return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()

    def path(self, folder: Path) -> Path:
        """Its file."""
        return folder / "runs" / self.cell.name / f"{self.policy}-{self.seed}.json"

    def scenario(self) -> Scenario:
        """The workload on its cluster, with costs and what policies know."""
        cell = self.cell
        entry = find_generator(cell.family)
        jobs = generate_workload(cell.family, self.seed, self.jobs, {"load_ratio": cell.load})
        jobs = AgreeingUsers(cell.can_checkpoint, cell.consent).drawn(jobs, self.seed)
        cluster = parse_cluster(entry.cluster, jobs.partitions)
        predicted = cell.knowledge == PREDICTED
        return Scenario(
            workload=with_estimates(jobs, PREDICTED if predicted else "exact"),
            cluster=cluster,
            costs=Costs(restart_s=RESTART_S, checkpoint_every_s=SAVED_EVERY_S),
            max_preemptions=PreemptionSettings().max_per_job,
            predicted=predicted,
            seed=self.seed,
            sharing=self._sharing(),
            site=SiteDescription(other_qos=Qos(max_gpus_per_user=users_limit(jobs, cluster))),
        )

    def _sharing(self) -> SharingRules:
        mechanism = find_mechanism(self.cell.mechanism)
        knows = self.cell.knowledge == TRUTH
        if self.pairs is None:
            told = "truth" if knows else "prior"
            return SharingRules(slowdown=self.slowdown, knowledge=told, mechanism=mechanism)
        if knows:
            return SharingRules(pairs=self.pairs, gpu=GPU, mechanism=mechanism)
        predictor = _fit(self.pairs)
        return SharingRules(pairs=self.pairs, gpu=GPU, knowledge=PREDICTED, predictor=predictor, mechanism=mechanism)


def users_limit(jobs: Workload, cluster: SimulatedCluster) -> int:
    """GPUs that a user's jobs may hold together: :data:`USERS_PART` of them, but enough for the largest job."""
    return max(math.ceil(USERS_PART * cluster.total_gpus), int(jobs.gpus.max()))


@lru_cache(maxsize=1)
def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@lru_cache(maxsize=1)
def _fit(pairs: Path) -> InterferenceEstimator:
    """Once a process."""
    return fit_leave_one_out(pairs, GPU)


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """What a run's file has; columns are in the workload's row order, which is every policy's."""

    inputs: str
    code: str
    jct_s: FloatColumn = field(default_factory=lambda: np.zeros(0))
    wait_s: FloatColumn = field(default_factory=lambda: np.zeros(0))
    user: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    preemptions: int = 0
    revoked: int = 0
    took_s: float = 0.0
    """Processor time of the simulation."""
    failed: str = ""
    """Why it did not come to an end; empty: it did."""

    @property
    def slowdown(self) -> None:
        """Run times are not in the file."""
        return

    def document(self) -> dict[str, Any]:
        """As plain data; times to a tenth of a second."""
        columns = {key: np.round(getattr(self, key), 1).tolist() for key in ("jct_s", "wait_s", "user")}
        return {**asdict(self), **columns}


def read_run(path: Path) -> FinishedRun | None:
    """A run's file; None: there is none, or it cannot be read."""
    try:
        found = json.loads(path.read_bytes())
        columns = {key: np.array(found.pop(key), dtype=kind) for key, kind in _COLUMNS.items()}
        return FinishedRun(**columns, **found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


_COLUMNS = {"jct_s": np.float64, "wait_s": np.float64, "user": np.int64}


def code_version() -> str:
    """A hash of the source that decides what a run finds."""
    found = hashlib.sha256()
    for folder in _CODE:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            found.update(str(path.relative_to(_ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def run_once(spec: RunSpec, folder: Path, code: str) -> FinishedRun:
    """Run it and write its file; a run that fails says why in it.

    Raises:
        SimulatorError: the scenario cannot be made, or the file cannot be written.
    """
    scenario = spec.scenario()
    found = SimulationBatch((scenario,), (PolicyChoice(spec.policy),)).attempt(0)
    if isinstance(found, FailedRun):
        run = FinishedRun(spec.inputs(), code, failed=found.reason)
    elif found.summary.unfinished:
        run = FinishedRun(spec.inputs(), code, failed=f"{found.summary.unfinished} jobs never ended")
    else:
        run = FinishedRun(
            spec.inputs(), code, found.jct_s, found.queue_s, scenario.workload.user,
            found.summary.preemptions, found.summary.revoked, found.summary.cpu_s,
        )  # fmt: skip
    write_atomically(spec.path(folder), json.dumps(run.document()).encode())
    return run


def finished_runs(specs: Sequence[RunSpec], folder: Path, code: str | None) -> dict[RunSpec, FinishedRun]:
    """Runs whose files are there, ended, and of the same inputs; ``code``: also of this version of the source."""
    found: dict[RunSpec, FinishedRun] = {}
    for spec in specs:
        run = read_run(spec.path(folder))
        if run and not run.failed and run.inputs == spec.inputs() and code in (None, run.code):
            found[spec] = run
    return found


Progress = Callable[[int, int, float], None]
"""Told how many runs are done, of how many, and about how many seconds are left."""


def run_missing(
    specs: Sequence[RunSpec], folder: Path, *, workers: int, any_code: bool = False, progress: Progress
) -> dict[RunSpec, FinishedRun]:
    """All runs: those that are there as they are, the others in so many processes, in their order.

    Raises:
        SimulatorError: a scenario cannot be made, or a file cannot be written.
    """
    code = code_version()
    found = finished_runs(specs, folder, None if any_code else code)
    missing = [spec for spec in specs if spec not in found]
    progress(len(found), len(specs), float("nan"))
    clock = _TimeLeft(missing, workers)
    for spec, run in _in_processes(missing, folder, code, workers):
        found[spec] = run
        progress(len(found), len(specs), clock.left_s(spec))
    return found


def _in_processes(
    specs: Sequence[RunSpec], folder: Path, code: str, workers: int
) -> Iterator[tuple[RunSpec, FinishedRun]]:
    if not specs:
        return
    with ProcessPoolExecutor(min(workers, len(specs)), get_context("spawn"), end_with_parent) as executor:
        waiting = {executor.submit(run_once, spec, folder, code): spec for spec in specs}
        try:
            for ended in as_completed(waiting):
                yield waiting[ended], ended.result()
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise


class _TimeLeft:
    """Time that runs will still take, by what those before took; policies differ by a hundred times."""

    def __init__(self, missing: Sequence[RunSpec], workers: int) -> None:
        self._left = list(missing)
        self._workers, self._last_s = workers, time.monotonic()
        self._took: dict[str, list[float]] = {}

    def left_s(self, ended: RunSpec) -> float:
        """Seconds, once this one has ended; with several processes a run took about what passed times their number."""
        now_s = time.monotonic()
        self._took.setdefault(ended.policy, []).append((now_s - self._last_s) * self._workers)
        self._last_s = now_s
        self._left.remove(ended)
        mean = {policy: sum(took) / len(took) for policy, took in self._took.items()}
        usual = sum(mean.values()) / len(mean)
        return sum(mean.get(spec.policy, usual) for spec in self._left) / self._workers
