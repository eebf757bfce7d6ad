"""What the store knows, as one object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sqlalchemy.orm import Session

from slurm_soda.daemon.learning.pair_view import PairView, pair_view
from slurm_soda.daemon.learning.profile_rows import value_from_row
from slurm_soda.daemon.store import kind_profiles as stored
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.sharing.pair_knowledge.kind_profiles import KindProfiles
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileSubject, ProfileValue, normalised_kind
from slurm_soda.policies.sharing.prediction.model_json import decode_model
from slurm_soda.policies.sharing.prediction.predicted_interference import PredictedInterference
from slurm_soda.policies.sharing.prediction.speed_tables import SpeedTable
from slurm_soda.policies.tiresias.model_skews import normalise_model_name
from slurm_soda.slurm_ext.hints import codec


def read_iteration_times(session: Session) -> KindProfiles:
    """Only how long iterations take: a hundredth of what an imported table of pairs has."""
    return KindProfiles(value_from_row(row) for row in stored.all_values(session, "iteration_s"))


def iteration_time_of(session: Session, job: Job) -> Estimate | None:
    """Time of an iteration of a job's kind, as its owner is told; None where nobody knows, or its type of GPU matters."""
    hints = codec.hints_from_dict(job.hints)
    rows = stored.values_of_models(session, [normalise_model_name(hints.model)]) if hints.model and job.gpus else ()
    times = [value_from_row(row) for row in rows if row.quantity == "iteration_s" and row.gpus == job.gpus]
    types = {value.subject.kind.gpu_type for value in times}
    if len(types) != 1:
        return None
    kind = JobKind(hints.model or "", hints.batch_size or 0, types.pop(), job.gpus)
    return KindProfiles(times).of_owner(job.user).iteration_s(kind)


def read_kind_profiles(session: Session, *, mps: bool = True) -> KindProfiles:
    """Everything that is known of kinds of jobs, with the trained model; ``mps``: as for :func:`values_of_pairs`."""
    values = values_of_pairs([value_from_row(row) for row in stored.all_values(session)], mps=mps)
    return KindProfiles(values, guess=read_slowdown_model(session))


def values_of_pairs(values: Iterable[ProfileValue], *, mps: bool) -> Iterator[ProfileValue]:
    """Values with the slowdowns of jobs that share a GPU in one way: under MPS, or in turns.

    What was measured here in the other way is left out; what other sources say counts for both.
    """
    for value in values:
        if value.quantity == "xi_time_slicing":
            if not mps:
                yield replace(value, quantity="xi")
        elif mps or value.quantity != "xi" or value.estimate.source != Source.MEASURED:
            yield value


def read_pair_view(session: Session, new: JobKind, running: JobKind, owners: tuple[str, str] = ("", "")) -> PairView:
    """What is known of a new job's kind with a running one's: :func:`.pair_view`, reading no more than it takes.

    Args:
        session: reads.
        new: kind of the new job.
        running: kind of the running one.
        owners: theirs, whose own jobs' values go before others'.
    """
    models = {"", normalised_kind(new).model, normalised_kind(running).model}
    values = [value_from_row(row) for row in stored.values_of_models(session, sorted(models))]
    known = KindProfiles(values, guess=read_slowdown_model(session, normalised_kind(new).gpu_type))
    return pair_view(known, new, running, owners)


def read_slowdown_model(session: Session, gpu_type: str | None = None) -> PredictedInterference | None:
    """The trained model, all of it or what it says of one type of GPU; None if there is none, or it is of a version that
    this one does not know (train it anew).
    """
    row = stored.stored_slowdown_model(session)
    if row is None:
        return None
    try:
        return decode_model(row.document, gpu_type)
    except PolicyError:
        return None


def speed_table_of(values: Iterable[ProfileValue]) -> SpeedTable:
    """Values as a table of speeds, to learn from: the most trusted of each that hold for everybody, names as the store has
    them.
    """
    best: dict[tuple[str, ProfileSubject], Estimate] = {}
    for value in values:
        if value.owner:
            continue
        key = (value.quantity, value.subject)
        before = best.get(key)
        if before is None or value.estimate.source < before.source:
            best[key] = value.estimate
    alone = {
        subject.kind: 1.0 / time.value
        for (quantity, subject), time in best.items()
        if quantity == "iteration_s" and time.value > 0
    }
    shared: dict[tuple[JobKind, JobKind], tuple[float, float]] = {}
    for one, speed in alone.items():
        for other, its_speed in alone.items():
            if (one.gpu_type, one.gpus) == (other.gpu_type, other.gpus):
                mine, its = (
                    best.get(("xi", ProfileSubject.of(one, other))),
                    best.get(("xi", ProfileSubject.of(other, one))),
                )
                fits = best.get(("fits", ProfileSubject.of(one, other)))
                if fits is not None and fits.value < 0.5:
                    shared[one, other] = (0.0, 0.0)
                elif mine is not None and its is not None:
                    shared[one, other] = (speed / mine.value, its_speed / its.value)
    return SpeedTable(alone, shared)
