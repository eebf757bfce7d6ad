"""Every way to predict interference: what is kept of it predicts as scikit-learn does, and all learn something."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

from benchmarks.predictors import regressions
from benchmarks.predictors.judging import covered, error_of_slowdown, without_each_model
from benchmarks.predictors.methods import METHODS
from slurm_soda.learning.held_out_errors import hold_out_pairs
from slurm_soda.policies.sharing.prediction.predicted_interference import collect_pairs
from tests.learning.tables import table

TABLE = table(noise=0.02)
RNG = np.random.default_rng(7)
ROWS, TARGETS, NEW = RNG.normal(size=(120, 4)), RNG.normal(size=120), RNG.normal(size=(60, 4))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (regressions.linear, LinearRegression()),
        (regressions.support_vectors, SVR(C=10.0, epsilon=0.01)),
        (regressions.tree, DecisionTreeRegressor(min_samples_leaf=2, random_state=1)),
        (regressions.neighbours, KNeighborsRegressor(5, weights="distance")),
        (
            regressions.boosting,
            GradientBoostingRegressor(n_estimators=200, max_depth=4, learning_rate=0.1, subsample=0.7, random_state=1),
        ),
        (regressions.forest, ExtraTreesRegressor(100, max_features=0.5, random_state=1)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_numbers_alone_predict_as_scikit_learn(ours: regressions.Fit, theirs: Any) -> None:
    kept, theirs = ours(ROWS, TARGETS), theirs.fit(ROWS, TARGETS)
    for rows in (NEW, ROWS):
        np.testing.assert_allclose(kept.values(rows), theirs.predict(rows), rtol=1e-9, atol=1e-9)


@pytest.mark.thorough
def test_each_way_but_the_mean_learns_something() -> None:
    pairs = collect_pairs(TABLE, "fast")
    off = {name: error_of_slowdown(hold_out_pairs(pairs, METHODS[name], 3)) for name in METHODS if name != "aip"}
    assert all(off[name] < 0.7 * off["mean"] for name in off if name != "mean"), off
    assert off["gaussian"] == min(off.values()), off


def test_a_model_that_nobody_saw_is_predicted_by_what_it_does_alone() -> None:
    judged = without_each_model(collect_pairs(TABLE, "fast"), METHODS["gaussian"])
    assert np.isfinite(judged.log_mean).all()
    assert covered(judged, 10) > 0.9
