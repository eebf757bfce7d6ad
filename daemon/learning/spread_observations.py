"""What ended jobs show of how much slower a kind runs on more nodes than it needs, by the progress that they told.

The arithmetic is that of simulations (:mod:`slurm_soda.policies.spreading.measurements`): each owner's jobs give one value,
which holds for that owner, and others rely on the median of owners' values alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.learning.observations import kind_of_ended_job
from slurm_soda.daemon.learning.profile_rows import row_columns
from slurm_soda.daemon.store import kind_profiles as stored
from slurm_soda.daemon.store.progress import paces_by_job
from slurm_soda.daemon.store.queries import belongs_to
from slurm_soda.daemon.store.tables.kind_profiles import ObservedJob
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.policies.sharing.job_kinds import JobKind, Source
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileSubject, ProfileValue
from slurm_soda.policies.spreading.measurements import NEWEST_RUNS, TimedRun, join_owners, measure_slowdown
from slurm_soda.policies.spreading.slowdowns import EXTRA_NODES
from slurm_soda.slurm_ext.client import SlurmNode
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.read import hostlist


def spread_quantity(extra_nodes: int) -> str:
    """Name of the slowdown on so many nodes more than needed."""
    return f"spread_{extra_nodes}"


def most_gpus_by_type(nodes: Iterable[SlurmNode]) -> dict[str, int]:
    """GPUs of the largest node with each type, in small letters."""
    found: dict[str, int] = {}
    for node in nodes:
        if node.gpus:
            name = node.gpu_type.lower()
            found[name] = max(found.get(name, 0), node.gpus)
    return found


def record_spread_observations(
    session: Session,
    jobs: Sequence[Job],
    runs: Mapping[int, Sequence[JobRun]],
    *,
    gpu_types: Mapping[str, str],
    most_gpus: Mapping[str, int],
    now_s: float,
) -> int:
    """Renew the values of these ended jobs' kinds, once :func:`.record_observations` took them in; gives how many there are.

    Args:
        session: writes.
        jobs: that ended.
        runs: theirs, by key of the job.
        gpu_types: by node.
        most_gpus: GPUs of the largest node, by type in small letters.
        now_s: the time.
    """
    told = [(kind_of_ended_job(job, runs.get(job.id, ()), gpu_types), job.user) for job in jobs if job.gpus > 1]
    renewed: set[tuple[JobKind, str]] = set()
    for kind, owner in dict.fromkeys((kind, owner) for kind, owner in told if kind is not None and owner):
        most = most_gpus.get(kind.gpu_type, 0)
        by_extra = _runs_by_extra_nodes(session, kind, owner, -(-kind.gpus // most)) if most else {}
        for extra_nodes in range(1, EXTRA_NODES + 1):
            spread = by_extra.get(extra_nodes, [])
            found = measure_slowdown(by_extra.get(0, []), spread) if spread else None
            if found is not None:
                subject, quantity = ProfileSubject(kind), spread_quantity(extra_nodes)
                value = ProfileValue(subject, quantity, found, len(spread), "", now_s, owner)
                stored.put_value(session, row_columns(value))
                renewed.add((kind, quantity))
    for kind, quantity in sorted(renewed, key=str):
        about = {"model": kind.model, "batch": kind.batch, "gpu_type": kind.gpu_type, "gpus": kind.gpus}
        rows = stored.owners_values(session, about, quantity, Source.MEASURED)
        joined = join_owners([row.value for row in rows])
        if joined is not None:
            seen, origin = sum(row.observations for row in rows), f"median of {len(rows)} owners"
            value = ProfileValue(ProfileSubject(kind), quantity, joined, seen, origin, now_s)
            stored.put_value(session, row_columns(value))
    return len(renewed)


def _runs_by_extra_nodes(session: Session, kind: JobKind, owner: str, fewest: int) -> dict[int, list[TimedRun]]:
    """An owner's newest runs of a kind that shared with nobody, the newest first, by nodes more than the fewest."""
    about = {"model": kind.model, "batch": kind.batch, "gpu_type": kind.gpu_type, "gpus": kind.gpus}
    observed = {row.job_pk: row for row in stored.observed_jobs_of(session, about, owner, NEWEST_RUNS)}
    jobs = {job.id: job for job in session.scalars(select(Job).where(Job.id.in_(observed)))}
    runs: dict[int, list[JobRun]] = defaultdict(list)
    for run in session.scalars(select(JobRun).where(JobRun.job_pk.in_(observed))):
        runs[run.job_pk].append(run)
    paces = paces_by_job(session, [job.job_id for job in jobs.values()])
    found: dict[int, list[TimedRun]] = defaultdict(list)
    for key, row in observed.items():
        job = jobs[key]
        clock: dict[int, list[float]] = {}
        for pace in paces.get(job.job_id, ()):
            if not pace.co_runners and pace.iterations > 0 and belongs_to(pace.first_s, job):
                seen = clock.setdefault(pace.restart, [0.0, 0.0])
                seen[0], seen[1] = seen[0] + pace.clock_s, seen[1] + pace.iterations
        timed = {restart: TimedRun(clock_s / done, clock_s) for restart, (clock_s, done) in clock.items()}
        for run in runs[key]:
            one = timed.get(run.restart) or (_whole_run(row) if not timed else None)
            nodes = _count_nodes(run)
            if one is not None and nodes >= fewest:
                found[min(nodes - fewest, EXTRA_NODES)].append(one)
    return found


def _whole_run(row: ObservedJob) -> TimedRun | None:
    """Of a job that told no progress: its run time over the iterations that its owner said it has."""
    return None if row.iteration_s is None else TimedRun(row.iteration_s, row.run_s)


def _count_nodes(run: JobRun) -> int:
    try:
        return len(hostlist.expand_hosts(run.node_names))
    except SodaError:
        return 0
