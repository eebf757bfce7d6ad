"""Ways to predict interference: the mean, those that AIP chooses from, and more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import numpy as np

from slurm_soda.learning import matrix_completion, regressions
from slurm_soda.learning.gaussian_process import fit_hyperparameters
from slurm_soda.learning.regressions import RegressionMethod, fit_regression
from slurm_soda.policies.sharing.prediction.gaussian_process import GaussianPosterior, MeasuredPairs
from slurm_soda.policies.sharing.prediction.pair_model import PairModel
from slurm_soda.policies.sharing.prediction.pair_regression import FeatureView

MAX_PAIRS = 3000
"""Measurements that a Gaussian process takes in: 100 MiB and some seconds."""
SEED = 1
Method = Callable[[MeasuredPairs], PairModel]


def _regression(view: FeatureView, fit: regressions.FitRegressor) -> Method:
    return partial(fit_regression, kind=RegressionMethod(view, fit))


def fit_gaussian(pairs: MeasuredPairs) -> PairModel:
    """A Gaussian process over pairs of jobs; over :data:`MAX_PAIRS`, drawn, where there are more."""
    some = (
        pairs.rows(np.sort(np.random.default_rng(SEED).permutation(len(pairs))[:MAX_PAIRS]))
        if len(pairs) > MAX_PAIRS
        else pairs
    )
    return GaussianPosterior(fit_hyperparameters(some), some)


AIP: Mapping[str, Method] = MappingProxyType(
    {
        "linear": _regression(FeatureView.TRAITS, regressions.fit_linear),
        "svr": _regression(FeatureView.TRAITS, regressions.fit_support_vectors),
        "tree": _regression(FeatureView.TRAITS, regressions.fit_tree),
        "neighbours": _regression(FeatureView.TRAITS, regressions.fit_neighbours),
    }
)
"""Those of OJPP's Section 4.5, on what can be observed of each job alone."""


def choose_by_aip(pairs: MeasuredPairs) -> PairModel:
    """Of :data:`AIP` the one of least mean absolute error on pairs left out; of equals the first."""
    fitted = [fit(pairs) for fit in AIP.values()]
    return min(fitted, key=lambda model: getattr(model, "deviation", float("inf")))


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "mean": _regression(FeatureView.TRAITS, regressions.fit_mean),
        **AIP,
        "aip": choose_by_aip,
        "boosting": _regression(FeatureView.NAMED, regressions.fit_boosting),
        "forest": _regression(FeatureView.NAMED, regressions.fit_forest),
        "completion": _regression(FeatureView.KINDS, matrix_completion.complete_matrix),
        "gaussian": fit_gaussian,
    }
)
"""All ways, by name."""

DEFAULT_METHOD = "gaussian"
