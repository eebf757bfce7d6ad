"""Pairs of jobs that a fatal fault under MPS concerned, and the programs that are in quarantine for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.queries import belongs_to, find_jobs
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.daemon.store.tables.sharing import FaultedPairRow
from slurm_soda.policies.tiresias.model_skews import normalise_model_name
from slurm_soda.slurm_ext.hints import codec
from slurm_soda.wire.mps import MpsFault


class Program(NamedTuple):
    """What may fault again: batch, GPUs and their type change the data, not the code."""

    owner: str
    model: str
    """As :func:`~slurm_soda.policies.tiresias.model_skews.normalise_model_name` gives it; empty: nobody said."""


@dataclass(frozen=True, slots=True)
class FaultOfJob:
    """What a job's owner is told of a fault."""

    at_s: float
    node: str
    job_id: int
    """The job itself, or one of the same program."""
    other: int
    lifted: bool


def programs_of(row: FaultedPairRow) -> tuple[Program, Program]:
    """Both programs, the smaller one first: a quarantine has no direction."""
    one, other = Program(row.owner, row.model), Program(row.other_owner, row.other_model)
    return (one, other) if one <= other else (other, one)


def add_faults(session: Session, node: str, faults: Sequence[MpsFault]) -> None:
    """Record every pair that may have ended each other, each once: a later fault puts it in quarantine again."""
    for fault in faults:
        pairs = fault.pairs()
        listed = find_jobs(session, sorted({job_id for pair in pairs for job_id in pair}))
        programs = {job.job_id: _program(job) for job in listed if belongs_to(fault.at_s, job)}
        for one, other in pairs:
            mine, its = (programs.get(job_id, Program("", "")) for job_id in (one, other))
            key = {
                "one": one, "other": other,
                "owner": mine.owner, "model": mine.model, "other_owner": its.owner, "other_model": its.model,
            }  # fmt: skip
            row = session.scalars(select(FaultedPairRow).filter_by(**key)).first()
            if row is None:
                session.add(FaultedPairRow(**key, node=node, at_s=fault.at_s))
            elif row.at_s < fault.at_s:
                row.node, row.at_s, row.lifted_s, row.lifted_by = node, fault.at_s, None, ""
        session.flush()


def faulted_pairs(session: Session) -> Sequence[FaultedPairRow]:
    """All that are kept, oldest first; few, as each ended jobs."""
    return session.scalars(select(FaultedPairRow).order_by(FaultedPairRow.at_s, FaultedPairRow.id)).all()


def quarantined_programs(rows: Sequence[FaultedPairRow]) -> set[tuple[Program, Program]]:
    """Pairs of programs that do not share until an admin lifts it, or the store forgets their last fault."""
    pairs = {programs_of(row) for row in rows if row.lifted_s is None}
    return {pair for pair in pairs if all(program.owner and program.model for program in pair)}


def lift(session: Session, row: FaultedPairRow, who: str, now_s: float) -> None:
    """Let the two programs share again, whatever faults they had; the two jobs themselves never do."""
    for each in faulted_pairs(session):
        if each.lifted_s is None and programs_of(each) == programs_of(row):
            each.lifted_s, each.lifted_by = now_s, who


def faults_of(session: Session, job: Job) -> list[FaultOfJob]:
    """Those of a job itself, and those for which its program is in quarantine; oldest first."""
    row, own = FaultedPairRow, _program(job)
    mine = or_(row.one == job.job_id, row.other == job.job_id)
    same = or_(
        and_(row.owner == own.owner, row.model == own.model),
        and_(row.other_owner == own.owner, row.other_model == own.model),
    )
    found = []
    for each in session.scalars(select(row).where(or_(mine, same)).order_by(row.at_s, row.id)):
        one, other = each.one, each.other
        if job.job_id == other or (job.job_id != one and (each.owner, each.model) != own):
            one, other = other, one
        if one == job.job_id and belongs_to(each.at_s, job):
            found.append(FaultOfJob(each.at_s, each.node, one, other, each.lifted_s is not None))
        elif one != job.job_id and own.model and each.lifted_s is None:
            found.append(FaultOfJob(each.at_s, each.node, one, other, lifted=False))
    return found


def _program(job: Job) -> Program:
    return Program(job.user, normalise_model_name(codec.hints_from_dict(job.hints).model or ""))
