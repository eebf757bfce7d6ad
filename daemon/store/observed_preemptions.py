"""What preemptions cost jobs, in the store; every function takes an open session."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.id_lists import split_list
from slurm_soda.daemon.store.progress import RunId
from slurm_soda.daemon.store.tables.kind_profiles import ObservedPreemption
from slurm_soda.daemon.store.tables.scheduling import Job, Preemption

_STOPPED = ("requeued", "released", "done")
"""Phases of preemptions that stopped a run: in the others it has not left yet, or ended by itself."""


class PastPreemption(NamedTuple):
    """One observation, and whose job it was."""

    user: str
    name: str
    model: str
    overhead_s: float
    lost_s: float


def past_preemptions(session: Session, limit: int) -> list[PastPreemption]:
    """The newest observations, oldest first."""
    row = ObservedPreemption
    query = select(Job.user, Job.name, row.model, row.overhead_s, row.lost_s).join(Job, Job.id == row.job_pk)
    newest = session.execute(query.order_by(row.at_s.desc(), row.id.desc()).limit(limit)).all()
    return [PastPreemption(*one) for one in reversed(newest)]


def observed_runs(session: Session, job_keys: Sequence[int]) -> set[tuple[int, int]]:
    """Key of the job and restart count of those runs of these jobs whose preemption was observed."""
    found: set[tuple[int, int]] = set()
    for part in split_list(job_keys):
        query = select(ObservedPreemption.job_pk, ObservedPreemption.restart)
        found.update(
            (key, restart) for key, restart in session.execute(query.where(ObservedPreemption.job_pk.in_(part)))
        )
    return found


def preempted_runs(session: Session, submit_s: Mapping[int, float], runs: Collection[RunId]) -> set[RunId]:
    """Which of these runs sodad stopped; ``submit_s`` of each job, as ids are given anew after a reset of Slurm."""
    found: set[RunId] = set()
    for part in split_list(sorted({run.job_id for run in runs})):
        query = select(Preemption.job_id, Preemption.submit_s, Preemption.restart)
        for job_id, of_s, restart in session.execute(
            query.where(Preemption.job_id.in_(part), Preemption.phase.in_(_STOPPED))
        ):
            if submit_s[job_id] == of_s:
                found.add(RunId(job_id, restart))
    return found & set(runs)
