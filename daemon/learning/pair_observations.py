"""What ended jobs show of pairs: how much one kind of job is slowed beside another, by the progress that jobs told.

As with all that users say: each owner's jobs give one value, which holds for that owner, and others rely on the median of
owners' values alone (:mod:`slurm_soda.policies.run_times.owners`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.learning.observations import NEWEST_JOBS, expected_deviation, kind_of_ended_job, median_value
from slurm_soda.daemon.learning.profile_rows import row_columns
from slurm_soda.daemon.learning.stored_profiles import read_iteration_times
from slurm_soda.daemon.sharing.observed_pairs import own_alone_s
from slurm_soda.daemon.store import kind_profiles as stored
from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.progress import RunId, jobs_with_co_runners, paces_of, runs_of_name
from slurm_soda.daemon.store.queries import belongs_to, find_jobs, runs_of
from slurm_soda.daemon.store.tables.progress import JobPaceRow, ObservedPair
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.policies.run_times.owners import weighted_median
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileSubject, ProfileValue, normalised_kind
from slurm_soda.policies.sharing.pair_knowledge.slowdown_learner import MEASURED_AFTER_S

PairKey = tuple[ProfileSubject, str]
"""A kind beside another, and the quantity: with MPS or without."""


def record_pair_observations(session: Session, jobs: Sequence[Job], gpu_types: Mapping[str, str], now_s: float) -> int:
    """Keep what these ended jobs show of pairs, and renew the values of those pairs; gives the number of observations."""
    seen: dict[tuple[PairKey, str], None] = {}
    together, known = (
        jobs_with_co_runners(session, [job.job_id for job in jobs]),
        _known(session, [job.id for job in jobs]),
    )
    rows = 0
    for job in jobs:
        if job.job_id not in together or job.id in known:
            continue
        kind, paces = kind_of_ended_job(job, runs_of(session, job), gpu_types), paces_of(session, job)
        alone_s = None if kind is None else _alone_s(session, job, kind, paces)
        if kind is None or not alone_s:
            continue
        for (subject, quantity), beside in _by_partner(session, kind, paces, gpu_types).items():
            session.add(_observed(job, subject, quantity, beside, alone_s))
            seen[(subject, quantity), job.user] = None
            rows += 1
    session.flush()
    for (subject, quantity), owner in seen:
        _put(session, owner_value(session, subject, quantity, owner, now_s))
    for subject, quantity in dict.fromkeys(pair for pair, _ in seen):
        _put(session, common_value(session, subject, quantity, now_s))
    return rows


def _known(session: Session, keys: Sequence[int]) -> set[int]:
    return {
        key
        for part in split_list(keys)
        for key in session.scalars(select(ObservedPair.job_pk).where(ObservedPair.job_pk.in_(part)))
    }


def _put(session: Session, value: ProfileValue | None) -> None:
    if value is not None:
        stored.put_value(session, row_columns(value))


def _alone_s(session: Session, job: Job, kind: JobKind, paces: Sequence[JobPaceRow]) -> float | None:
    own = own_alone_s(paces)
    if own is not None:
        return own
    told = read_iteration_times(session).of_owner(job.user).iteration_s(kind)
    return None if told is None else told.value


def _by_partner(
    session: Session, kind: JobKind, paces: Sequence[JobPaceRow], gpu_types: Mapping[str, str]
) -> dict[PairKey, list[JobPaceRow]]:
    """Times that the job spent beside jobs of one kind alone."""
    found: dict[PairKey, list[JobPaceRow]] = {}
    for pace in paces:
        others = {_kind_of_run(session, run, pace, gpu_types) for run in runs_of_name(pace.co_runners)}
        other = others.pop() if len(others) == 1 else None
        if other is not None and pace.iterations > 0:
            subject = ProfileSubject.of(kind, other)
            found.setdefault((subject, "xi" if pace.mps else "xi_time_slicing"), []).append(pace)
    return found


def _kind_of_run(session: Session, run: RunId, pace: JobPaceRow, gpu_types: Mapping[str, str]) -> JobKind | None:
    """What another job was, as far as its kind matters to its partner; jobs that ended since count as well."""
    for job in find_jobs(session, [run.job_id]):
        if belongs_to(pace.began_s, job):
            found = kind_of_ended_job(job, runs_of(session, job), gpu_types)
            return None if found is None else replace(normalised_kind(found), gpus=1)
    return None


def _observed(
    job: Job, subject: ProfileSubject, quantity: str, together: Sequence[JobPaceRow], alone_s: float
) -> ObservedPair:
    clock_s, iterations = math.fsum(one.clock_s for one in together), math.fsum(one.iterations for one in together)
    return ObservedPair(
        job_pk=job.id,
        **_columns(subject),
        quantity=quantity,
        at_s=job.end_s,
        together_s=clock_s,
        slowdown=max(clock_s / iterations / alone_s, 1.0),
    )


def owner_value(
    session: Session, subject: ProfileSubject, quantity: str, owner: str, now_s: float
) -> ProfileValue | None:
    """What one owner's newest jobs show: the median by time, once they were together for a minute in all."""
    query = select(ObservedPair).filter_by(**_columns(subject), quantity=quantity)
    query = query.join(Job, Job.id == ObservedPair.job_pk).where(Job.user == owner)
    rows = session.scalars(query.order_by(ObservedPair.at_s.desc(), ObservedPair.id.desc()).limit(NEWEST_JOBS)).all()
    if not owner or math.fsum(row.together_s for row in rows) < MEASURED_AFTER_S:
        return None
    seen = [row.slowdown for row in rows]
    level = weighted_median(seen, [row.together_s for row in rows])
    estimate = Estimate(level, expected_deviation(seen, level), Source.MEASURED)
    return ProfileValue(subject, quantity, estimate, len(seen), "", now_s, owner)


def common_value(session: Session, subject: ProfileSubject, quantity: str, now_s: float) -> ProfileValue | None:
    """What holds for owners who had no such pair: the median over owners, where there are enough."""
    rows = stored.owners_values(session, _columns(subject), quantity, Source.MEASURED)
    return median_value(rows, subject, quantity, now_s)


def _columns(subject: ProfileSubject) -> dict[str, str | int]:
    kind = subject.kind
    of_kind: dict[str, str | int] = {"model": kind.model, "batch": kind.batch}
    pair: dict[str, str | int] = {"partner": subject.partner, "partner_batch": subject.partner_batch}
    return of_kind | {"gpu_type": kind.gpu_type, "gpus": kind.gpus} | pair
