"""Figures of the scope, for ``status`` and ``doctor``: how many jobs are in it, and what would be done to the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from slurm_soda.policies.pipeline.actions import (
    DrainInstance,
    JoinGpus,
    OrderJobs,
    PreemptJob,
    ResizeRequest,
    RouteJob,
    ScaleService,
)
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.scope.scope import LeftOut, Scope
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES

_WORDS = {
    PreemptJob: "preempt",
    ResizeRequest: "resize",
    RouteJob: "route",
    JoinGpus: "join",
    ScaleService: "scale",
    DrainInstance: "drain",
    OrderJobs: "order",
}


def count_scope(
    scope: Scope, left_out: Mapping[int, LeftOut], jobs: Mapping[int, SlurmJob], plan: Plan | None
) -> dict[str, Any]:
    """Names in the scope, of accounts and users only how many; waiting and running jobs in it and out of it; and what the
    plan withholds: by what would be done, how many actions, and how many jobs out of scope it would start before others.
    """
    counts: Counter[tuple[bool, bool]] = Counter()
    live = {job_id: job.state == "PENDING" for job_id, job in jobs.items() if job.state not in ENDED_STATES}
    for job_id, waits in live.items():
        counts[job_id in left_out, waits] += 1
    reasons = Counter(why.name.lower() for job_id, why in left_out.items() if job_id in live)
    document: dict[str, Any] = {
        "lists": {
            "partitions": sorted(scope.partitions),
            "qos": sorted(scope.qos),
            "accounts": len(scope.accounts),
            "users": len(scope.users),
        },
        "in_scope": {"waiting": counts[False, True], "running": counts[False, False]},
        "not_in_scope": {"waiting": counts[True, True], "running": counts[True, False]},
        "left_out_by": dict(sorted(reasons.items())),
    }
    if plan is not None:
        would = Counter(_WORDS[type(action)] for action in plan.withheld)
        outside = np.fromiter(left_out, np.int64, len(left_out))
        document["would_have"] = dict(sorted(would.items())) | {"start": int(np.isin(plan.starts, outside).sum())}
    return document
