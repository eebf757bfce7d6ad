"""Ways to predict interference: the mean, those that AIP chooses from, and more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import numpy as np

from slurm_soda.learning import completion, regressions
from slurm_soda.learning.gaussian import fit_shape
from slurm_soda.learning.regressions import Kind, fit_regression
from slurm_soda.policies.sharing.predicting.gaussian import Pairs, Posterior
from slurm_soda.policies.sharing.predicting.model import PairModel
from slurm_soda.policies.sharing.predicting.regression import View

MOST = 3000
"""Measurements that a Gaussian process takes in: 100 MiB and some seconds."""
SEED = 1
Method = Callable[[Pairs], PairModel]


def _regression(view: View, fit: regressions.Fit) -> Method:
    return partial(fit_regression, kind=Kind(view, fit))


def gaussian(pairs: Pairs) -> PairModel:
    """A Gaussian process over pairs of jobs; over :data:`MOST`, drawn, where there are more."""
    some = (
        pairs.rows(np.sort(np.random.default_rng(SEED).permutation(len(pairs))[:MOST])) if len(pairs) > MOST else pairs
    )
    return Posterior(fit_shape(some), some)


AIP: Mapping[str, Method] = MappingProxyType(
    {
        "linear": _regression(View.TRAITS, regressions.linear),
        "svr": _regression(View.TRAITS, regressions.support_vectors),
        "tree": _regression(View.TRAITS, regressions.tree),
        "neighbours": _regression(View.TRAITS, regressions.neighbours),
    }
)
"""Those of OJPP's Section 4.5, on what can be observed of each job alone."""


def aip(pairs: Pairs) -> PairModel:
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
        "gaussian": gaussian,
    }
)
"""All ways, by name."""

CHOSEN = "gaussian"
