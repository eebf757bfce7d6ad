"""Regressions that scikit-learn fits, computed from their numbers alone: what is stored needs no library to be used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from slurm_soda.policies.sharing.prediction.covariance_kernels import Vector
from slurm_soda.policies.sharing.prediction.kind_traits import Matrix
from slurm_soda.policies.snapshot import IntColumn


class Regressor(Protocol):
    """Something that makes one number of each row of features."""

    def values(self, rows: Matrix) -> Vector:
        """One value a row."""
        ...


@dataclass(frozen=True, slots=True)
class Linear:
    """A weighted sum; without weights, a constant."""

    constant: float
    weights: Vector

    def values(self, rows: Matrix) -> Vector:
        found: Vector = self.constant + rows @ self.weights
        return found


@dataclass(frozen=True, slots=True)
class SupportVectors:
    """Support vector regression with radial basis functions."""

    vectors: Matrix
    weights: Vector
    constant: float
    gamma: float

    def values(self, rows: Matrix) -> Vector:
        found: Vector = self.constant + np.exp(-self.gamma * _square_distances(rows, self.vectors)) @ self.weights
        return found


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Mean of the nearest of what was measured, weighted by the reciprocal of the distance."""

    points: Matrix
    targets: Vector
    count: int

    def values(self, rows: Matrix) -> Vector:
        distances = np.sqrt(_square_distances(rows, self.points))
        nearest = np.argsort(distances, axis=1, kind="stable")[:, : self.count]
        apart = np.take_along_axis(distances, nearest, axis=1)
        exact = np.asarray(apart <= 1e-12, dtype=np.float64)
        weights = np.where(exact.max(axis=1)[:, None] > 0, exact, 1.0 / np.maximum(apart, 1e-12))
        found: Vector = (self.targets[nearest] * weights).sum(axis=1) / weights.sum(axis=1)
        return found


@dataclass(frozen=True, slots=True)
class Trees:
    """Decision trees, weighted and added: one tree, a forest, or boosted ones.

    Nodes of all trees lie one after the other; ``feature`` is -1 at a leaf, else the row goes ``left`` where its feature,
    rounded to 32 bits as scikit-learn does, is at most the threshold.
    """

    roots: IntColumn
    feature: IntColumn
    threshold: Vector
    left: IntColumn
    right: IntColumn
    value: Vector
    constant: float = 0.0

    def values(self, rows: Matrix) -> Vector:
        rounded = rows.astype(np.float32).astype(np.float64)
        total = np.full(len(rows), self.constant)
        for root in self.roots.tolist():
            total += self._one(root, rounded)
        return total

    def _one(self, root: int, rows: Matrix) -> Vector:
        node = np.full(len(rows), root)
        number = np.arange(len(rows))
        while True:
            feature = self.feature[node]
            inner = feature >= 0
            if not inner.any():
                found: Vector = self.value[node]
                return found
            goes_left = rows[number, np.maximum(feature, 0)] <= self.threshold[node]
            node = np.where(inner, np.where(goes_left, self.left[node], self.right[node]), node)


@dataclass(frozen=True, slots=True)
class Factors:
    """A completed matrix: how much each kind suffers and presses, and what goes with both (low rank).

    ``features`` starts with the numbers of both kinds; a kind beyond the known ones is an average one.
    """

    constant: float
    suffers: Vector
    presses: Vector
    rows: Matrix
    """By kind that is slowed; as many columns as the rank."""
    columns: Matrix

    def values(self, rows: Matrix) -> Vector:
        slowed, other = self._number(rows[:, 0]), self._number(rows[:, 1])
        padded = [np.append(values, 0.0) for values in (self.suffers, self.presses)]
        wide = [np.vstack((values, np.zeros(values.shape[1]))) for values in (self.rows, self.columns)]
        both = (wide[0][slowed] * wide[1][other]).sum(axis=1)
        found: Vector = self.constant + padded[0][slowed] + padded[1][other] + both
        return found

    def _number(self, column: Vector) -> IntColumn:
        known = (column >= 0) & (column < len(self.suffers))
        found: IntColumn = np.where(known, column, len(self.suffers)).astype(np.int64)
        return found


def _square_distances(some: Matrix, others: Matrix) -> Matrix:
    found: Matrix = ((some[:, None] - others[None]) ** 2).sum(axis=2)
    return found
