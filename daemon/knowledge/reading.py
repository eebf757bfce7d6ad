"""What the store knows, as one object."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.orm import Session

from slurm_soda.daemon.knowledge.known import Knowledge
from slurm_soda.daemon.knowledge.pairs import PairKnown, pair_known
from slurm_soda.daemon.knowledge.values import Subject, Value, plain, value_of
from slurm_soda.daemon.store import knowledge as stored
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.knowledge import Estimate, Workload
from slurm_soda.policies.sharing.predicting.documents import decode
from slurm_soda.policies.sharing.predicting.prediction import Predicted
from slurm_soda.policies.sharing.predicting.tables import SpeedTable


def read_knowledge(session: Session) -> Knowledge:
    """Everything that is known now, with what the trained model predicts of pairs that nobody measured."""
    values = [value_of(row) for row in stored.all_values(session)]
    peaks = {Workload(*key): mib for key, mib in stored.peaks_mib(session).items()}
    return Knowledge(values, peaks, read_model(session))


def read_iteration_times(session: Session) -> Knowledge:
    """Only how long iterations take: a hundredth of what an imported table of pairs has."""
    return Knowledge(value_of(row) for row in stored.all_values(session, "iteration_s"))


def read_pair(session: Session, new: Workload, running: Workload) -> PairKnown:
    """What is known of a new job's kind beside a running one's: :func:`.pair_known`, reading no more than it takes."""
    models = {"", plain(new).model, plain(running).model}
    values = [value_of(row) for row in stored.values_among(session, sorted(models))]
    return pair_known(Knowledge(values, guess=read_model(session, plain(new).gpu_type)), new, running)


def read_model(session: Session, gpu_type: str | None = None) -> Predicted | None:
    """The trained model, all of it or what it says of one type of GPU; None if there is none, or it is of a version that
    this one does not know (train it anew).
    """
    row = stored.known_model(session)
    if row is None:
        return None
    try:
        return decode(row.document, gpu_type)
    except PolicyError:
        return None


def table_of(values: Iterable[Value]) -> SpeedTable:
    """Values as a table of speeds, to learn from: the most trusted of each, names as the store has them."""
    best: dict[tuple[str, Subject], Estimate] = {}
    for value in values:
        key = (value.quantity, value.subject)
        before = best.get(key)
        if before is None or value.estimate.source < before.source:
            best[key] = value.estimate
    alone = {
        subject.kind: 1.0 / time.value
        for (quantity, subject), time in best.items()
        if quantity == "iteration_s" and time.value > 0
    }
    shared: dict[tuple[Workload, Workload], tuple[float, float]] = {}
    for one, speed in alone.items():
        for other, its_speed in alone.items():
            if (one.gpu_type, one.gpus) == (other.gpu_type, other.gpus):
                mine, its = best.get(("xi", Subject.of(one, other))), best.get(("xi", Subject.of(other, one)))
                fits = best.get(("fits", Subject.of(one, other)))
                if fits is not None and fits.value < 0.5:
                    shared[one, other] = (0.0, 0.0)
                elif mine is not None and its is not None:
                    shared[one, other] = (speed / mine.value, its_speed / its.value)
    return SpeedTable(alone, shared)
