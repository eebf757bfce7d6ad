"""Services on GPUs of several types: which type the next instance gets, and what each counts with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.pipeline.actions import ScaleService
from slurm_soda.policies.services.service import Device, Service, ServiceTable
from slurm_soda.policies.snapshot import JobState, NodeTable
from tests.policies.cases import running, waiting
from tests.policies.services.cases import GPU, decided, instances, scaled, table, world

ON_GPU = Service("ann", "chat", least=1, most=4, gpu=(GPU,))


def test_the_least_used_gpu_type() -> None:
    types = tuple(replace(GPU, gpu_type=name) for name in ("a100", "t4"))
    nodes = replace(NodeTable.uniform(2, 4), gpu_type=np.array([0, 1]), gpu_types=("a100", "t4"))
    for node, wanted in ((0, "t4"), (1, "a100")):
        plan = decided(world(table(replace(ON_GPU, gpu=types), 100.0), [running(1, (node, 2))], nodes))
        (scale,) = [one for one in plan.actions if isinstance(one, ScaleService)]
        assert scale.gpu_type == wanted


def two_types(*tasks: dict[str, Any]) -> ServiceTable:
    """A service with tasks that wait for a GPU of one of two types."""
    types = tuple(replace(GPU, gpu_type=name) for name in ("a100", "t4"))
    return replace(
        table(replace(ON_GPU, gpu=types), 100.0),
        task_id=np.array([one["job_id"] for one in tasks]),
        task_service=np.zeros(len(tasks), dtype=int),
        task_device=np.ones(len(tasks), dtype=int),
    )


@pytest.mark.parametrize(
    ("used", "states", "wanted"),
    [
        ((2, 0), "LL", "t4"), ((0, 2), "LL", "a100"), ((0, 0), "LL", "a100"),
        ((2, 0), "PL", "a100"), ((4, 2), "PL", "t4"), ((4, 4), "PL", "a100"), ((4, 4), "LP", "t4"),
    ],
)  # fmt: skip
def test_of_tasks_for_two_gpu_types_those_of_the_least_used_one_start(
    used: tuple[int, int], states: str, wanted: str
) -> None:
    """Which are let start already (P) and which wait with leases (L): nothing changes to and fro while there is room."""
    nodes = replace(NodeTable.uniform(2, 4), gpu_type=np.array([0, 1]), gpu_types=("a100", "t4"))
    shown = {"L": JobState.BLOCKED, "P": JobState.PENDING}
    tasks = [
        {**waiting(2001 + at, 1, gpu_type=name, user="ann"), "state": shown[states[at]]}
        for at, name in enumerate(("a100", "t4"))
    ]
    jobs = [running(1 + node, (node, gpus)) for node, gpus in enumerate(used) if gpus]
    (scale,) = decided(world(two_types(*tasks), [*jobs, *tasks], nodes)).actions
    assert isinstance(scale, ScaleService)
    assert scale.gpu_type == wanted


def test_a_type_that_the_service_is_not_profiled_on_comes_last() -> None:
    nodes = replace(NodeTable.uniform(2, 4), gpu_type=np.array([0, 1]), gpu_types=("old", "t4"))
    tasks = [waiting(2001 + at, 1, gpu_type=name, user="ann") for at, name in enumerate(("old", "t4"))]
    plan = decided(world(two_types(*tasks), [running(1, (1, 3)), *tasks], nodes))
    assert [one.gpu_type for one in plan.actions if isinstance(one, ScaleService)] == ["t4"]


def test_an_instance_counts_with_its_own_gpu_type() -> None:
    types = (replace(GPU, gpu_type="a100", batch=40), replace(GPU, gpu_type="t4", batch=10))
    nodes = replace(NodeTable.uniform(2, 4), gpu_type=np.array([0, 1]), gpu_types=("a100", "t4"))
    for node, count in ((0, 1), (1, 4)):  # 640 or 160 queries a second count
        jobs = [running(1001, (node, 1))]
        plan = decided(world(table(replace(ON_GPU, gpu=types), 600.0, instances(Device.GPU, 1)), jobs, nodes))
        assert scaled(plan) == {"GPU": count}
