"""Completion of the matrix of pairs at low rank, by alternating least squares, as Quasar and Gavel complete theirs."""

from __future__ import annotations

import numpy as np

from benchmarks.predictors.regressors import Factors, Regressor
from slurm_soda.policies.sharing.prediction.covariance_kernels import Vector
from slurm_soda.policies.sharing.prediction.kind_traits import Matrix
from slurm_soda.policies.snapshot import IntColumn

RANK = 3
RIDGE = 0.1
ROUNDS = 30
SEED = 1


def complete(rows: Matrix, targets: Vector) -> Regressor:
    """Log xi = constant + how much one suffers + how much the other presses + a product of rank :data:`RANK`.

    Args:
        rows: numbers of the kinds, slowed and other.
    """
    slowed, other = rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64)
    count = int(max(slowed.max(), other.max())) + 1
    constant = float(targets.mean())
    rng = np.random.default_rng(SEED)
    # One column of each side is the other's bias, so both are found by the same least squares.
    left = np.hstack([np.zeros((count, 1)), np.ones((count, 1)), 0.1 * rng.standard_normal((count, RANK))])
    right = np.hstack([np.ones((count, 1)), np.zeros((count, 1)), 0.1 * rng.standard_normal((count, RANK))])
    for _ in range(ROUNDS):
        _solve(left, right, (slowed, other, targets - constant), fixed=1)
        _solve(right, left, (other, slowed, targets - constant), fixed=0)
    return Factors(constant, left[:, 0].copy(), right[:, 1].copy(), left[:, 2:].copy(), right[:, 2:].copy())


def _solve(side: Matrix, opposite: Matrix, measured: tuple[IntColumn, IntColumn, Vector], fixed: int) -> None:
    """One side's numbers anew, given the opposite's; the fixed column stays 1."""
    mine, its, targets = measured
    free = [column for column in range(side.shape[1]) if column != fixed]
    for number in range(len(side)):
        seen = mine == number
        design = opposite[its[seen]][:, free]
        wanted = targets[seen] - opposite[its[seen], fixed]
        side[number, free] = np.linalg.solve(design.T @ design + RIDGE * np.eye(len(free)), design.T @ wanted)
