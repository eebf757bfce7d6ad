"""What the store knows, as one object."""

from __future__ import annotations

from slurm_soda.daemon.knowledge.known import Knowledge
from slurm_soda.daemon.knowledge.values import value_of
from slurm_soda.daemon.store import knowledge as stored
from slurm_soda.policies.sharing.knowledge import Interference, Workload
from sqlalchemy.orm import Session


def read_knowledge(session: Session, guess: Interference | None = None) -> Knowledge:
    """Everything that is known now; ``guess`` predicts slowdowns of pairs that nobody measured."""
    values = [value_of(row) for row in stored.all_values(session)]
    peaks = {Workload(*key): mib for key, mib in stored.peaks_mib(session).items()}
    return Knowledge(values, peaks, guess)
