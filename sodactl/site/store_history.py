"""The site's own jobs as sodad has seen them, to simulate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.traces.sacct.cluster_from_dump import cluster_from
from slurm_soda.simulator.traces.sacct.dump import SacctDump, SacctRun
from slurm_soda.simulator.traces.trace import JobTrace
from slurm_soda.simulator.whatif.observed_site import ObservedSite, make_observed_site
from slurm_soda.simulator.workload import Workload
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.hints import codec
from slurm_soda.slurm_ext.read.hostlist import expand_hosts

SHORTEST_RUN_S = 0.1
NAME = "the store"


def site_from_store(session: Session, jobs: int) -> tuple[ObservedSite, tuple[str, ...]]:
    """The newest jobs that ended, on the nodes on which they ran; and what was taken for granted, one line each.

    Raises:
        SimulatorError: no job has ended yet whose start and nodes are known.
    """
    rows = session.scalars(
        select(Job)
        .where(Job.end_s.is_not(None), Job.first_start_s.is_not(None))
        .order_by(Job.submit_s.desc(), Job.id)
        .limit(jobs)
    ).all()
    runs = _runs(session, rows)
    known = [job for job in rows if runs.get(job.id)]
    if not known:
        raise SimulatorError(
            "the store knows no job that ran and ended: let sodad observe for some days, or give --sacct or --trace"
        )
    origin_s = min(job.submit_s for job in known)
    order = sorted(known, key=lambda job: (job.submit_s, job.id))
    workload = Workload.build(NAME, [_job_row(job, runs[job.id], origin_s) for job in order], origin_s=origin_s)
    start_s = np.array([runs[job.id][0].start_s - origin_s for job in order])
    end_s = np.array([_end_s(job, runs[job.id][-1]) - origin_s for job in order])
    trace = JobTrace(workload, "store", observed_start_s=start_s, observed_end_s=np.maximum(end_s, start_s))
    dump = SacctDump(trace, _sacct_runs(order, runs, origin_s), ())
    cluster, notes = cluster_from(dump)
    return make_observed_site(trace, dump.runs, cluster), (*_left_out(rows, known), *notes)


def _runs(session: Session, jobs: Sequence[Job]) -> Mapping[int, list[JobRun]]:
    """Runs of which the nodes are known, by job's key, the first one first."""
    found: dict[int, list[JobRun]] = {}
    for part in split_list([job.id for job in jobs]):
        query = select(JobRun).where(JobRun.job_pk.in_(part)).order_by(JobRun.job_pk, JobRun.restart)
        for run in session.scalars(query):
            if run.node_names:
                found.setdefault(run.job_pk, []).append(run)
    return found


def _end_s(job: Job, run: JobRun) -> float:
    """A run that sodad did not see end was over when its job was."""
    end_s = run.end_s if run.end_s is not None else job.end_s
    return run.start_s if end_s is None else end_s


def _job_row(job: Job, runs: Sequence[JobRun], origin_s: float) -> dict[str, Any]:
    ran_s = sum(max(_end_s(job, run) - run.start_s, 0.0) for run in runs)
    return {
        "label": str(job.job_id),
        "submit_s": job.submit_s - origin_s,
        "run_s": max(ran_s, SHORTEST_RUN_S),
        "gpus": job.gpus,
        "nodes": max(job.nodes, 1),
        "cpus": job.cpus,
        "time_limit_s": np.inf if job.time_limit_s is None else job.time_limit_s,
        "user": job.user,
        "partition": job.partition.split(",", 1)[0],
        "model": job.hints.get("model", ""),
        "preemptible": codec.hints_from_dict(job.hints).preemptible,
    }


def _sacct_runs(jobs: Sequence[Job], runs: Mapping[int, Sequence[JobRun]], origin_s: float) -> tuple[SacctRun, ...]:
    found = []
    for row, job in enumerate(jobs):
        ready_s = job.submit_s - origin_s
        for run in runs[job.id]:
            end_s = _end_s(job, run) - origin_s
            partition = job.partition.split(",", 1)[0]
            found.append(
                SacctRun(
                    row, ready_s, run.start_s - origin_s, end_s, job.state, _nodes(run), run.gpus or job.gpus, "",
                    job.cpus, 0, partition,
                )
            )  # fmt: skip
            ready_s = end_s
    return tuple(sorted(found, key=lambda run: run.start_s))


def _nodes(run: JobRun) -> tuple[str, ...]:
    try:
        return expand_hosts(run.node_names)
    except SlurmError:
        return ()


def _left_out(rows: Sequence[Job], known: Sequence[Job]) -> list[str]:
    count = len(rows) - len(known)
    return [f"{count} jobs without a run whose nodes are known are left out"] if count else []
