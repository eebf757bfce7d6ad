"""The one list of policies, and how they are built by name.

A new policy is one more :class:`PolicyEntry` in :data:`POLICIES`, and a line of docs/policies/README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from slurm_soda.policies.baselines.backfill import Backfill
from slurm_soda.policies.baselines.drf import Drf
from slurm_soda.policies.baselines.fifo import Fifo
from slurm_soda.policies.baselines.gandiva import Gandiva
from slurm_soda.policies.baselines.kelp_fifo import KelpFifo
from slurm_soda.policies.baselines.multifactor import Multifactor
from slurm_soda.policies.baselines.sort_key import SortKeyPolicy
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.pools.policy import Coda
from slurm_soda.policies.registry.named import find_named, names_of, read_values
from slurm_soda.policies.registry.parameters import Parameter
from slurm_soda.policies.registry.policy_parameters import (
    BACKFILL,
    MIN_RUN_S,
    MULTIFACTOR,
    POOLS,
    QUANTUM,
    SAMPLES_GPU_S,
    TIRESIAS,
)
from slurm_soda.policies.sharing.colocation.policy import Colocation
from slurm_soda.policies.sharing.ojpp.policy import Ojpap, Ojpp
from slurm_soda.policies.sharing.parameters import (
    CAUTION,
    CHANGE_S,
    COLOCATION,
    OJPAP,
    OJPP,
    SHARING_SJF_PARAMETERS,
    SODA_PARAMETERS,
)
from slurm_soda.policies.sharing.sjf.policy import SJF_BSBF, SJF_FFS, SharingSjf
from slurm_soda.policies.sharing.soda.policy import SODA, Soda
from slurm_soda.policies.sharing.srsf_share.policy import SRSF_SHARE, SrsfShare
from slurm_soda.policies.tiresias.policy import Tiresias


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One policy that users can name."""

    name: str
    for_whom: str
    """A site that does well with it, and what that must know: one line, in docs/policies/README.md too."""
    summary: str
    source: str
    """Paper and section."""
    build: Callable[..., Policy]
    parameters: tuple[Parameter, ...] = ()


POLICIES: tuple[PolicyEntry, ...] = (
    PolicyEntry(
        SODA,
        "recommended: a site that wants one policy; it must know nothing, run times are learned as jobs end",
        "least expected service first, by what ended jobs taught; shares GPUs and preempts where all jobs together end "
        "earlier by it",
        "docs/policies/soda.md",
        Soda,
        SODA_PARAMETERS,
    ),
    PolicyEntry(
        "fifo",
        "a site that wants strict turns by submit time; it must know nothing",
        "by submit time; a partition's first job that does not fit holds up the ones behind it",
        "Tiresias, Section 5.1 (YARN-CS)",
        Fifo,
    ),
    PolicyEntry(
        "fifo-skip",
        "a site that wants turns by submit time and lets small jobs pass wide ones; it must know nothing",
        "by submit time; a job that does not fit is passed",
        "Tiresias, Section 5.1, with the skip of Pseudocode 2",
        partial(Fifo, skip=True),
    ),
    PolicyEntry(
        "backfill",
        "a site that preempts nobody; it must know time limits that are close to run times",
        "by submit time; jobs behind a blocked one start where they do not delay it",
        "Lifka, The ANL/IBM SP Scheduling System, 1995 (EASY); Slurm's sched/backfill",
        Backfill,
        BACKFILL,
    ),
    PolicyEntry(
        "multifactor",
        "a site that compares with stock Slurm; it must know Slurm's weights, users' shares and limits",
        "by Slurm's own priority, with backfill: stock Slurm",
        "Slurm's priority/multifactor and sched/backfill",
        Multifactor,
        MULTIFACTOR,
    ),
    PolicyEntry(
        "gandiva",
        "a site whose jobs save and restore their state in seconds and shall all advance in turns; it must know nothing",
        "in turns of one time slice; preempts",
        "Gandiva, OSDI 2018 (suspend and resume)",
        Gandiva,
        (QUANTUM,),
    ),
    PolicyEntry(
        "drf",
        "a site that preempts nobody and gives users equal parts, CPUs and memory counted; it must know who owns each job",
        "the next job of the user that holds the smallest part of what it holds most of",
        "Ghodsi et al., Dominant Resource Fairness, NSDI 2011, Algorithm 1",
        Drf,
    ),
    PolicyEntry(
        "kelp-fifo",
        "a site that compares with SODA's baseline by submit time; it must know nothing",
        "by submit time, GPU jobs and jobs without GPUs in lines of their own",
        "SODA, Section VI-A (KELP-FIFO)",
        KelpFifo,
    ),
    PolicyEntry(
        "kelp-drf",
        "a site that preempts nobody and gives users equal numbers of GPUs; it must know who owns each job",
        "the next job of the user that holds the fewest GPUs",
        "SODA, Section VI-A (KELP-DRF)",
        partial(Drf, name="kelp-drf", gpus_only=True),
    ),
    PolicyEntry(
        "coda",
        "a site that has CPU and GPU jobs on the same nodes and can requeue borrowers; it must know how to divide its nodes",
        "pools for CPU jobs and for GPU jobs below and from 4 GPUs, which lend each other what is idle; DRF "
        "in each; preempts borrowers",
        "SODA, Section V-C",
        Coda,
        POOLS,
    ),
    PolicyEntry(
        "tiresias-las",
        "a site whose jobs can checkpoint and that wants nothing learned or predicted; it must know nothing",
        "least attained GPU service first, in discrete queues; preempts",
        "Tiresias, Sections 3.2.2 and 3.2.3 (discretised 2D-LAS)",
        Tiresias,
        TIRESIAS,
    ),
    PolicyEntry(
        "tiresias-gittins",
        "a site whose jobs can checkpoint and are alike from month to month; it must know the service of past jobs",
        "likeliest to end within its queue's quantum first, judged by past jobs; preempts",
        "Tiresias, Sections 3.2.2 and 3.2.3 (discretised 2D-Gittins index)",
        partial(Tiresias, name="tiresias-gittins"),
        (*TIRESIAS, SAMPLES_GPU_S),
    ),
    PolicyEntry(
        "sjf",
        "a site that preempts nobody; it must know run times well",
        "shortest predicted run time first",
        "Tiresias, Section 3.2",
        partial(SortKeyPolicy, "sjf"),
    ),
    PolicyEntry(
        "smallest",
        "a site that compares with Tiresias' order by GPUs; it must know nothing",
        "fewest GPUs first",
        "Tiresias, Section 3.2.1 (SF)",
        partial(SortKeyPolicy, "smallest"),
    ),
    PolicyEntry(
        "srtf",
        "a site that compares with the order by time left; it must know run times well, and jobs can checkpoint",
        "shortest predicted remaining run time first; preempts",
        "Tiresias, Section 3.2.1 (SRTF)",
        partial(SortKeyPolicy, "srtf"),
        (MIN_RUN_S,),
    ),
    PolicyEntry(
        "srsf",
        "a site whose jobs can checkpoint; it must know run times well",
        "least predicted remaining GPU service first; preempts",
        "Tiresias, Section 3.2.1 (SRSF)",
        partial(SortKeyPolicy, "srsf"),
        (MIN_RUN_S,),
    ),
    PolicyEntry(
        SJF_FFS,
        "a site that compares with SJF-BSBF's baseline; it must know run times, and users let jobs share GPUs",
        "shortest predicted run time first; a job that finds no free GPUs joins the first jobs that it fits beside",
        "SJF-BSBF, Section VI-A (SJF-FFS)",
        partial(SharingSjf, SJF_FFS),
        SHARING_SJF_PARAMETERS,
    ),
    PolicyEntry(
        SJF_BSBF,
        "a site that preempts nobody and whose users let jobs share GPUs; it must know run times and slowdowns of pairs",
        "shortest predicted run time first; what finds no free GPUs joins running jobs where that ends earlier on "
        "average",
        "SJF-BSBF, Section V, Algorithms 1 and 2",
        partial(SharingSjf, SJF_BSBF),
        SHARING_SJF_PARAMETERS,
    ),
    PolicyEntry(
        "ojpp",
        "a site that studies in simulations how few GPUs suffice; it must know profiles and slowdowns of all kinds",
        "by submit time, onto the fewest GPUs on which collisions, interference and imbalance stay in bounds",
        "OJPP, Sections 4.2 and 4.3, Algorithms 1 to 3",
        Ojpp,
        OJPP,
    ),
    PolicyEntry(
        "ojpap",
        "a site that studies the same with jobs that can checkpoint; it must know profiles and slowdowns of all kinds",
        "as ojpp, and moves workers off GPUs where interference came to exceed the bound; preempts",
        "OJPP, Section 4.4, Algorithm 4",
        Ojpap,
        OJPAP,
    ),
    PolicyEntry(
        "colocation",
        "a site that studies sharing by occupancy in simulations; it must know the occupancy of all kinds",
        "least occupancy first, onto the GPUs of least summed occupancy, as long as sharing is predicted to gain",
        "Co-location, Chapter 5, Algorithm 2",
        Colocation,
        COLOCATION,
    ),
    PolicyEntry(
        SRSF_SHARE,
        "a site whose jobs can checkpoint and may share GPUs; it must know run times and slowdowns of pairs",
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
            "for_whom": entry.for_whom,
            "summary": entry.summary,
            "source": entry.source,
            "parameters": [
                {"name": p.name, "default": p.default, "unit": p.unit, "allowed": p.allowed, "doc": p.doc}
                for p in entry.parameters
            ],
        }
        for entry in POLICIES
    ]
