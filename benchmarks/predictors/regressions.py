"""Regressions of scikit-learn over pairs, and what is kept of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.predictors.regression import Features, Regression, View
from benchmarks.predictors.regressors import Linear, Neighbours, Regressor, SupportVectors, Trees
from slurm_soda.learning.folds import folds_by_pair
from slurm_soda.learning.libraries import import_library
from slurm_soda.policies.sharing.prediction.covariance_kernels import TraitScaling, Vector
from slurm_soda.policies.sharing.prediction.gaussian_process import MeasuredPairs
from slurm_soda.policies.sharing.prediction.kind_traits import Matrix

Fit = Callable[[Matrix, Vector], Regressor]
SEED = 1
INNER_FOLDS = 5


class Kind(NamedTuple):
    """A way to make a regression of rows and targets, and what it sees of a pair."""

    view: View
    fit: Fit


def fit_regression(pairs: MeasuredPairs, kind: Kind) -> Regression:
    """With the deviation of pairs that were left out, both directions of each.

    Raises:
        LearningError: scikit-learn is not installed.
    """
    features = Features(kind.view, TraitScaling.of(pairs.traits), pairs.traits)
    rows = features.rows(pairs.traits.rows(pairs.slowed), pairs.traits.rows(pairs.other))
    groups = pairs.unordered()
    fold = folds_by_pair(groups, min(INNER_FOLDS, int(groups.max()) + 1))
    left_out = np.empty(len(pairs))
    for number in range(int(fold.max()) + 1):
        out = fold == number
        left_out[out] = kind.fit(rows[~out], pairs.log_xi[~out]).values(rows[out])
    deviation = float(np.sqrt(np.pi / 2) * np.abs(left_out - pairs.log_xi).mean())
    return Regression(features, kind.fit(rows, pairs.log_xi), deviation)


def mean(rows: Matrix, targets: Vector) -> Regressor:
    """The mean slowdown, whoever meets."""
    return Linear(float(np.log(np.exp(targets).mean())), np.zeros(rows.shape[1]))


def linear(rows: Matrix, targets: Vector) -> Regressor:
    """Ordinary least squares."""
    found = import_library("sklearn.linear_model").LinearRegression().fit(rows, targets)
    return Linear(float(found.intercept_), np.asarray(found.coef_, np.float64))


def support_vectors(rows: Matrix, targets: Vector) -> Regressor:
    """Support vector regression, radial basis functions; an error of 1 % costs nothing."""
    found = import_library("sklearn.svm").SVR(C=10.0, epsilon=0.01).fit(rows, targets)
    gamma = 1.0 / (rows.shape[1] * rows.var()) if rows.var() else 1.0
    return SupportVectors(
        np.asarray(found.support_vectors_), np.asarray(found.dual_coef_[0]), float(found.intercept_[0]), float(gamma)
    )


def tree(rows: Matrix, targets: Vector) -> Regressor:
    """One regression tree, of absolute errors, with two measurements a leaf at least."""
    made = import_library("sklearn.tree").DecisionTreeRegressor(min_samples_leaf=2, random_state=SEED)
    return trees([made.fit(rows, targets).tree_], weight=1.0)


def neighbours(rows: Matrix, targets: Vector) -> Regressor:
    """The five nearest, weighted by distance."""
    return Neighbours(rows, targets, min(5, len(targets)))


def boosting(rows: Matrix, targets: Vector) -> Regressor:
    """Gradient boosting of squares."""
    made = import_library("sklearn.ensemble").GradientBoostingRegressor(
        n_estimators=200, max_depth=4, learning_rate=0.1, subsample=0.7, random_state=SEED
    )
    found = made.fit(rows, targets)
    constant = float(np.ravel(found.init_.constant_)[0])
    return trees([one.tree_ for one in found.estimators_[:, 0]], weight=float(found.learning_rate), constant=constant)


def forest(rows: Matrix, targets: Vector) -> Regressor:
    """Extremely randomised trees."""
    made = import_library("sklearn.ensemble").ExtraTreesRegressor(100, max_features=0.5, random_state=SEED)
    found = made.fit(rows, targets).estimators_
    return trees([one.tree_ for one in found], weight=1.0 / len(found))


def trees(found: Sequence[Any], weight: float, constant: float = 0.0) -> Trees:
    """Trees of scikit-learn, one after the other."""
    roots = np.cumsum([0, *(one.node_count for one in found)]).astype(np.int64)
    starts = roots[:-1]
    leaf = np.concatenate([one.children_left < 0 for one in found])

    def joined(name: str) -> np.ndarray[Any, Any]:
        return np.concatenate([getattr(one, name) + start for one, start in zip(found, starts, strict=True)])

    return Trees(
        starts,
        np.where(leaf, -1, np.concatenate([one.feature for one in found])).astype(np.int64),
        np.concatenate([one.threshold for one in found]).astype(np.float64),
        joined("children_left").astype(np.int64),
        joined("children_right").astype(np.int64),
        weight * np.concatenate([one.value[:, 0, 0] for one in found]).astype(np.float64),
        constant,
    )
