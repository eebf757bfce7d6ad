"""Parameters of policies that share GPUs: shortest first, by OJPP's bounds, by occupancy."""

from __future__ import annotations

from slurm_soda.policies.registry.parameters import (
    Parameter,
    finite_from,
    integer_from,
    number_from,
    number_within,
    one_of,
    optional_reader,
    read_boolean,
)
from slurm_soda.policies.sharing.arithmetic.sharing_decision import BOUND_CAUTION as ERRORS
from slurm_soda.policies.sharing.colocation.policy import MAX_JOBS_PER_GPU as MOST_COLOCATED
from slurm_soda.policies.sharing.colocation.policy import SPEEDUP_MODELS
from slurm_soda.policies.sharing.ojpp.policy import MAX_JOBS_PER_GPU, ORDERS, SUBMIT
from slurm_soda.policies.sharing.ojpp.strategies import STRATEGIES
from slurm_soda.policies.sharing.sjf.policy import MAX_JOBS_PER_GPU as MOST_SHARING

_BOUND = "a number from 0, or inf"
_COUNT = "a whole number from 1"
_MOST_CHANGE_S = 1e12
"""More than the costs of any simulation together; times GPUs and waiting jobs it stays finite."""
_CHANGE = f"a number from 0 to {_MOST_CHANGE_S:g}"
CAUTION = Parameter(
    "caution",
    0.0,
    "errors",
    "slowdowns count as so many of their expected errors worse than known",
    "a finite number from 0",
    finite_from(0.0),
)
BOUND_CAUTION = Parameter(
    "bound_caution",
    ERRORS,
    "errors",
    "against --soda-max-slowdown, slowdowns count as so many of their expected errors worse than known",
    "a finite number from 0",
    finite_from(0.0),
)
OJPP = (
    Parameter(
        "strategy",
        "ojpp",
        "name",
        "which bounds count, and how a GPU is chosen ([O], Table 4)",
        " or ".join(STRATEGIES),
        one_of(STRATEGIES),
    ),
    Parameter(
        "collision",
        0.1,
        "probability",
        "tau: at most so likely two jobs on a GPU need their peak memory at once",
        _BOUND,
        number_from(0.0),
    ),
    Parameter(
        "interference",
        0.2,
        "ratio",
        "theta: on a GPU nobody may be slowed more, 0.2 for 20 % longer",
        _BOUND,
        number_from(0.0),
    ),
    Parameter(
        "balance", 0.1, "ratio", "theta': slowdowns of a job's workers may differ by so much", _BOUND, number_from(0.0)
    ),
    Parameter("jobs_per_gpu", MAX_JOBS_PER_GPU, "jobs", "most jobs on one GPU", _COUNT, integer_from(1)),
    Parameter(
        "order",
        SUBMIT,
        "name",
        "who is placed first: submit: by submit time; paper: as the strategy orders all that wait",
        " or ".join(ORDERS),
        one_of(ORDERS),
    ),
    CAUTION,
    Parameter(
        "opportunistic",
        False,
        "yes/no",
        "peaks of memory may meet where it is known how memory comes and goes; without it a job counts with its peak",
        "true or false",
        read_boolean,
    ),
)
OJPAP = (
    *OJPP,
    Parameter(
        "weight",
        0.8,
        "ratio",
        "what the past counts in smoothed interference; 0: nothing",
        "a number from 0 to below 1",
        lambda value: _below_one(number_from(0.0)(value)),
    ),
    Parameter(
        "interval_s", 60.0, "s", "how often interference is observed", "a finite number from 1", finite_from(1.0)
    ),
    Parameter("move_s", 60.0, "s", "what moving a job costs each of its GPUs", "a number from 0", number_from(0.0)),
    Parameter("budget_gpu_s", 3600.0, "GPU s", "most allowed cost of all moves at once", _BOUND, number_from(0.0)),
    Parameter(
        "min_run_s",
        600.0,
        "s",
        "a job is not moved before it has run so long since its last start",
        "a number from 0",
        number_from(0.0),
    ),
)
COLOCATION = (
    Parameter(
        "jobs_per_gpu",
        MOST_COLOCATED,
        "jobs",
        "most jobs on one GPU; the thesis measured two and three",
        _COUNT,
        integer_from(1),
    ),
    Parameter(
        "mps",
        True,
        "yes/no",
        "kernels of several jobs run at once, so that occupancy adds up; without MPS they take "
        "turns, so that busy time does",
        "true or false",
        read_boolean,
    ),
    Parameter(
        "speedup_model",
        SPEEDUP_MODELS[0],
        "name",
        "what predicts whether sharing gains: a limit of summed occupancy, or a speed-up "
        "linear in it; both are fitted to what is known of pairs",
        " or ".join(SPEEDUP_MODELS),
        one_of(SPEEDUP_MODELS),
    ),
    Parameter(
        "limit",
        None,
        "GPUs",
        "most summed occupancy, instead of a fitted limit",
        "a number from 0",
        optional_reader(number_from(0.0)),
    ),
    BOUND_CAUTION,
)
JOBS_PER_GPU = Parameter(
    "jobs_per_gpu",
    MOST_SHARING,
    "jobs",
    "most jobs on one GPU",
    "a whole number from 1",
    integer_from(1),
)
SHARING_SJF_PARAMETERS = (JOBS_PER_GPU, CAUTION, BOUND_CAUTION)
CHANGE_S = Parameter(
    "change_s",
    0.0,
    "s",
    "what is lost when jobs change places: a running job moves only where that pays",
    _CHANGE,
    number_within(0.0, _MOST_CHANGE_S),
)


def _below_one(value: float) -> float:
    if value >= 1.0:
        raise ValueError(value)
    return value


SODA_PARAMETERS = (
    Parameter(
        "change_s",
        60.0,
        "s",
        "what a preemption costs on each GPU: to save, to start again, and work since the last checkpoint",
        _CHANGE,
        number_within(0.0, _MOST_CHANGE_S),
    ),
    Parameter(
        "resolution",
        1.75,
        "ratio",
        "a running job gives way only to jobs whose learned rank is so many times smaller: half of all predictions err less",
        "a number from 1, or inf",
        number_from(1.0),
    ),
    Parameter(
        "moves",
        True,
        "yes/no",
        "whether running jobs are preempted to go on elsewhere, so that one that waits for whole nodes fits",
        "true or false",
        read_boolean,
    ),
)
