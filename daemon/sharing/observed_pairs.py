"""How much running jobs slow each other down, by the progress that they tell: columns of a snapshot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.progress import CoRunners, RunId, progress_of_runs, shared_since_of
from slurm_soda.daemon.store.tables.progress import JobPaceRow, JobProgressRow
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.sharing.pair_knowledge.kind_profiles import KindProfiles
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn
from slurm_soda.slurm_ext.client import SlurmJob

ALONE_FOR_S = 10.0
"""A job must have been alone for so long, while it told its progress, before its own time alone is believed."""
ALONE_ITERATIONS = 3.0
"""And have done so many iterations then: a reading may come up to an iteration late."""


LATE_S = 10.0
"""Iterations that were done so long ago are surely told: files are written, read and reported every few seconds."""


class ObservedRun(NamedTuple):
    """A running job that tells its progress."""

    job: SlurmJob
    progress: JobProgressRow
    paces: Sequence[JobPaceRow]
    """Of all its runs."""
    co_runners: CoRunners | None
    """``None``: nobody knows whom it has beside it."""
    began_s: float
    """When all of them began to share; :func:`~slurm_soda.daemon.store.progress.shared_since_of`."""
    kind: JobKind | None


def own_alone_s(paces: Sequence[JobPaceRow]) -> float | None:
    """Time of an iteration of a job alone, over all its runs; ``None`` where it was alone for too short."""
    alone = [pace for pace in paces if not pace.co_runners]
    clock_s, iterations = math.fsum(one.clock_s for one in alone), math.fsum(one.iterations for one in alone)
    return clock_s / iterations if clock_s >= ALONE_FOR_S and iterations >= ALONE_ITERATIONS else None


def alone_iteration_s(run: ObservedRun, known: KindProfiles) -> Estimate | None:
    """Time of an iteration alone: the job's own, else what its owner, else everybody is told of its kind."""
    own = own_alone_s(run.paces)
    if own is not None:
        return Estimate(own, 0.0, Source.MEASURED)
    return None if run.kind is None else known.of_owner(run.job.user).iteration_s(run.kind)


def observe_pairs(
    rows: Sequence[ObservedRun | None], alone_s: Sequence[float | None]
) -> tuple[FloatColumn, FloatColumn]:
    """Slowdown, and for how long it was observed, of each job beside the jobs that it has now.

    Both as in :class:`~slurm_soda.policies.sharing.snapshot.SharingJobs`. A job that does no iteration at all is slowed at
    least as much as if one ended now.

    Args:
        rows: the jobs of the table, ``None`` for those that tell nothing.
        alone_s: their iterations alone; ``None`` where nobody knows.
    """
    pairs = [_observe(run, alone) for run, alone in zip(rows, alone_s, strict=True)]
    slowdown, together_s = ([pair[at] for pair in pairs] for at in (0, 1))
    return np.array(slowdown, dtype=np.float64), np.array(together_s, dtype=np.float64)


def _observe(run: ObservedRun | None, alone_s: float | None) -> tuple[float, float]:
    if run is None or run.co_runners is None or not run.co_runners.others:
        return math.nan, math.nan
    pace = next((one for one in run.paces if _is_of(one, run)), None)
    clock_s, iterations = (0.0, 0.0) if pace is None else (pace.clock_s, pace.iterations)
    waited_s = _waited_s(run)
    if alone_s is None or alone_s <= 0:
        return math.nan, clock_s
    mean_s, at_least_s = clock_s / max(iterations, 1.0), (clock_s + waited_s) / (iterations + 1.0)
    if waited_s and at_least_s > max(mean_s, alone_s):
        return at_least_s / alone_s, clock_s + waited_s
    return mean_s / alone_s if iterations else math.nan, clock_s


def _waited_s(run: ObservedRun) -> float:
    """How long it does no iteration, as far as all of them have run together; a training that is done has none to do."""
    told = run.progress
    if 0 < told.total <= told.iterations:
        return 0.0
    return max(min(told.idle_s, told.at_s + told.idle_s - run.began_s) - LATE_S, 0.0)


def behind_s(run: ObservedRun | None, alone_s: float | None, bound: float) -> float:
    """By how much a job is behind what its bound allows, as in :class:`~slurm_soda.policies.sharing.snapshot.SharingJobs`.

    While nobody was beside it, it is taken to have run at full speed.
    """
    if run is None or alone_s is None or alone_s <= 0 or not bound < math.inf:
        return 0.0
    told, found_s, until_s = run.progress, 0.0, math.inf
    mine = [one for one in run.paces if (one.restart, one.first_s) == (told.restart, told.first_s) and one.co_runners]
    for pace in sorted(mine, key=lambda one: one.began_s):
        found_s = max(found_s - (bound - 1.0) * max(pace.began_s - until_s, 0.0), 0.0)
        found_s = max(found_s + pace.clock_s - bound * pace.iterations * alone_s, 0.0)
        until_s = pace.at_s
    found_s = max(found_s - (bound - 1.0) * max(told.at_s - until_s, 0.0), 0.0)
    waited_s = _waited_s(run) if run.co_runners is not None and run.co_runners.others else 0.0
    return max(found_s + waited_s - bound * alone_s, 0.0) if waited_s else found_s


def _is_of(pace: JobPaceRow, run: ObservedRun) -> bool:
    told = run.progress
    same_run = pace.restart == told.restart and pace.first_s == told.first_s
    return (
        same_run
        and run.co_runners is not None
        and pace.co_runners == run.co_runners.name
        and pace.began_s >= run.began_s
    )


def saves_every_s(run: ObservedRun | None, alone_s: float | None) -> float:
    """Work alone between two times that a job saves its state by itself, by the checkpoints of its present run; infinite
    where it told of none.
    """
    if run is None or alone_s is None or run.progress.saves < 1:
        return math.inf
    told = run.progress
    each = (told.saved - told.began_iterations) / told.saves * alone_s
    return each if each > 0 else math.inf


def with_observations(
    store: Store, snapshot: ClusterSnapshot, jobs: Mapping[int, SlurmJob], co_runners_of: Mapping[RunId, CoRunners]
) -> ClusterSnapshot:
    """A snapshot for sharing with what running jobs tell of themselves.

    Args:
        store: what they told.
        snapshot: any other one comes back as it is.
        jobs: as Slurm lists them.
        co_runners_of: whom each has beside it.
    """
    if not isinstance(snapshot, SharingSnapshot) or not isinstance(snapshot.known, KindProfiles):
        return snapshot
    sharing, known = snapshot.sharing, snapshot.known
    kinds = {
        job_id: sharing.kinds[code] if code >= 0 else None
        for job_id, code in zip(snapshot.jobs.job_id.tolist(), sharing.kind.tolist(), strict=True)
    }
    running = [jobs[job_id] for job_id in kinds if jobs[job_id].state == "RUNNING"]
    observed = read_observed_runs(store, running, co_runners_of, kinds)
    rows = [observed.get(job_id) for job_id in kinds]
    found = [None if run is None else alone_iteration_s(run, known) for run in rows]
    alone_s = [None if one is None else one.value for one in found]
    slowdown, together_s = observe_pairs(rows, alone_s)
    every_s = np.array([saves_every_s(run, alone) for run, alone in zip(rows, alone_s, strict=True)], dtype=np.float64)
    kinds_known = _KnownKinds(known)
    triable = [
        kinds_known.may_be_tried(jobs[job_id], kind, alone_s=alone)
        for (job_id, kind), alone in zip(kinds.items(), alone_s, strict=True)
    ]
    bounds = sharing.max_slowdown.tolist()
    behind = [behind_s(run, alone, bound) for run, alone, bound in zip(rows, alone_s, bounds, strict=True)]
    sharing = replace(
        sharing,
        observed_slowdown=slowdown,
        together_s=together_s,
        saves_every_s=every_s,
        behind_s=np.array(behind, dtype=np.float64),
        triable=np.array(triable, dtype=np.bool_),
    )
    return replace(snapshot, sharing=sharing)


class _KnownKinds:
    """Which jobs may be put beside others to find out how that goes.

    The memory of their kind must be known to their owner, and it must be seen how much they are slowed. So it is of
    running jobs that tell their progress, where their pace alone is known; of others if it was measured, on their owner's
    own jobs or on many owners', how long iterations of the kind take.
    """

    def __init__(self, known: KindProfiles) -> None:
        self._known = known
        self._found: dict[tuple[str, JobKind], tuple[bool, bool]] = {}
        """Whether memory and pace are known."""

    def may_be_tried(self, job: SlurmJob, kind: JobKind | None, alone_s: float | None) -> bool:
        """As :attr:`.SharingJobs.triable` of one job; ``alone_s``: its iterations alone, if it tells any."""
        if kind is None:
            return False
        if (job.user, kind) not in self._found:
            own = self._known.of_owner(job.user)
            each_s = own.iteration_s(kind)
            paced = each_s is not None and each_s.source <= Source.MEASURED
            self._found[job.user, kind] = own.footprint(kind) is not None, paced
        fits, paced = self._found[job.user, kind]
        return fits and (alone_s is not None and alone_s > 0 if job.state == "RUNNING" else paced)


def read_observed_runs(
    store: Store,
    running: Sequence[SlurmJob],
    co_runners_of: Mapping[RunId, CoRunners],
    kinds: Mapping[int, JobKind | None],
) -> dict[int, ObservedRun]:
    """What running jobs told, by job id, with the co-runners that they have now."""
    runs = {RunId(job.job_id, job.restarts): job for job in running if job.gpus}
    with store.read() as session:
        told, paces = progress_of_runs(session, runs)
        shared = {run: co_runners_of[run] for run in told if run in co_runners_of and co_runners_of[run].others}
        began_s = shared_since_of(session, shared)
    return {
        run.job_id: ObservedRun(
            runs[run],
            row,
            paces.get(run.job_id, ()),
            co_runners_of.get(run),
            began_s.get(run, -math.inf),
            kinds.get(run.job_id),
        )
        for run, row in told.items()
    }
