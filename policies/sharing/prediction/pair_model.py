"""What all models of interference have in common."""

from __future__ import annotations

from typing import Protocol

from slurm_soda.policies.sharing.prediction.covariance_kernels import Vector
from slurm_soda.policies.sharing.prediction.kind_traits import KindTraits


class PairModel(Protocol):
    """Something that was fitted to measured pairs, and speaks of others."""

    @property
    def traits(self) -> KindTraits:
        """The kinds of jobs that it knows, measured in pairs or not."""
        ...

    def predict(self, slowed: KindTraits, other: KindTraits) -> tuple[Vector, Vector]:
        """Mean and standard deviation of log xi, of each row of ``slowed`` beside the same row of ``other``."""
        ...
