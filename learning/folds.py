"""Which measurements are kept from a model that is judged by them."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.snapshot import IntColumn


def folds_by_pair(groups: IntColumn, folds: int, seed: int = 1) -> IntColumn:
    """A fold for each measurement: both directions of a pair in the same one; as many pairs in each, give or take one."""
    order = np.random.default_rng(seed).permutation(int(groups.max()) + 1)
    found: IntColumn = (order % folds)[groups]
    return found
