"""Single values that are known about kinds of jobs."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind
from slurm_soda.policies.snapshot_file.identifiers import ModelName, Sentence, UserName, Word
from slurm_soda.policies.tiresias.model_skews import normalise_model_name


@dataclass(frozen=True, slots=True)
class ProfileSubject:
    """What a value is about: a kind of job, or one with another on the same GPU."""

    kind: JobKind
    partner: ModelName = ""
    """Model of the other job; empty: alone."""
    partner_batch: int = 0

    @classmethod
    def of(cls, kind: JobKind, other: JobKind | None = None) -> ProfileSubject:
        """With names as the store has them, however they are spelt."""
        if other is None:
            return cls(normalised_kind(kind))
        return cls(normalised_kind(kind), normalise_model_name(other.model), other.batch)


def normalised_kind(kind: JobKind) -> JobKind:
    """A kind by the names that equal models and GPUs share."""
    return JobKind(normalise_model_name(kind.model), kind.batch, kind.gpu_type.lower(), kind.gpus)


@dataclass(frozen=True, slots=True)
class ProfileValue:
    """One value with its source."""

    subject: ProfileSubject
    quantity: Word
    estimate: Estimate
    observations: int = 0
    origin: Sentence = ""
    at_s: float = 0.0
    owner: UserName = ""
    """Whose jobs it is of; empty: it holds for everybody."""
