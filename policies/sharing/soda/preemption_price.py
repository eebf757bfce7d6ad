"""What a preemption gains for those that wait, and what it takes from who is preempted.

With G GPUs and jobs in the order of their service S (GPUs x rank), let a running job i keep its GPUs although the waiting
jobs k go before it. Each of them ends later by what i still needs, spread over the cluster: S_i / G; and i ends earlier by
what they need: the sum of S_k / G. So to preempt i gains the sum over these k of (S_i - S_k) / G.

It costs what i must do anew, p seconds on each of its g_i GPUs: i itself ends p later, and each of the n jobs that wait ends
g_i p / G later: p (1 + g_i n / G).

p is what the snapshot has learned of the job's kind, and of when it last saved its state, mixed with the policy's own
number (:mod:`slurm_soda.policies.preemption_costs.learner`); that number alone where nothing was learned. It is also what it
costs to start a job that waits, which loses no work: whoever makes his jobs' preemptions seem dear has them start later.

With a host its guests leave, at their price each. That they lose a place costs nothing more: who takes the GPUs may have
guests.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, JobState, JobTable

_UNKNOWN_GPU_S = 1e12
"""In place of a service that nobody knows."""
_STEPS_PER_OCTAVE = 3
"""Costs of a start are told apart by a quarter: each pair of a distribution and a cost takes a millisecond once."""


def find_prices_s(snapshot: ClusterSnapshot, change_s: float) -> FloatColumn:
    """By row, p of each job: seconds on each GPU; ``change_s`` for jobs of which nothing was learned."""
    return snapshot.preemption_costs.prices_s(len(snapshot.jobs), change_s)


def find_start_costs_s(prices_s: FloatColumn, change_s: float) -> FloatColumn:
    """What it costs to start jobs that wait, as their ranks count it: of few different values."""
    steps = np.round(np.log2(np.maximum(prices_s, 1.0)) * _STEPS_PER_OCTAVE) / _STEPS_PER_OCTAVE
    costs: FloatColumn = np.where(prices_s == change_s, change_s, np.where(prices_s < 1.0, 0.0, np.exp2(steps)))
    return costs


def order_by_price(service: FloatColumn, dearer_s: FloatColumn, jobs: JobTable) -> FloatColumn:
    """Services by which jobs are put in order: of two running jobs that are alike, the cheaper one makes way.

    To preempt i gains S_i / G for each job that waits, and makes each of them wait g_i p_i / G longer: so what counts of a
    running job, beside others, is S_i - g_i p_i. The part of p that is the same for all leaves the order as it is.

    Args:
        service: S of each job, by row.
        dearer_s: its price less that of a job of which nothing is known.
        jobs: the jobs.
    """
    found: FloatColumn = np.where(jobs.state == JobState.RUNNING, service - jobs.gpus * dearer_s, service)
    return found


def find_learned_prices_s(snapshot: ClusterSnapshot, prices_s: FloatColumn) -> FloatColumn:
    """By row, the price where something was learned, NaN elsewhere; empty where nothing was of any job."""
    weight = snapshot.preemption_costs.weight
    return np.where(weight > 0, prices_s, np.nan) if weight.any() else np.zeros(0)


def tell_prices(
    preempts: tuple[PreemptJob, ...], snapshot: ClusterSnapshot, learned_s: FloatColumn
) -> tuple[PreemptJob, ...]:
    """Preemptions with their prices in their reasons, where these were learned (:func:`find_learned_prices_s`)."""
    if not len(learned_s):
        return preempts
    rows = [snapshot.jobs.row(preempt.job_id) for preempt in preempts]
    return tuple(
        replace(preempt, reason=f"{preempt.reason}; to stop it costs {learned_s[row]:.0f} s on each of its GPUs")
        if learned_s[row] >= 0
        else preempt
        for preempt, row in zip(preempts, rows, strict=True)
    )


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
