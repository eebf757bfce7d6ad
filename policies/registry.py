"""The one list of policies, and how they are built by name.

A new policy is one more :class:`Entry` in :data:`POLICIES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from slurm_soda.policies.arrays.policy import MAX_ABORTS, Coda
from slurm_soda.policies.arrays.shares_text import FORM, read_shares
from slurm_soda.policies.backfill import DEPTH, Backfill
from slurm_soda.policies.drf import Drf
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.estimates import ESTIMATES, LIMIT
from slurm_soda.policies.fifo import Fifo
from slurm_soda.policies.gandiva import QUANTUM_S, Gandiva
from slurm_soda.policies.kelp import KelpFifo
from slurm_soda.policies.multifactor import MAX_AGE_S, Multifactor
from slurm_soda.policies.ordered import Ordered
from slurm_soda.policies.parameters import (
    Parameter,
    ascending_thresholds,
    finite_from,
    number_from,
    one_of,
    sorted_samples,
    truth,
    unless_unset,
    whole_from,
)
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.sharing.colocation.policy import Colocation
from slurm_soda.policies.sharing.ojpp.policy import Ojpap, Ojpp
from slurm_soda.policies.sharing.parameters import BOUND_CAUTION, BY_DAY, CAUTION, COLOCATION, OJPAP, OJPP
from slurm_soda.policies.sharing.sjf.policy import BEST, FIRST, MOST, SharingSjf
from slurm_soda.policies.sharing.srsf_share.policy import NAME, SrsfShare
from slurm_soda.policies.tiresias.policy import DEFAULT_THRESHOLDS_GPU_S, SMALL, WITHIN_QUEUE, Tiresias


@dataclass(frozen=True, slots=True)
class Entry:
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
    "an ascending list of positive numbers", ascending_thresholds,
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
    "a list of positive numbers", sorted_samples,
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
    "depth", DEPTH, "jobs", "how many jobs behind blocked ones are looked at in one decision", "a whole number from 0",
    whole_from(0),
)  # fmt: skip
PACKLIMIT = Parameter(
    "packlimit", math.inf, "ratio", "jobs whose models have a larger skew are packed on the fewest nodes, others of "
    "known skew fill holes; inf: all jobs are placed alike", "a number from 0, or inf", number_from(0.0),
)  # fmt: skip
_TIRESIAS = (THRESHOLDS_GPU_S, WITHIN_QUEUE_ORDER, PROMOTE_KNOB, MIN_RUN_S, PACKLIMIT)

BACKFILL_RESERVATIONS = Parameter(
    "reservations", 1, "jobs", "how many blocked jobs of a partition nobody may delay: 1 is EASY, many is like Slurm",
    "a whole number from 1", whole_from(1),
)  # fmt: skip
BACKFILL_WHOLE_NODES = Parameter(
    "whole_nodes", False, "yes/no", "room is reserved as whole nodes, like Slurm does", "true or false", truth,
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
              "true or false", truth),
    Parameter("max_age_s", MAX_AGE_S, "s", "waiting longer does not count (PriorityMaxAge)", "a number from 1",
              number_from(1.0)),
    ESTIMATE,
    BACKFILL_DEPTH,
    BACKFILL_RESERVATIONS,
)  # fmt: skip

_ARRAYS = (
    Parameter("cpu_cores", None, "cores", "cores of each GPU node that CPU jobs may hold without borrowing; below 1 a part "
              "of the node's; unset: what is left when each GPU has 5", "a number from 0", unless_unset(number_from(0.0))),
    Parameter("large_nodes", None, "nodes", "nodes of each class that are the large array's; below 1 a part of the class's; "
              "unset: a quarter from 16 nodes on, else none", "a number from 0", unless_unset(number_from(0.0))),
    Parameter("shares", (), "shares", "how node classes are divided, as `sodactl arrays plan` derives it from history; "
              "cpu_cores and large_nodes go before it", FORM, read_shares),
    Parameter("max_aborts", MAX_ABORTS, "requeues", "so often a job gives back what it borrowed; then it borrows no more",
              "a whole number from 0", whole_from(0)),
)  # fmt: skip

MOST_JOBS = Parameter(
    "most", MOST, "jobs", "most jobs on one GPU", "a whole number from 1", whole_from(1),
)  # fmt: skip
LITERAL = Parameter(
    "literal", False, "truth value", "the paper's Algorithm 1 to the letter, without what docs/policies/sjf-bsbf.md adds",
    "true or false", truth,
)  # fmt: skip
CHANGE_S = Parameter(
    "change_s", 0.0, "s", "what a job loses when it is stopped and started again: it moves only where that pays",
    "a finite number from 0", finite_from(0.0),
)  # fmt: skip

POLICIES: tuple[Entry, ...] = (
    Entry("fifo", "by submit time; a partition's first job that does not fit holds up the ones behind it",
          "Tiresias, Section 5.1 (YARN-CS)", Fifo),
    Entry("fifo-skip", "by submit time; a job that does not fit is passed",
          "Tiresias, Section 5.1, with the skip of Pseudocode 2", partial(Fifo, skip=True)),
    Entry("backfill", "by submit time; jobs behind a blocked one start where they do not delay it",
          "Lifka, The ANL/IBM SP Scheduling System, 1995 (EASY); Slurm's sched/backfill", Backfill,
          (ESTIMATE, BACKFILL_DEPTH, BACKFILL_RESERVATIONS, BACKFILL_WHOLE_NODES, BACKFILL_INTERVAL)),
    Entry("multifactor", "by a weighted sum of age, fair share and size, with backfill; a usual Slurm site",
          "Slurm's priority/multifactor and sched/backfill", Multifactor, _MULTIFACTOR),
    Entry("gandiva", "in turns of one time slice; preempts", "Gandiva, OSDI 2018 (suspend and resume)", Gandiva,
          (QUANTUM,)),
    Entry("drf", "the next job of the user that holds the smallest part of what it holds most of",
          "Ghodsi et al., Dominant Resource Fairness, NSDI 2011, Algorithm 1", Drf),
    Entry("kelp-fifo", "by submit time, GPU jobs and jobs without GPUs in lines of their own",
          "SODA, Section VI-A (KELP-FIFO)", KelpFifo),
    Entry("kelp-drf", "the next job of the user that holds the fewest GPUs", "SODA, Section VI-A (KELP-DRF)",
          partial(Drf, name="kelp-drf", gpus_only=True)),
    Entry("coda", "arrays for CPU jobs and for GPU jobs below and from 4 GPUs, which lend each other what is idle; DRF "
          "in each; preempts borrowers", "SODA, Section V-C", Coda, _ARRAYS),
    Entry("tiresias-las", "least attained GPU service first, in discrete queues; preempts",
          "Tiresias, Sections 3.2.2 and 3.2.3 (discretised 2D-LAS)", Tiresias, _TIRESIAS),
    Entry("tiresias-gittins", "likeliest to end within its queue's quantum first, judged by past jobs; preempts",
          "Tiresias, Sections 3.2.2 and 3.2.3 (discretised 2D-Gittins index)",
          partial(Tiresias, name="tiresias-gittins"), (*_TIRESIAS, SAMPLES_GPU_S)),
    Entry("sjf", "shortest predicted run time first", "Tiresias, Section 3.2", partial(Ordered, "sjf")),
    Entry("smallest", "fewest GPUs first", "Tiresias, Section 3.2.1 (SF)", partial(Ordered, "smallest")),
    Entry("srtf", "shortest predicted remaining run time first; preempts", "Tiresias, Section 3.2.1 (SRTF)",
          partial(Ordered, "srtf"), (MIN_RUN_S,)),
    Entry("srsf", "least predicted remaining GPU service first; preempts", "Tiresias, Section 3.2.1 (SRSF)",
          partial(Ordered, "srsf"), (MIN_RUN_S,)),
    Entry(FIRST, "shortest predicted run time first; what finds no free GPUs joins the first jobs that have room",
          "SJF-BSBF, Section VI-A (SJF-FFS)", partial(SharingSjf, FIRST), (MOST_JOBS, CAUTION, BOUND_CAUTION)),
    Entry(BEST, "shortest predicted run time first; what finds no free GPUs joins running jobs where that ends earlier on "
          "average", "SJF-BSBF, Section V, Algorithms 1 and 2", partial(SharingSjf, BEST),
          (MOST_JOBS, CAUTION, BOUND_CAUTION, LITERAL, *BY_DAY)),
    Entry("ojpp", "by submit time, onto the fewest GPUs on which collisions, interference and imbalance stay in bounds",
          "OJPP, Sections 4.2 and 4.3, Algorithms 1 to 3", Ojpp, OJPP),
    Entry("ojpap", "as ojpp, and moves workers off GPUs where interference came to exceed the bound; preempts",
          "OJPP, Section 4.4, Algorithm 4", Ojpap, OJPAP),
    Entry("colocation", "least occupancy first, onto the GPUs of least summed occupancy, as long as sharing is told to gain",
          "Co-location, Chapter 5, Algorithm 2", Colocation, COLOCATION),
    Entry(NAME, "least predicted remaining GPU service first, in pairs where two get more done than one; preempts",
          "docs/policies/sjf-bsbf.md", SrsfShare, (MIN_RUN_S, CHANGE_S, CAUTION)),
)  # fmt: skip


def policy_names() -> tuple[str, ...]:
    """All names, in the order of :data:`POLICIES`."""
    return tuple(entry.name for entry in POLICIES)


def find_entry(name: str) -> Entry:
    """The entry of a name.

    Raises:
        PolicyError: no such policy.
    """
    for entry in POLICIES:
        if entry.name == name:
            return entry
    raise PolicyError(f"there is no policy {name!r}; choose one of: {', '.join(policy_names())}")


def make_policy(name: str, parameters: Mapping[str, Any] | None = None) -> Policy:
    """Build a policy from its name and what a configuration file says of its parameters.

    Raises:
        PolicyError: no such policy or parameter, or a value that is not allowed.
    """
    entry = find_entry(name)
    known = {parameter.name: parameter for parameter in entry.parameters}
    values: dict[str, Any] = {}
    for key, value in (parameters or {}).items():
        if key not in known:
            allowed = ", ".join(sorted(known)) or "none"
            raise PolicyError(f"policy {name} has no parameter {key!r}; its parameters are: {allowed}")
        try:
            values[key] = known[key].read(value)
        except (TypeError, ValueError, OverflowError):
            shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
            raise PolicyError(f"policy {name}: {key} = {shown} is not allowed; use {known[key].allowed}") from None
    return entry.build(**values)


def describe() -> list[dict[str, Any]]:
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
