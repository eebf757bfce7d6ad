"""A plan in which jobs share GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.sharing.arithmetic.sharing_decision import SharingDecision
from slurm_soda.policies.sharing.co_runners.report import CoRunnersReport
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import IntColumn

_KNOWN = "sharing_known"
"""The fact by which a plan says whether its snapshot knew single GPUs: 1, or 0."""


@dataclass(frozen=True, slots=True)
class SharingPlan(Plan):
    """A :class:`Plan` that also says which GPUs, one by one.

    ``places`` of a job list all its GPUs, shared or not: a piece's ``gpus`` is the number of its devices on that node. A
    job may only be given devices of others that run and are not preempted by the same plan, or that start by it and come
    before it in ``places``. A preempted job with a place and devices moves there: it checkpoints, and restarts at once.
    """

    devices: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """By job id, for every job of ``places``: devices as :class:`.GpuDevices` numbers them, ascending."""
    sub_batches: Mapping[int, int] = field(default_factory=dict)
    """By job id: samples a GPU and forward pass, for jobs that start and accumulate gradients; others keep their batch."""
    decisions: Mapping[int, SharingDecision | CoRunnersReport] = field(default_factory=dict)
    """By job id: the arithmetic behind sharing or waiting, for ``explain``."""
    refused_joins: Mapping[int, str] = field(default_factory=dict)
    """By job id: why a job that the policy puts on GPUs of others cannot start there."""


def list_co_runners(plan: SharingPlan, snapshot: SharingSnapshot) -> dict[int, tuple[int, ...]]:
    """Those jobs that start by a plan on GPUs of others, by id, with the ids of these."""
    table, devices = snapshot.jobs.job_id.tolist(), snapshot.devices
    moved = {preempt.job_id for preempt in plan.preempts}
    on: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(np.diff(devices.held_start)).tolist():
        for device in devices.of(row).tolist() if table[row] not in moved else ():
            on[device].append(table[row])
    for job_id, held in plan.devices.items():
        for device in held:
            on[device].append(job_id)
    found = {job_id: {other for device in held for other in on[device]} for job_id, held in plan.devices.items()}
    return {job_id: tuple(sorted(others - {job_id})) for job_id, others in found.items() if len(others) > 1}


def mark_unshared(plan: Plan, name: str) -> Plan:
    """What policy ``name`` says of a snapshot that does not know single GPUs: another policy's plan, under its own name."""
    return replace(plan, policy=name, facts={**plan.facts, _KNOWN: 0.0})


def make_sharing_plan(
    plan: Plan,
    job_id: IntColumn,
    devices: Mapping[int, tuple[int, ...]],
    facts: Mapping[str, float],
    *,
    sub_batches: Mapping[int, int] | None = None,
    decisions: Mapping[int, SharingDecision] | None = None,
) -> SharingPlan:
    """A plan with its devices, sub-batches and decisions; all of these by row of ``job_id``.

    Args:
        facts: more numbers about the decision as a whole.
    """
    values = {spec.name: getattr(plan, spec.name) for spec in fields(Plan)}
    return SharingPlan(
        **{**values, "facts": {**plan.facts, _KNOWN: 1.0, **facts}},
        devices={int(job_id[row]): held for row, held in devices.items()},
        sub_batches={int(job_id[row]): size for row, size in (sub_batches or {}).items()},
        decisions={int(job_id[row]): decision for row, decision in (decisions or {}).items()},
    )
