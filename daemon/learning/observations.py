"""What is learned from ended jobs about their kinds: from Slurm's own record and what agents reported of them.

Users say how many iterations a job takes, and may run whatever they like under a model's name. So each owner's jobs give one
value, which holds for that owner, and others rely on the median of owners' values alone
(:mod:`slurm_soda.policies.run_times.owners`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from sqlalchemy.orm import Session

from slurm_soda.daemon.learning.profile_rows import row_columns
from slurm_soda.daemon.store import kind_profiles as stored
from slurm_soda.daemon.store.jobs.finished_jobs import job_usage_totals, usage_by_job
from slurm_soda.daemon.store.queries import belongs_to
from slurm_soda.daemon.store.tables.kind_profiles import ObservedJob, ProfileValueRow
from slurm_soda.daemon.store.tables.scheduling import Job, JobNodeUsage, JobRun
from slurm_soda.policies.run_times.owners import median_over_owners, weighted_median
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileSubject, ProfileValue, normalised_kind
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.hints import codec
from slurm_soda.slurm_ext.read import hostlist

NEWEST_JOBS = 64
"""The newest jobs of a kind that its owner's values are of."""
LEARNED_QUANTITIES = ("iteration_s", "utilisation_ratio", "memory_mib")
MIN_RUN_S = 60.0
"""A shorter run says more about starting than about training."""
PRIOR_ERROR_RATIO = 0.2
"""Our choice: as if one earlier value had been off by a fifth, so that a single job is not believed exactly."""


def kind_of_ended_job(job: Job, runs: Sequence[JobRun], gpu_types: Mapping[str, str]) -> JobKind | None:
    """What kind of job it was, by its hints and the node it ran on; None where it names no model or had no GPU."""
    hints = codec.hints_from_dict(job.hints)
    if not hints.model or not job.gpus:
        return None
    return normalised_kind(JobKind(hints.model, hints.batch_size or 0, _gpu_type(runs, gpu_types), job.gpus))


def _gpu_type(runs: Sequence[JobRun], gpu_types: Mapping[str, str]) -> str:
    if not runs:
        return ""
    try:
        names = hostlist.expand_hosts(runs[-1].node_names)
    except SodaError:
        return ""
    return gpu_types.get(names[0], "") if names else ""


def record_observations(
    session: Session,
    jobs: Sequence[Job],
    runs: Mapping[int, Sequence[JobRun]],
    gpu_types: Mapping[str, str],
    now_s: float,
) -> int:
    """Keep what these ended jobs show, and renew the values of their kinds; gives the number of new observations."""
    kinds = {job.id: kind for job in jobs if (kind := kind_of_ended_job(job, runs.get(job.id, ()), gpu_types))}
    known = stored.already_observed(session, list(kinds))
    fresh = [job for job in jobs if job.id in kinds and job.id not in known]
    usage = usage_by_job(session, fresh)
    seen: dict[tuple[JobKind, str], None] = {}
    rows = 0
    for job in fresh:
        row = _observed(job, kinds[job.id], runs.get(job.id, ()), usage[job.job_id])
        if row is not None:
            session.add(row)
            seen[kinds[job.id], job.user] = None
            rows += 1
    session.flush()
    for kind, owner in seen:
        for value in owner_values(session, kind, owner, now_s):
            stored.put_value(session, row_columns(value))
    for kind in dict.fromkeys(kind for kind, _ in seen):
        for value in common_values(session, kind, now_s):
            stored.put_value(session, row_columns(value))
    return rows


def _observed(job: Job, kind: JobKind, runs: Sequence[JobRun], usage: Sequence[JobNodeUsage]) -> ObservedJob | None:
    run_s = math.fsum(run.end_s - run.start_s for run in runs if run.end_s is not None and run.end_s > run.start_s)
    if run_s < MIN_RUN_S or any(run.shared for run in runs):
        return None
    own = [record for record in usage if record.gpu_count and belongs_to(record.first_s, job)]
    iterations = codec.hints_from_dict(job.hints).iterations
    whole = job.state == "COMPLETED" and len(runs) == 1  # a run that was stopped may have repeated iterations
    return ObservedJob(
        job_pk=job.id,
        model=kind.model,
        batch=kind.batch,
        gpu_type=kind.gpu_type,
        gpus=kind.gpus,
        at_s=job.end_s,
        run_s=run_s,
        iteration_s=run_s / iterations if iterations and whole else None,
        utilisation_ratio=job_usage_totals(job, usage).gpu_util_ratio,
        memory_mib=max((record.gpu_memory_peak_mib / record.gpu_count for record in own), default=None),
    )


def owner_values(session: Session, kind: JobKind, owner: str, now_s: float) -> list[ProfileValue]:
    """What one owner's newest jobs of a kind show: medians by run time, with the mean distance from them; of memory the
    most.
    """
    rows = stored.observed_jobs_of(session, _kind_columns(kind), owner, NEWEST_JOBS)
    values = []
    for quantity in LEARNED_QUANTITIES:
        known = [row for row in rows if getattr(row, quantity) is not None]
        if known and owner:
            seen = [getattr(row, quantity) for row in known]
            level = max(seen) if quantity == "memory_mib" else weighted_median(seen, [row.run_s for row in known])
            estimate = Estimate(level, expected_deviation(seen, level), Source.MEASURED)
            values.append(ProfileValue(ProfileSubject(kind), quantity, estimate, len(seen), "", now_s, owner))
    return values


def common_values(session: Session, kind: JobKind, now_s: float) -> list[ProfileValue]:
    """What holds for owners who ran no such job: medians over owners, where there are enough.

    The error is the owners' median distance from it, so that one owner moves it no farther than the median itself.
    """
    values = []
    for quantity in LEARNED_QUANTITIES:
        rows = stored.owners_values(session, _kind_columns(kind), quantity, Source.MEASURED)
        value = median_value(rows, ProfileSubject(kind), quantity, now_s)
        if value is not None:
            values.append(value)
    return values


def median_value(
    rows: Sequence[ProfileValueRow], subject: ProfileSubject, quantity: str, now_s: float
) -> ProfileValue | None:
    """The median of values, one an owner, with the owners' median distance from it; ``None`` from too few."""
    level = median_over_owners([row.value for row in rows])
    if level is None:
        return None
    typical = median(abs(row.value - level) for row in rows)
    estimate = Estimate(level, expected_deviation([level + typical] * len(rows), level), Source.MEASURED)
    jobs, origin = sum(row.observations for row in rows), f"median of {len(rows)} owners"
    return ProfileValue(subject, quantity, estimate, jobs, origin, now_s)


def _kind_columns(kind: JobKind) -> dict[str, str | int]:
    return {"model": kind.model, "batch": kind.batch, "gpu_type": kind.gpu_type, "gpus": kind.gpus}


def expected_deviation(seen: Sequence[float], level: float) -> float:
    """Expected distance of the next value from a level: that of the values seen, and :data:`PRIOR_ERROR_RATIO` as one
    more.
    """
    return (math.fsum(abs(value - level) for value in seen) + PRIOR_ERROR_RATIO * abs(level)) / (len(seen) + 1)
