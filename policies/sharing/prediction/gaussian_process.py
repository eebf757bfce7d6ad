"""Interference of pairs as a Gaussian process: a prediction with its spread, and closed-form tests without a pair.

Rasmussen, Williams: Gaussian Processes for Machine Learning (2006), Algorithm 2.1 (prediction) and Section 5.4.2 (leaving
out).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.prediction.covariance_kernels import (
    KindRelations,
    PairKernel,
    TraitScaling,
    Vector,
    relate_kinds,
)
from slurm_soda.policies.sharing.prediction.kind_traits import KindTraits, Matrix
from slurm_soda.policies.snapshot import IntColumn

JITTER = 1e-8


@dataclass(frozen=True, slots=True)
class MeasuredPairs:
    """Measured slowdowns of pairs that fit: ``traits`` row ``slowed[p]`` beside row ``other[p]``."""

    traits: KindTraits
    slowed: IntColumn
    other: IntColumn
    log_xi: Vector

    def __post_init__(self) -> None:
        if not len(self.slowed) == len(self.other) == len(self.log_xi):
            raise PolicyError("pairs need as many slowed jobs as others and slowdowns")

    def __len__(self) -> int:
        return len(self.slowed)

    def rows(self, chosen: IntColumn | np.ndarray[tuple[int], np.dtype[np.bool_]]) -> MeasuredPairs:
        """Some of the pairs, of the same jobs."""
        return MeasuredPairs(self.traits, self.slowed[chosen], self.other[chosen], self.log_xi[chosen])

    def unordered(self) -> IntColumn:
        """A number for each pair, the same for both of its directions."""
        low, high = np.minimum(self.slowed, self.other), np.maximum(self.slowed, self.other)
        found: IntColumn = np.unique(low * len(self.traits) + high, return_inverse=True)[1].astype(np.int64)
        return found


@dataclass(frozen=True, slots=True)
class GaussianHyperparameters:
    """What does not follow from measured pairs by arithmetic: it is found by :mod:`slurm_soda.learning`.

    Attributes:
        kernels: their sum is the covariance.
        noise: logarithm of the variance of a measurement, as they in units of ``unit`` squared.
        centre: what log xi is where nothing is known.
        unit: standard deviation of log xi over all pairs.
        calibration: by what standard deviations have to be multiplied to be right on pairs left out.
    """

    kernels: tuple[PairKernel, ...]
    noise: float
    centre: float
    unit: float
    calibration: float = 1.0


class GaussianPosterior:
    """What measured pairs say about all others.

    Complexity: O(n^3) to make for n measured pairs (0.1 s for 650 of them), O(n^2) a prediction with its deviation.
    """

    def __init__(self, shape: GaussianHyperparameters, pairs: MeasuredPairs) -> None:
        if not len(pairs):
            raise PolicyError("interference can be learned from measured pairs only: none is given")
        self.shape, self.pairs = shape, pairs
        self.scaling = TraitScaling.of(pairs.traits)
        known = relate_kinds(self.scaling, pairs.traits, pairs.traits)
        covariance = pair_covariances(shape.kernels, known, (pairs.slowed, pairs.other), (pairs.slowed, pairs.other))
        noise = np.exp(shape.noise) + JITTER
        self._inverse = np.linalg.inv(covariance + noise * np.eye(len(pairs)))
        self._targets = (pairs.log_xi - shape.centre) / shape.unit
        self._weights = self._inverse @ self._targets

    @property
    def traits(self) -> KindTraits:
        """The kinds of jobs that it knows."""
        return self.pairs.traits

    def predict(self, slowed: KindTraits, other: KindTraits) -> tuple[Vector, Vector]:
        """Mean and standard deviation of log xi, of each row of ``slowed`` beside the same row of ``other``.

        The deviation is that of a further measurement, its noise included.
        """
        known = [relate_kinds(self.scaling, side, self.pairs.traits) for side in (slowed, other)]
        cross = np.zeros((len(slowed), len(self.pairs)))
        prior = 0.0
        for kernel in self.shape.kernels:
            by_slowed = kernel.slowed.matrix(known[0])[:, self.pairs.slowed]
            cross += np.exp(kernel.weight) * by_slowed * kernel.other.matrix(known[1])[:, self.pairs.other]
            prior += float(np.exp(kernel.weight)) * kernel.slowed.own * kernel.other.own
        explained = np.einsum("ij,jk,ik->i", cross, self._inverse, cross, optimize=True)
        variance = np.maximum(prior - explained, 0.0) + np.exp(self.shape.noise)
        return self._mean(cross @ self._weights), self._deviation(variance)

    def left_out(self, groups: IntColumn) -> tuple[Vector, Vector]:
        """Mean and deviation of log xi for each measured pair, as if no pair of its group had been measured.

        Exact; only the shape may know of the group, where it was found with it.
        """
        means, variances = np.empty(len(self.pairs)), np.empty(len(self.pairs))
        order = np.argsort(groups, kind="stable")
        ends = np.flatnonzero(np.diff(groups[order])) + 1
        for members in np.split(order, ends):
            block = np.linalg.inv(self._inverse[np.ix_(members, members)])
            means[members] = self._targets[members] - block @ self._weights[members]
            variances[members] = np.diagonal(block)
        return self._mean(means), self._deviation(variances)

    def _mean(self, standard: Vector) -> Vector:
        found: Vector = self.shape.centre + self.shape.unit * standard
        return found

    def _deviation(self, variance: Vector) -> Vector:
        found: Vector = self.shape.calibration * self.shape.unit * np.sqrt(variance)
        return found


def pair_covariances(
    kernels: Sequence[PairKernel],
    known: KindRelations,
    some: tuple[IntColumn, IntColumn],
    others: tuple[IntColumn, IntColumn],
) -> Matrix:
    """Between pairs of jobs of which ``known`` tells how they relate; pairs as rows of those slowed and of the others."""
    total = np.zeros((len(some[0]), len(others[0])))
    for kernel in kernels:
        by_slowed = kernel.slowed.matrix(known)[np.ix_(some[0], others[0])]
        total += np.exp(kernel.weight) * by_slowed * kernel.other.matrix(known)[np.ix_(some[1], others[1])]
    return total
