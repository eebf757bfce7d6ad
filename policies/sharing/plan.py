"""A plan in which jobs share GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.sharing.subbatch import Decision


@dataclass(frozen=True, slots=True)
class SharingPlan(Plan):
    """A :class:`Plan` that also says which GPUs, one by one.

    ``places`` of a job list all its GPUs, shared or not: a piece's ``gpus`` is the number of its devices on that node. A
    job may only be given devices of others that run and are not preempted by the same plan, or that start by it and come
    before it in ``places``. A preempted job with a place and devices moves there: it checkpoints, and restarts at once.
    """

    devices: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """By job id, for every job of ``places``: devices as :class:`.view.Devices` numbers them, ascending."""
    sub_batches: Mapping[int, int] = field(default_factory=dict)
    """By job id: samples a GPU and forward pass, for jobs that start and accumulate gradients; others keep their batch."""
    decisions: Mapping[int, Decision] = field(default_factory=dict)
    """By job id: the arithmetic behind sharing or waiting, for ``explain``."""
