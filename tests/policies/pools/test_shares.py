"""Shares from history: where they begin, how far they move, and that they come to rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.layout.shares import (
    CORE_STEP_RATIO,
    DIVIDED_FROM_NODES,
    FEWEST_JOBS,
    NODE_STEP_RATIO,
    derive_shares,
)
from slurm_soda.policies.pools.layout.usage_history import PastPoolJob, summarise_usage

A100 = NodeClass("a100", 4, 28)
SODA_NODE = NodeClass("1080ti", 5, 28)
CPU_NODE = NodeClass("", 0, 64)


def jobs(
    count: int, gpus: int, cores_per_gpu: int, *, best: int | None = None, run_s: float = 3600
) -> list[PastPoolJob]:
    nodes = max(gpus // 4, 1)
    return [PastPoolJob(gpus, nodes, gpus * cores_per_gpu, run_s, best)] * count


@pytest.mark.parametrize(
    ("node_class", "nodes", "share"),
    [
        (A100, 2, PoolShare(8, 0)),  # 28 - 4 x 5, the paper's larger default
        (SODA_NODE, 80, PoolShare(4, 20)),  # 28 - 25 would leave 3, an eighth is 3.5
        (NodeClass("h100", 8, 32), 4, PoolShare(4, 0)),
        (NodeClass("t4", 1, 1), 1, PoolShare(1, 0)),
        (A100, DIVIDED_FROM_NODES - 1, PoolShare(8, 0)),
        (A100, DIVIDED_FROM_NODES, PoolShare(8, 4)),
        (CPU_NODE, 10, PoolShare(64, 0)),
    ],
)
def test_without_history(node_class: NodeClass, nodes: int, share: PoolShare) -> None:
    assert derive_shares([], {node_class: nodes})[node_class].share == share


@pytest.mark.parametrize(
    ("history", "share"),
    [
        (jobs(30, 1, 3), PoolShare(16, 0)),
        (jobs(30, 1, 3, best=6), PoolShare(4, 0)),  # what fits best counts, not what was asked
        (jobs(30, 1, 200), PoolShare(4, 0)),  # an absurd request is cut to the node's part
        (jobs(30, 4, 3), PoolShare(16, 8)),
        (jobs(30, 1, 3) + jobs(30, 8, 3), PoolShare(16, 7)),  # 8/9 of the GPU time is 7.1 nodes
        (jobs(30, 1, 3) + jobs(1, 16, 3, run_s=1000), PoolShare(16, 4)),  # 1.0 node, but the job needs four
        (jobs(FEWEST_JOBS - 1, 8, 3), PoolShare(8, 0)),
        (jobs(30, 0, 0), PoolShare(8, 0)),  # CPU jobs say nothing about GPUs
    ],
)
def test_history(history: list[PastPoolJob], share: PoolShare) -> None:
    assert derive_shares(history, {A100: 8})[A100].share == share


def test_types_are_told_apart() -> None:
    h100 = NodeClass("h100", 4, 28)
    history = [PastPoolJob(1, 1, 2, 60, gpu_type="a100")] * 30 + [PastPoolJob(4, 1, 24, 60, gpu_type="h100")] * 30
    found = derive_shares(history, {A100: 4, h100: 4})
    assert found[A100].share == PoolShare(20, 0)
    assert found[h100].share == PoolShare(4, 4)


def test_a_share_moves_in_steps_and_says_so() -> None:
    previous = PoolShare(4, 0)
    seen = []
    for _ in range(6):
        derived = derive_shares(jobs(40, 4, 1), {A100: 20}, {A100: previous})[A100]
        previous = derived.share
        seen.append(previous)
    assert seen[0] == PoolShare(7, 2)
    assert seen[-1] == PoolShare(22, 12)
    assert "one step" in derived.reasons[0]


def test_little_differences_are_passed_over() -> None:
    assert derive_shares(jobs(30, 1, 3), {A100: 8}, {A100: PoolShare(16, 0)})[A100].share == PoolShare(16, 0)
    near = derive_shares(jobs(30, 1, 3), {A100: 8}, {A100: PoolShare(15, 0)})[A100]
    assert near.share == PoolShare(15, 0)
    assert "near" in near.reasons[0]


def test_too_little_history_leaves_a_share_alone() -> None:
    assert derive_shares([], {A100: 8}, {A100: PoolShare(13, 3)})[A100].share == PoolShare(13, 3)
    # A class that lost nodes cannot give more of them than it has.
    assert derive_shares([], {A100: 2}, {A100: PoolShare(13, 3)})[A100].share == PoolShare(13, 2)


@pytest.mark.parametrize("change", [{"gpus": -1}, {"nodes": 0}, {"cpus": -1}, {"run_s": float("nan")}, {"run_s": -1.0}])
def test_jobs_that_cannot_have_run_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(PolicyError):
        PastPoolJob(**({"gpus": 1, "nodes": 1, "cpus": 1, "run_s": 1.0} | change))  # type: ignore[arg-type]


past = st.builds(
    PastPoolJob,
    gpus=st.sampled_from([0, 1, 1, 2, 3, 4, 8, 16]),
    nodes=st.integers(1, 4),
    cpus=st.integers(0, 400),
    run_s=st.floats(0, 1e6),
    best_cores=st.none() | st.integers(1, 64),
    gpu_type=st.sampled_from(["", "a100", "h100"]),
)
classes = st.builds(NodeClass, st.sampled_from(["", "a100"]), st.integers(0, 16), st.integers(1, 256))


@given(
    st.lists(past, max_size=60),
    classes,
    st.integers(1, 200),
    st.none() | st.tuples(st.integers(0, 256), st.integers(0, 200)),
)
def test_any_history_gives_a_share_that_the_class_has(
    history: list[PastPoolJob], node_class: NodeClass, nodes: int, before: tuple[int, int] | None
) -> None:
    previous = None if before is None else PoolShare(min(before[0], node_class.cpus), min(before[1], nodes))
    found = derive_shares(history, {node_class: nodes}, {} if previous is None else {node_class: previous})[
        node_class
    ].share
    assert 0 <= found.cpu_cores <= node_class.cpus
    assert 0 <= found.large_nodes <= nodes
    if previous is not None and node_class.gpus:
        assert abs(found.cpu_cores - previous.cpu_cores) <= max(int(node_class.cpus * CORE_STEP_RATIO), 1)
        assert abs(found.large_nodes - previous.large_nodes) <= max(int(nodes * NODE_STEP_RATIO), 1)


@given(st.lists(past, max_size=60), classes, st.integers(1, 60), st.integers(0, 256), st.integers(0, 60))
def test_the_same_history_over_and_over_comes_to_rest(
    history: list[PastPoolJob], node_class: NodeClass, nodes: int, cores: int, large: int
) -> None:
    share = PoolShare(min(cores, node_class.cpus), min(large, nodes))
    for _ in range(400):
        share, before = derive_shares(history, {node_class: nodes}, {node_class: share})[node_class].share, share
        if share == before:
            break
    assert derive_shares(history, {node_class: nodes}, {node_class: share})[node_class].share == share


@given(st.lists(past, min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_the_order_of_jobs_does_not_matter(history: list[PastPoolJob], random: object) -> None:
    shuffled = list(history)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert derive_shares(shuffled, {A100: 9}) == derive_shares(history, {A100: 9})


@given(st.lists(past, max_size=60), st.integers(1, 5))
def test_jobs_that_use_more_cores_leave_no_more_to_cpu_jobs(history: list[PastPoolJob], more: int) -> None:
    hungrier = [PastPoolJob(j.gpus, j.nodes, j.cpus + more * j.gpus, j.run_s, None, j.gpu_type) for j in history]
    asked = [PastPoolJob(j.gpus, j.nodes, j.cpus, j.run_s, None, j.gpu_type) for j in history]
    assert (
        derive_shares(hungrier, {A100: 9})[A100].share.cpu_cores
        <= derive_shares(asked, {A100: 9})[A100].share.cpu_cores
    )


def test_a_digest_weighs_by_gpu_time() -> None:
    found = summarise_usage(jobs(99, 1, 2, run_s=1) + jobs(1, 4, 6, run_s=10_000), A100)
    assert (found.jobs, found.cores_per_gpu, found.largest_gpus) == (100, 6, 4)
    assert found.large_ratio == pytest.approx(40_000 / 40_099)
