"""Parameters of the policies that give each job GPUs of its own, as the policies' entries name them.

Those of policies that share GPUs are in :mod:`slurm_soda.policies.sharing.parameters`.
"""

from __future__ import annotations

import math

from slurm_soda.policies.baselines.backfill import DEFAULT_DEPTH
from slurm_soda.policies.baselines.gandiva import QUANTUM_S
from slurm_soda.policies.engine.run_time_estimates import ESTIMATES, LIMIT
from slurm_soda.policies.pools.layout.shares_text import SHARES_FORMAT, parse_shares
from slurm_soda.policies.pools.policy import MAX_ABORTS
from slurm_soda.policies.registry.parameters import (
    Parameter,
    integer_from,
    number_from,
    one_of,
    optional_reader,
    read_boolean,
    read_samples,
    read_thresholds,
)
from slurm_soda.policies.tiresias.policy import DEFAULT_THRESHOLDS_GPU_S, SMALL, WITHIN_QUEUE

MIN_RUN_S = Parameter(
    "min_run_s",
    60.0,
    "s",
    "a job is not preempted before it has run this long since its last start",
    "a number from 0",
    number_from(0.0),
)
THRESHOLDS_GPU_S = Parameter(
    "thresholds_gpu_s",
    DEFAULT_THRESHOLDS_GPU_S,
    "GPU s",
    "upper limits of all queues but the last",
    "an ascending list of positive numbers",
    read_thresholds,
)
WITHIN_QUEUE_ORDER = Parameter(
    "within_queue",
    SMALL,
    "name",
    "the order inside a queue: start: by first start, as in the paper; small: the same in the first "
    "queue, in later queues fewest GPUs first; submit: by submit time",
    " or ".join(WITHIN_QUEUE),
    one_of(WITHIN_QUEUE),
)
PROMOTE_KNOB = Parameter(
    "promote_knob",
    math.inf,
    "ratio",
    "a job that has waited this many times as long as it ran returns to the first queue; inf: never",
    "a number from 0, or inf",
    number_from(0.0),
)
SAMPLES_GPU_S = Parameter(
    "samples_gpu_s",
    (),
    "GPU s",
    "total service of past jobs; without any, jobs are ordered as by tiresias-las",
    "a list of positive numbers",
    read_samples,
)
ESTIMATE = Parameter(
    "estimate",
    LIMIT,
    "name",
    "what counts as a job's run time: its time limit, or the predicted rest of its run time; "
    "where one is unknown the other counts, where both are a year",
    " or ".join(ESTIMATES),
    one_of(ESTIMATES),
)
QUANTUM = Parameter(
    "quantum_s",
    QUANTUM_S,
    "s",
    "length of a time slice; slices end for all jobs at once",
    "a number from 1",
    number_from(1.0),
)
BACKFILL_DEPTH = Parameter(
    "depth",
    DEFAULT_DEPTH,
    "jobs",
    "how many jobs behind blocked ones are considered in one decision",
    "a whole number from 0",
    integer_from(0),
)
PACKLIMIT = Parameter(
    "packlimit",
    math.inf,
    "ratio",
    "jobs whose models have a larger skew are packed on the fewest nodes, others of "
    "known skew fill gaps; inf: all jobs are placed in the same way",
    "a number from 0, or inf",
    number_from(0.0),
)
TIRESIAS = (THRESHOLDS_GPU_S, WITHIN_QUEUE_ORDER, PROMOTE_KNOB, MIN_RUN_S, PACKLIMIT)

BACKFILL_RESERVATIONS = Parameter(
    "reservations",
    1,
    "jobs",
    "how many blocked jobs of a partition may not be delayed: 1 is EASY, many is like Slurm",
    "a whole number from 1",
    integer_from(1),
)
BACKFILL_WHOLE_NODES = Parameter(
    "whole_nodes",
    False,
    "yes/no",
    "a reservation keeps its nodes whole, as Slurm's does",
    "true or false",
    read_boolean,
)
BACKFILL_INTERVAL = Parameter(
    "interval_s",
    0.0,
    "s",
    "jobs behind a blocked one are considered at multiples of this (Slurm's bf_interval); 0: at every event",
    "a number from 0",
    number_from(0.0),
)
BACKFILL = (ESTIMATE, BACKFILL_DEPTH, BACKFILL_RESERVATIONS, BACKFILL_WHOLE_NODES, BACKFILL_INTERVAL)

MULTIFACTOR = (ESTIMATE, BACKFILL_DEPTH, BACKFILL_RESERVATIONS)

POOLS = (
    Parameter(
        "cpu_cores",
        None,
        "cores",
        "cores of each GPU node that CPU jobs may hold without borrowing; below 1 a part "
        "of the node's; unset: what is left when each GPU has 5",
        "a number from 0",
        optional_reader(number_from(0.0)),
    ),
    Parameter(
        "large_nodes",
        None,
        "nodes",
        "nodes of each class that are the large pool's; below 1 a part of the class's; "
        "unset: a quarter from 16 nodes on, else none",
        "a number from 0",
        optional_reader(number_from(0.0)),
    ),
    Parameter(
        "shares",
        (),
        "shares",
        "how node classes are divided, as `sodactl pools plan` derives it from history; "
        "cpu_cores and large_nodes go before it",
        SHARES_FORMAT,
        parse_shares,
    ),
    Parameter(
        "max_aborts",
        MAX_ABORTS,
        "requeues",
        "so often a job gives back what it borrowed; then it borrows no more",
        "a whole number from 0",
        integer_from(0),
    ),
)
