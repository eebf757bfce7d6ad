"""Which policies are tried, with which parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.sharing.snapshot import SharesWherePossiblePolicy, SharingPolicy
from slurm_soda.simulator.runs.policy_choice import PolicyChoice, service_gpu_s
from slurm_soda.simulator.workload import Workload

SLURM_TURN_S = 1.0
"""Slurm looks for jobs to start behind blocked ones at intervals (bf_interval, usually half a minute): a second at the
least. Accounting, in whole seconds, shows no more."""
PRESENT_STAND_INS: tuple[PolicyChoice, ...] = (
    PolicyChoice("backfill", {"reservations": 10, "whole_nodes": True, "interval_s": SLURM_TURN_S}),
    PolicyChoice("multifactor", {"reservations": 10}),
    PolicyChoice("fifo"),
)
"""What a Slurm site may be like; the one that comes closest to what was observed stands for the present. Slurm's backfill
keeps room, as whole nodes, for every blocked job that it looks at, of which the first ones matter; ``multifactor`` has
Slurm's priorities as well, as far as the site is described."""
TRIED_POLICIES = ("soda", "tiresias-las", "tiresias-gittins")
"""What could be turned on."""
BOUND_POLICY = "srsf"
"""What somebody could do who knew how long jobs run."""
POLICIES_BY_RUN_TIME = ("soda", "sjf", "srtf", "srsf")
"""Policies that need run times: they are told what sodad would predict from the jobs that have ended so far."""
TUNED_POLICY = "tiresias-las"
"""The policy whose thresholds are looked for in the trace."""

RESTART_S = 62.0
"""Tiresias' testbed lost so much at each of its 221 preemptions (13 724 s together)."""
_RESTART_PART = 0.1
"""Whoever checkpoints chooses a checkpoint that costs little: not more than this part of the mean run time."""
_MIN_RUN_S = 60.0
"""sodad's own default."""
_MIN_RUN_RESTARTS = 4.0
"""A job that was started again shall at least work so many times as long as its start took."""
_QUANTILES = ((0.7,), (0.8,), (0.9,), (0.5, 0.9))


def lets_jobs_share(name: str) -> bool:
    """Whether a policy lets jobs share GPUs."""
    return isinstance(make_policy(name), SharingPolicy)


def needs_sharing(name: str) -> bool:
    """Whether a policy is only tried where jobs share GPUs."""
    return lets_jobs_share(name) and not isinstance(make_policy(name), SharesWherePossiblePolicy)


def likely_restart_s(workload: Workload) -> float:
    """What a restart may cost where nobody says: as at Tiresias, but little beside the mean run time of GPU jobs."""
    run_s = workload.run_s[workload.gpus > 0]
    return min(RESTART_S, _RESTART_PART * float(run_s.mean())) if len(run_s) else RESTART_S


def likely_min_run_s(restart_s: float) -> float:
    """Run time before a job may be preempted: sodad's default, or less where restarts are cheap."""
    return min(_MIN_RUN_S, round_to_two_digits(_MIN_RUN_RESTARTS * restart_s))


def threshold_choices(workload: Workload, fixed: Mapping[str, Any]) -> tuple[PolicyChoice, ...]:
    """:data:`TUNED_POLICY` with queues whose borders are quantiles of the jobs' own service, and ``fixed`` parameters."""
    service = service_gpu_s(workload)
    if not len(service) or "thresholds_gpu_s" in fixed:
        return ()
    tried: dict[tuple[float, ...], None] = {}
    for parts in _QUANTILES:
        borders = tuple(sorted({round_to_two_digits(float(np.quantile(service, part))) for part in parts}))
        if borders[0] > 0:
            tried[borders] = None
    return tuple(PolicyChoice(TUNED_POLICY, {**fixed, "thresholds_gpu_s": list(borders)}) for borders in tried)


def with_parameters(
    choices: Sequence[PolicyChoice], given: Mapping[str, Mapping[str, Any]]
) -> tuple[PolicyChoice, ...]:
    """The choices with what a person set for their policies."""
    return tuple(PolicyChoice(choice.name, {**choice.parameters, **given.get(choice.name, {})}) for choice in choices)


def round_to_two_digits(value: float) -> float:
    """Two digits are enough for people."""
    if not value > 0 or not math.isfinite(value):
        return 0.0
    places = 1 - math.floor(math.log10(value))
    return round(value, places)
