"""Ways to predict interference: the mean, those that AIP chooses from, and more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from benchmarks.predictors import completion, regressions
from benchmarks.predictors.regression import View
from benchmarks.predictors.regressions import Kind, fit_regression
from slurm_soda.learning.gaussian_process import fit_gaussian
from slurm_soda.policies.sharing.prediction.gaussian_process import MeasuredPairs
from slurm_soda.policies.sharing.prediction.pair_model import PairModel

Method = Callable[[MeasuredPairs], PairModel]


def _regression(view: View, fit: regressions.Fit) -> Method:
    return partial(fit_regression, kind=Kind(view, fit))


AIP: Mapping[str, Method] = MappingProxyType(
    {
        "linear": _regression(View.TRAITS, regressions.linear),
        "svr": _regression(View.TRAITS, regressions.support_vectors),
        "tree": _regression(View.TRAITS, regressions.tree),
        "neighbours": _regression(View.TRAITS, regressions.neighbours),
    }
)
"""Those of OJPP's Section 4.5, on what can be observed of each job alone."""


def aip(pairs: MeasuredPairs) -> PairModel:
    """Of :data:`AIP` the one of least mean absolute error on pairs left out; of equals the first."""
    fitted = [fit(pairs) for fit in AIP.values()]
    return min(fitted, key=lambda model: getattr(model, "deviation", float("inf")))


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "mean": _regression(View.TRAITS, regressions.mean),
        **AIP,
        "aip": aip,
        "boosting": _regression(View.NAMED, regressions.boosting),
        "forest": _regression(View.NAMED, regressions.forest),
        "completion": _regression(View.KINDS, completion.complete),
        "gaussian": fit_gaussian,
    }
)
"""All ways, by name."""

CHOSEN = "gaussian"
"""The one that the product uses."""
