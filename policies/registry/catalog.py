"""The one list of policies, and how they are built by name.

A new policy is one more :class:`PolicyEntry` in :data:`POLICIES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from slurm_soda.policies.baselines.backfill import DEFAULT_DEPTH, Backfill
from slurm_soda.policies.baselines.drf import Drf
from slurm_soda.policies.baselines.fifo import Fifo
from slurm_soda.policies.baselines.gandiva import QUANTUM_S, Gandiva
from slurm_soda.policies.baselines.kelp_fifo import KelpFifo
from slurm_soda.policies.baselines.multifactor import MAX_AGE_S, Multifactor
from slurm_soda.policies.baselines.sort_key import SortKeyPolicy
from slurm_soda.policies.engine.run_time_estimates import ESTIMATES, LIMIT
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.pools.layout.shares_text import SHARES_FORMAT, parse_shares
from slurm_soda.policies.pools.policy import MAX_ABORTS, Coda
from slurm_soda.policies.registry.named import find_named, names_of, read_values
from slurm_soda.policies.registry.parameters import (
    Parameter,
    finite_from,
    integer_from,
    number_from,
    one_of,
    optional_reader,
    read_boolean,
    read_samples,
    read_thresholds,
)
from slurm_soda.policies.sharing.colocation.policy import Colocation
from slurm_soda.policies.sharing.ojpp.policy import Ojpap, Ojpp
from slurm_soda.policies.sharing.parameters import BOUND_CAUTION, CAUTION, COLOCATION, DAYTIME, OJPAP, OJPP
from slurm_soda.policies.sharing.sjf.policy import MAX_JOBS_PER_GPU, SJF_BSBF, SJF_FFS, SharingSjf
from slurm_soda.policies.sharing.srsf_share.policy import SRSF_SHARE, SrsfShare
from slurm_soda.policies.tiresias.policy import DEFAULT_THRESHOLDS_GPU_S, SMALL, WITHIN_QUEUE, Tiresias


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One policy that users can name."""

    name: str
    summary: str
    source: str
    """Paper and section."""
    build: Callable[..., Policy]
    parameters: tuple[Parameter, ...] = ()


MIN_RUN_S = Parameter(
    "min_run_s", 60.0, "s", "a job is not preempted before it has run so long since its last start", "a number from 0",
    number_from(0.0),
)  # fmt: skip
THRESHOLDS_GPU_S = Parameter(
    "thresholds_gpu_s", DEFAULT_THRESHOLDS_GPU_S, "GPU s", "upper limits of all queues but the last",
    "an ascending list of positive numbers", read_thresholds,
)  # fmt: skip
WITHIN_QUEUE_ORDER = Parameter(
    "within_queue", SMALL, "name", "who goes first inside a queue: start: by first start, as in the paper; small: below "
    "the first queue, the jobs of the fewest GPUs; submit: by submit time", " or ".join(WITHIN_QUEUE), one_of(WITHIN_QUEUE),
)  # fmt: skip
PROMOTE_KNOB = Parameter(
    "promote_knob", math.inf, "ratio", "a job that waited this many times as long as it ran starts over; inf: never",
    "a number from 0, or inf", number_from(0.0),
)  # fmt: skip
SAMPLES_GPU_S = Parameter(
    "samples_gpu_s", (), "GPU s", "total service of past jobs; without any, jobs are ordered as by tiresias-las",
    "a list of positive numbers", read_samples,
)  # fmt: skip
ESTIMATE = Parameter(
    "estimate", LIMIT, "name", "what counts as a job's run time: its time limit, or the predicted rest of its run time; "
    "each stands in for the other, and a year for both", " or ".join(ESTIMATES), one_of(ESTIMATES),
)  # fmt: skip
QUANTUM = Parameter(
    "quantum_s", QUANTUM_S, "s", "length of a time slice; slices end for all jobs at once", "a number from 1",
    number_from(1.0),
)  # fmt: skip
BACKFILL_DEPTH = Parameter(
    "depth",
    DEFAULT_DEPTH,
    "jobs",
    "how many jobs behind blocked ones are looked at in one decision",
    "a whole number from 0",
    integer_from(0),
)
PACKLIMIT = Parameter(
    "packlimit", math.inf, "ratio", "jobs whose models have a larger skew are packed on the fewest nodes, others of "
    "known skew fill holes; inf: all jobs are placed alike", "a number from 0, or inf", number_from(0.0),
)  # fmt: skip
_TIRESIAS = (THRESHOLDS_GPU_S, WITHIN_QUEUE_ORDER, PROMOTE_KNOB, MIN_RUN_S, PACKLIMIT)

BACKFILL_RESERVATIONS = Parameter(
    "reservations", 1, "jobs", "how many blocked jobs of a partition nobody may delay: 1 is EASY, many is like Slurm",
    "a whole number from 1", integer_from(1),
)  # fmt: skip
BACKFILL_WHOLE_NODES = Parameter(
    "whole_nodes", False, "yes/no", "nodes are reserved whole, like Slurm does", "true or false", read_boolean,
)  # fmt: skip
BACKFILL_INTERVAL = Parameter(
    "interval_s", 0.0, "s", "jobs behind a blocked one get their turn at multiples of this (Slurm's bf_interval); 0: "
    "whenever something happens", "a number from 0", number_from(0.0),
)  # fmt: skip

_MULTIFACTOR = (
    Parameter("weight_age", 1000.0, "priority", "PriorityWeightAge", "a number from 0", number_from(0.0)),
    Parameter("weight_fairshare", 10_000.0, "priority", "PriorityWeightFairshare", "a number from 0", number_from(0.0)),
    Parameter("weight_size", 1000.0, "priority", "PriorityWeightJobSize", "a number from 0", number_from(0.0)),
    Parameter("favor_small", False, "yes/no", "small jobs get the larger size factor (PriorityFavorSmall)",
              "true or false", read_boolean),
    Parameter("max_age_s", MAX_AGE_S, "s", "waiting longer does not count (PriorityMaxAge)", "a number from 1",
              number_from(1.0)),
    ESTIMATE,
    BACKFILL_DEPTH,
    BACKFILL_RESERVATIONS,
)  # fmt: skip

_POOLS = (
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

JOBS_PER_GPU = Parameter(
    "jobs_per_gpu", MAX_JOBS_PER_GPU, "jobs", "most jobs on one GPU", "a whole number from 1", integer_from(1),
)  # fmt: skip
PAPER_ONLY = Parameter(
    "paper_only", False, "truth value", "the paper's Algorithm 1 to the letter, without what docs/policies/sjf-bsbf.md adds",
    "true or false", read_boolean,
)  # fmt: skip
CHANGE_S = Parameter(
    "change_s", 0.0, "s", "what is lost when jobs change places: a running job moves only where that pays",
    "a finite number from 0", finite_from(0.0),
)  # fmt: skip

POLICIES: tuple[PolicyEntry, ...] = (
    PolicyEntry(
        "fifo",
        "by submit time; a partition's first job that does not fit holds up the ones behind it",
        "Tiresias, Section 5.1 (YARN-CS)",
        Fifo,
    ),
    PolicyEntry(
        "fifo-skip",
        "by submit time; a job that does not fit is passed",
        "Tiresias, Section 5.1, with the skip of Pseudocode 2",
        partial(Fifo, skip=True),
    ),
    PolicyEntry(
        "backfill",
        "by submit time; jobs behind a blocked one start where they do not delay it",
        "Lifka, The ANL/IBM SP Scheduling System, 1995 (EASY); Slurm's sched/backfill",
        Backfill,
        (ESTIMATE, BACKFILL_DEPTH, BACKFILL_RESERVATIONS, BACKFILL_WHOLE_NODES, BACKFILL_INTERVAL),
    ),
    PolicyEntry(
        "multifactor",
        "by a weighted sum of age, fair share and size, with backfill; a usual Slurm site",
        "Slurm's priority/multifactor and sched/backfill",
        Multifactor,
        _MULTIFACTOR,
    ),
    PolicyEntry(
        "gandiva",
        "in turns of one time slice; preempts",
        "Gandiva, OSDI 2018 (suspend and resume)",
        Gandiva,
        (QUANTUM,),
    ),
    PolicyEntry(
        "drf",
        "the next job of the user that holds the smallest part of what it holds most of",
        "Ghodsi et al., Dominant Resource Fairness, NSDI 2011, Algorithm 1",
        Drf,
    ),
    PolicyEntry(
        "kelp-fifo",
        "by submit time, GPU jobs and jobs without GPUs in lines of their own",
        "SODA, Section VI-A (KELP-FIFO)",
        KelpFifo,
    ),
    PolicyEntry(
        "kelp-drf",
        "the next job of the user that holds the fewest GPUs",
        "SODA, Section VI-A (KELP-DRF)",
        partial(Drf, name="kelp-drf", gpus_only=True),
    ),
    PolicyEntry(
        "coda",
        "pools for CPU jobs and for GPU jobs below and from 4 GPUs, which lend each other what is idle; DRF "
        "in each; preempts borrowers",
        "SODA, Section V-C",
        Coda,
        _POOLS,
    ),
    PolicyEntry(
        "tiresias-las",
        "least attained GPU service first, in discrete queues; preempts",
        "Tiresias, Sections 3.2.2 and 3.2.3 (discretised 2D-LAS)",
        Tiresias,
        _TIRESIAS,
    ),
    PolicyEntry(
        "tiresias-gittins",
        "likeliest to end within its queue's quantum first, judged by past jobs; preempts",
        "Tiresias, Sections 3.2.2 and 3.2.3 (discretised 2D-Gittins index)",
        partial(Tiresias, name="tiresias-gittins"),
        (*_TIRESIAS, SAMPLES_GPU_S),
    ),
    PolicyEntry("sjf", "shortest predicted run time first", "Tiresias, Section 3.2", partial(SortKeyPolicy, "sjf")),
    PolicyEntry("smallest", "fewest GPUs first", "Tiresias, Section 3.2.1 (SF)", partial(SortKeyPolicy, "smallest")),
    PolicyEntry(
        "srtf",
        "shortest predicted remaining run time first; preempts",
        "Tiresias, Section 3.2.1 (SRTF)",
        partial(SortKeyPolicy, "srtf"),
        (MIN_RUN_S,),
    ),
    PolicyEntry(
        "srsf",
        "least predicted remaining GPU service first; preempts",
        "Tiresias, Section 3.2.1 (SRSF)",
        partial(SortKeyPolicy, "srsf"),
        (MIN_RUN_S,),
    ),
    PolicyEntry(
        SJF_FFS,
        "shortest predicted run time first; a job that finds no free GPUs joins the first jobs that it fits beside",
        "SJF-BSBF, Section VI-A (SJF-FFS)",
        partial(SharingSjf, SJF_FFS),
        (JOBS_PER_GPU, CAUTION, BOUND_CAUTION),
    ),
    PolicyEntry(
        SJF_BSBF,
        "shortest predicted run time first; what finds no free GPUs joins running jobs where that ends earlier on "
        "average",
        "SJF-BSBF, Section V, Algorithms 1 and 2",
        partial(SharingSjf, SJF_BSBF),
        (JOBS_PER_GPU, CAUTION, BOUND_CAUTION, PAPER_ONLY, *DAYTIME),
    ),
    PolicyEntry(
        "ojpp",
        "by submit time, onto the fewest GPUs on which collisions, interference and imbalance stay in bounds",
        "OJPP, Sections 4.2 and 4.3, Algorithms 1 to 3",
        Ojpp,
        OJPP,
    ),
    PolicyEntry(
        "ojpap",
        "as ojpp, and moves workers off GPUs where interference came to exceed the bound; preempts",
        "OJPP, Section 4.4, Algorithm 4",
        Ojpap,
        OJPAP,
    ),
    PolicyEntry(
        "colocation",
        "least occupancy first, onto the GPUs of least summed occupancy, as long as sharing is predicted to gain",
        "Co-location, Chapter 5, Algorithm 2",
        Colocation,
        COLOCATION,
    ),
    PolicyEntry(
        SRSF_SHARE,
        "least predicted remaining GPU service first, in pairs where two get more done than one; preempts",
        "docs/policies/sjf-bsbf.md",
        SrsfShare,
        (MIN_RUN_S, CHANGE_S, CAUTION),
    ),
)


def policy_names() -> tuple[str, ...]:
    """All names, in the order of :data:`POLICIES`."""
    return names_of(POLICIES)


def find_entry(name: str) -> PolicyEntry:
    """The entry of a name.

    Raises:
        PolicyError: no such policy.
    """
    return find_named(POLICIES, name, "policy", PolicyError)


def make_policy(name: str, parameters: Mapping[str, Any] | None = None) -> Policy:
    """Build a policy from its name and what a configuration file says of its parameters.

    Raises:
        PolicyError: no such policy or parameter, or a value that is not allowed.
    """
    entry = find_entry(name)
    return entry.build(**read_values(f"policy {name}", entry.parameters, parameters or {}, PolicyError))


def describe_policies() -> list[dict[str, Any]]:
    """All policies and their parameters as plain values, for ``sodactl policy``."""
    return [
        {
            "name": entry.name,
            "summary": entry.summary,
            "source": entry.source,
            "parameters": [
                {"name": p.name, "default": p.default, "unit": p.unit, "allowed": p.allowed, "doc": p.doc}
                for p in entry.parameters
            ],
        }
        for entry in POLICIES
    ]
