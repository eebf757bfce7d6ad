"""What ended jobs teach about their kinds: from Slurm's own record and what agents told of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from sqlalchemy.orm import Session

from slurm_soda.daemon.knowledge.values import Subject, Value, columns_of, plain
from slurm_soda.daemon.store import knowledge as stored
from slurm_soda.daemon.store.history import usage_by_job, used
from slurm_soda.daemon.store.knowledge_schema import ObservedJob
from slurm_soda.daemon.store.queries import belongs_to
from slurm_soda.daemon.store.schema import Job, Run, Usage
from slurm_soda.policies.sharing.knowledge import Estimate, Source, Workload
from slurm_soda.slurm_ext import codec, hostlist
from slurm_soda.slurm_ext.errors import SodaError

KEEP_JOBS = 64
"""The newest jobs of a kind that its values are of."""
SHORTEST_S = 60.0
"""A shorter run says more about starting than about training."""
PRIOR_RATIO = 0.2
"""Our choice: as if one earlier value had been off by a fifth, so that a single job is not believed exactly."""


def kind_of(job: Job, runs: Sequence[Run], gpu_types: Mapping[str, str]) -> Workload | None:
    """What kind of job it was, by its hints and the node it ran on; None where it names no model or had no GPU."""
    hints = codec.from_dict(job.hints)
    if not hints.model or not job.gpus:
        return None
    return plain(Workload(hints.model, hints.batch_size or 0, _gpu_type(runs, gpu_types), job.gpus))


def _gpu_type(runs: Sequence[Run], gpu_types: Mapping[str, str]) -> str:
    if not runs:
        return ""
    try:
        names = hostlist.expand(runs[-1].node_names)
    except SodaError:
        return ""
    return gpu_types.get(names[0], "") if names else ""


def observe(
    session: Session, jobs: Sequence[Job], runs: Mapping[int, Sequence[Run]], gpu_types: Mapping[str, str], now_s: float
) -> int:
    """Keep what these ended jobs show, and renew the values of their kinds; gives the number of new observations."""
    kinds = {job.id: kind for job in jobs if (kind := kind_of(job, runs.get(job.id, ()), gpu_types))}
    known = stored.observed_among(session, list(kinds))
    fresh = [job for job in jobs if job.id in kinds and job.id not in known]
    usage = usage_by_job(session, fresh)
    kinds_seen: dict[Workload, None] = {}
    rows = 0
    for job in fresh:
        row = _observed(job, kinds[job.id], runs.get(job.id, ()), usage[job.job_id])
        if row is not None:
            session.add(row)
            kinds_seen[kinds[job.id]] = None
            rows += 1
    session.flush()
    for kind in kinds_seen:
        for value in values_of(session, kind, now_s):
            stored.put_value(session, columns_of(value))
    return rows


def _observed(job: Job, kind: Workload, runs: Sequence[Run], usage: Sequence[Usage]) -> ObservedJob | None:
    run_s = math.fsum(run.end_s - run.start_s for run in runs if run.end_s is not None and run.end_s > run.start_s)
    if run_s < SHORTEST_S:
        return None
    own = [record for record in usage if record.gpu_count and belongs_to(record.first_s, job)]
    iterations = codec.from_dict(job.hints).iterations
    whole = job.state == "COMPLETED" and len(runs) == 1  # a run that was stopped may have repeated iterations
    return ObservedJob(
        job_pk=job.id, model=kind.model, batch=kind.batch, gpu_type=kind.gpu_type, gpus=kind.gpus,
        at_s=job.end_s, run_s=run_s, iteration_s=run_s / iterations if iterations and whole else None,
        utilisation_ratio=used(job, usage).gpu_util_ratio,
        memory_mib=max((record.gpu_memory_peak_mib / record.gpu_count for record in own), default=None),
    )  # fmt: skip


def values_of(session: Session, kind: Workload, now_s: float) -> list[Value]:
    """What the newest jobs of a kind say: means with the mean distance from them; of memory the most."""
    key = {"model": kind.model, "batch": kind.batch, "gpu_type": kind.gpu_type, "gpus": kind.gpus}
    rows = stored.observed_of(session, key, KEEP_JOBS)
    values = []
    for quantity in ("iteration_s", "utilisation_ratio", "memory_mib"):
        seen = [value for row in rows if (value := getattr(row, quantity)) is not None]
        if seen:
            level = max(seen) if quantity == "memory_mib" else fmean(seen)
            estimate = Estimate(level, spread(seen, level), Source.MEASURED)
            values.append(Value(Subject(kind), quantity, estimate, len(seen), "", now_s))
    return values


def spread(seen: Sequence[float], level: float) -> float:
    """Expected distance of the next value from a level: that of the values seen, and :data:`PRIOR_RATIO` as one more."""
    return (math.fsum(abs(value - level) for value in seen) + PRIOR_RATIO * abs(level)) / (len(seen) + 1)
