"""The Gittins index of attained service, from a sample of the total service of past jobs."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn


def compute_gittins_index(
    attained_gpu_s: FloatColumn, quantum_gpu_s: FloatColumn, samples_gpu_s: FloatColumn
) -> FloatColumn:
    """P(S - a <= D | S > a) / E[min(S - a, D) | S > a] for each job (Pseudocode 1, line 11, at a given quantum D).

    ``samples_gpu_s`` is the total service S of past jobs in ascending order; ``quantum_gpu_s`` is D, positive, infinity
    allowed. Larger is better. 0 where no past job had more service than a: nothing is known of such a job. Per GPU
    second; O((jobs + samples) log samples).

    With n jobs in (a, a + D], their sum of S - a, and m jobs beyond: n / (sum + D m).
    """
    return _indices(attained_gpu_s, quantum_gpu_s, samples_gpu_s, _sums(samples_gpu_s))


def _sums(samples_gpu_s: FloatColumn) -> FloatColumn:
    """Sum of the smallest 0, 1, 2 ... samples."""
    return np.concatenate(([0.0], np.cumsum(samples_gpu_s)))


def _indices(
    attained_gpu_s: FloatColumn, quantum_gpu_s: FloatColumn | float, samples_gpu_s: FloatColumn, sums: FloatColumn
) -> FloatColumn:
    above = np.searchsorted(samples_gpu_s, attained_gpu_s, side="right")
    within = np.searchsorted(samples_gpu_s, attained_gpu_s + quantum_gpu_s, side="right")
    ending = within - above
    beyond = len(samples_gpu_s) - within
    spent = sums[within] - sums[above] - ending * attained_gpu_s
    # An infinite quantum leaves nobody beyond it: infinity times zero must count as zero.
    spent = spent + np.where(beyond > 0, quantum_gpu_s, 0.0) * beyond
    index: FloatColumn = np.zeros(len(attained_gpu_s))
    np.divide(ending, spent, out=index, where=(ending > 0) & (spent > 0))
    return index


class GittinsTable:
    """The same index, time and again by the same samples."""

    def __init__(self, samples_gpu_s: FloatColumn) -> None:
        """``samples_gpu_s`` is in ascending order."""
        self._columns = (samples_gpu_s, _sums(samples_gpu_s))
        self._samples: list[float] = samples_gpu_s.tolist()
        self._sums: list[float] = self._columns[1].tolist()

    def indices(self, attained_gpu_s: FloatColumn, quantum_gpu_s: float) -> FloatColumn:
        """As :func:`compute_gittins_index`, to the bit; O(jobs log samples)."""
        return _indices(attained_gpu_s, quantum_gpu_s, *self._columns)

    def index(self, attained_gpu_s: float, quantum_gpu_s: float) -> float:
        """The same of one job; O(log samples)."""
        samples, sums = self._samples, self._sums
        above = bisect_right(samples, attained_gpu_s)
        within = bisect_right(samples, attained_gpu_s + quantum_gpu_s, lo=above)
        ending, beyond = within - above, len(samples) - within
        spent = sums[within] - sums[above] - ending * attained_gpu_s
        if beyond:
            spent += quantum_gpu_s * beyond
        return ending / spent if ending and spent > 0 else 0.0
