"""What a preemption gains for those that wait, and what it takes from who is preempted.

With G GPUs and jobs in the order of their service S (GPUs x rank), let a running job i keep its GPUs although the waiting
jobs k go before it. Each of them ends later by what i still needs, spread over the cluster: S_i / G; and i ends earlier by
what they need: the sum of S_k / G. So to preempt i gains the sum over these k of (S_i - S_k) / G.

It costs what i must do anew, p seconds on each of its g_i GPUs: i itself ends p later, and each of the n jobs that wait ends
g_i p / G later: p (1 + g_i n / G).

With a host its guests leave, at the same price each. That they lose a place costs nothing more: who takes the GPUs may
have guests.
"""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn

_UNKNOWN_GPU_S = 1e12
"""In place of a service that nobody knows."""


def sum_shorter(service: FloatColumn, waiting_service: FloatColumn) -> FloatColumn:
    """Sum of S - S_k over the waiting jobs k that go before each of some jobs; by columns of services in GPU seconds.

    O((jobs + waiting) log waiting).
    """
    waiting = np.sort(np.fmin(waiting_service, _UNKNOWN_GPU_S))
    service = np.fmin(service, _UNKNOWN_GPU_S)
    past = np.concatenate(([0.0], np.cumsum(waiting)))
    before = np.searchsorted(waiting, service, side="left")
    found: FloatColumn = before * service - past[before]
    return found
