"""How alike two pairs of jobs are: the covariance of their interference, for :mod:`.gaussian_process`.

Each of the two jobs of a pair has a kernel of its own, and a pair's covariance is their product: a table of pairs is a
matrix whose rows (who is slowed) and columns (who slows) are alike where the jobs are, which is what completion of matrices
in Quasar and Gavel supposes, too. A sum of products with different kernels stands for what is common to many and what is
particular to few.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, fields
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.prediction.kind_traits import KindTraits, Matrix, model_family

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class TraitScaling:
    """Centre and unit of each trait, of the kinds that a model learned from; columns that tell nothing are left out."""

    centre: Vector
    unit: Vector
    """Infinite for a column without any difference."""

    @classmethod
    def of(cls, traits: KindTraits) -> TraitScaling:
        """Mean and standard deviation of what is known."""
        known = ~np.isnan(traits.values)
        count = np.maximum(known.sum(axis=0), 1)
        centre = np.where(known, traits.values, 0.0).sum(axis=0) / count
        spread = np.sqrt((np.where(known, traits.values - centre, 0.0) ** 2).sum(axis=0) / count)
        return cls(centre, np.where(spread > 1e-9, spread, np.inf))

    def scaled(self, traits: KindTraits) -> Matrix:
        """In units of the spread from the centre; what is unknown lies at the centre."""
        values = np.where(np.isnan(traits.values), self.centre, traits.values)
        found: Matrix = (values - self.centre) / self.unit
        return found


class KindRelations(NamedTuple):
    """How each of some kinds relates to each of others."""

    distance: Matrix
    """Half the mean square difference of their traits, in units of the spread."""
    model: Matrix
    """1 for the same model, else 0; so are family and kind."""
    batch: Matrix
    """Half the square of the difference of batches, in doublings."""
    family: Matrix
    kind: Matrix


def relate_kinds(scaling: TraitScaling, some: KindTraits, others: KindTraits) -> KindRelations:
    """Both as :class:`KindTraits` with the same columns."""
    if some.names != others.names:
        raise PolicyError(f"jobs can be compared by the same traits only, not {some.names} with {others.names}")
    used = max(int(np.isfinite(scaling.unit).sum()), 1)
    apart = scaling.scaled(some)[:, None] - scaling.scaled(others)[None]
    doublings = some.log_batch[:, None] - others.log_batch[None]
    return KindRelations(
        (apart**2).sum(axis=2) / (2 * used),
        _same(some.models, others.models),
        doublings**2 / 2,
        _same(tuple(map(model_family, some.models)), tuple(map(model_family, others.models))),
        _same(some.kinds, others.kinds),
    )


def _same(some: tuple[object, ...], others: tuple[object, ...]) -> Matrix:
    return np.array([[float(one == other) for other in others] for one in some]).reshape(len(some), len(others))


@dataclass(frozen=True, slots=True)
class JobKernel:
    """How alike two jobs are in one role; all numbers are logarithms, weights relative to what all jobs have in common.

    Attributes:
        traits: weight of alike traits, with their ``traits_length`` in units of spread.
        batches: weight of the same model with a batch near by, with their ``batches_length`` in doublings.
        model, family, kind: weights of the same model, family, and kind.
    """

    traits: float = 0.0
    traits_length: float = 0.0
    batches: float = 0.0
    batches_length: float = 0.7
    model: float = -1.0
    family: float = -1.0
    kind: float = -2.0

    def parts(self, known: KindRelations) -> tuple[Matrix, ...]:
        """Covariances by traits, batches, model, family and kind; the whole is 1 more than their sum."""
        return (
            np.exp(self.traits - known.distance * np.exp(-2 * self.traits_length)),
            known.model * np.exp(self.batches - known.batch * np.exp(-2 * self.batches_length)),
            known.model * np.exp(self.model),
            known.family * np.exp(self.family),
            known.kind * np.exp(self.kind),
        )

    @property
    def own(self) -> float:
        """Variance of a job: :meth:`matrix` of it with itself."""
        return 1.0 + sum(math.exp(weight) for weight in (self.traits, self.batches, self.model, self.family, self.kind))

    def matrix(self, known: KindRelations) -> Matrix:
        """Covariances of jobs."""
        traits, batches, model, family, kind = self.parts(known)
        total: Matrix = 1.0 + traits + batches + model + family + kind
        return total

    def gradients(self, known: KindRelations) -> tuple[Matrix, ...]:
        """Derivatives of :meth:`matrix`, in the order of the fields."""
        traits, batches, model, family, kind = self.parts(known)
        by_traits = traits * known.distance * 2 * np.exp(-2 * self.traits_length)
        by_batches = batches * known.batch * 2 * np.exp(-2 * self.batches_length)
        return traits, by_traits, batches, by_batches, model, family, kind


@dataclass(frozen=True, slots=True)
class PairKernel:
    """Covariance of pairs: that of those slowed times that of those that slow them, times a (logarithmic) weight."""

    slowed: JobKernel = JobKernel()
    other: JobKernel = JobKernel()
    weight: float = -1.5

    @property
    def vector(self) -> Vector:
        """All numbers in the order of the fields."""
        return np.array([*astuple(self.slowed), *astuple(self.other), self.weight])

    @classmethod
    def of(cls, vector: Vector) -> PairKernel:
        """The reverse of :attr:`vector`."""
        count = len(fields(JobKernel))
        if len(vector) != 2 * count + 1:
            raise PolicyError(f"a kernel of pairs has {2 * count + 1} numbers, not {len(vector)}")
        numbers = [float(number) for number in vector]
        return cls(JobKernel(*numbers[:count]), JobKernel(*numbers[count:-1]), numbers[-1])
