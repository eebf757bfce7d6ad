"""What a waiting job should ask for: cores for its tasks, memory that does not fall, nothing that no node has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.cpu_fit.request_resize import ResizedRequest, WaitingRequest, resize_request
from slurm_soda.policies.cpu_fit.start_cores import CoreRequest, FitHistory, NodeCapacity, PastFit
from slurm_soda.policies.errors import PolicyError

NODE = NodeCapacity(28, 64_000)


def wanted(
    cores: int, tasks: int = 1, node: NodeCapacity = NODE, past: tuple[PastFit, ...] = (), **request: object
) -> ResizedRequest:
    values: dict[str, object] = {"gpus": 1, "category": "cv", **request}
    return resize_request(WaitingRequest(CoreRequest(**values), tasks, cores), FitHistory(past), node)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("resized", "cores", "per_core_mib"),
    [
        (wanted(1), 3, 0),
        (wanted(20), 3, 0),
        (wanted(3), 3, 0),
        (wanted(4, tasks=4, gpus=4), 12, 0),
        (wanted(2, tasks=2, gpus=1), 4, 0),
        (wanted(20, past=(PastFit("cv", None, 7, 1),)), 7, 0),
        (wanted(1, node=NodeCapacity(2)), 2, 0),
        (wanted(3, tasks=3, gpus=2, node=NodeCapacity(5)), 3, 0),
        # Memory by core: the same in all with fewer, in step with more, as far as the node has it.
        (wanted(20, memory_per_core_mib=1000), 3, 6_666),
        (wanted(1, memory_per_core_mib=1000), 3, 0),
        (wanted(1, memory_per_core_mib=30_000), 2, 0),
        # A partition that sells memory by the core.
        (wanted(20, memory_mib=8000, node=NodeCapacity(28, 64_000, 1000)), 8, 0),
        (wanted(20, memory_per_core_mib=1000, node=NodeCapacity(28, 64_000, 1000)), 20, 0),
        (wanted(20, memory_per_core_mib=500, node=NodeCapacity(28, 64_000, 1000)), 10, 1_000),
    ],
)
def test_cores_and_memory(resized: ResizedRequest, cores: int, per_core_mib: int) -> None:
    assert (resized.cores, resized.memory_per_core_mib) == (cores, per_core_mib)


def test_a_job_without_a_core_for_each_task_is_none() -> None:
    with pytest.raises(PolicyError, match="a core for each"):
        WaitingRequest(CoreRequest(1), 2, 1)


@given(
    cores_per_task=st.integers(1, 20),
    tasks=st.integers(1, 8),
    gpus=st.integers(1, 8),
    per_core_mib=st.sampled_from([0, 100, 4000, 50_000]),
    most_per_core_mib=st.sampled_from([0, 1000, 4000]),
    node_cores=st.integers(1, 64),
    best=st.lists(st.integers(1, 80), max_size=5),
)
def test_the_new_request_can_start_where_the_old_one_could(
    cores_per_task: int,
    tasks: int,
    gpus: int,
    per_core_mib: int,
    most_per_core_mib: int,
    node_cores: int,
    best: list[int],
) -> None:
    node = NodeCapacity(node_cores, 64_000, most_per_core_mib)
    cores = cores_per_task * tasks
    past = FitHistory(tuple(PastFit("cv", None, fit, gpus) for fit in best))
    job = WaitingRequest(CoreRequest(gpus, "cv", memory_per_core_mib=per_core_mib), tasks, cores)
    new = resize_request(job, past, node)
    memory_mib = new.cores * (new.memory_per_core_mib or per_core_mib)
    assert new.cores == new.cores_per_task * tasks >= tasks
    assert new.cores <= max(node_cores, tasks, cores)
    if new.cores < cores:
        assert 0 <= cores * per_core_mib - memory_mib < new.cores, "memory does not fall but by what cannot be divided"
    elif new.cores > max(cores, tasks):
        assert memory_mib <= 64_000
    # Level-triggered: what was written is what is wanted.
    written = CoreRequest(gpus, "cv", memory_per_core_mib=new.memory_per_core_mib or per_core_mib)
    assert resize_request(WaitingRequest(written, tasks, new.cores), past, node).cores == new.cores
