"""Which running jobs may be preempted because that pays: what those gain that wait, against what it costs.

With G GPUs and jobs in the order of their service S (GPUs x rank), let a running job i keep its GPUs although the waiting
jobs k go before it. Each of them ends later by what i still needs, spread over the cluster: S_i / G; and i ends earlier by
what they need: the sum of S_k / G. So to preempt i gains the sum over these k of (S_i - S_k) / G.

It costs what i must do anew, p seconds on each of its g_i GPUs: i itself ends p later, and each of the n jobs that wait ends
g_i p / G later: p (1 + g_i n / G).
"""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.snapshot import BoolColumn, FloatColumn


def find_paying_preemptions(
    running_service: FloatColumn, price_s: FloatColumn, waiting_service: FloatColumn, total_gpus: int
) -> BoolColumn:
    """Of running jobs, by their columns; services in GPU seconds, prices (all of the formula) in seconds. O((running + waiting) log waiting)."""
    waiting = np.sort(waiting_service[np.isfinite(waiting_service)])
    past = np.concatenate(([0.0], np.cumsum(waiting)))
    before = np.searchsorted(waiting, running_service, side="left")
    gain_s = (before * np.where(np.isfinite(running_service), running_service, 1e12) - past[before]) / total_gpus
    pays: BoolColumn = gain_s > price_s
    return pays
