"""Where gangs go: nodes and a request in, places out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.engine.allocations import list_allocations
from slurm_soda.policies.engine.demand import RequestShape, group_equal_rows, group_snapshot_requests
from slurm_soda.policies.engine.free_capacity import FreeCapacity, JobPlacement
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation, NodeGroups
from slurm_soda.policies.snapshot import JobState, NodeTable
from tests.policies.cases import cluster, mixed_nodes, running, waiting
from tests.policies.worlds import on_some_worlds


def pool_of(
    nodes: NodeTable, gpus: list[int], cpus: list[int] | None = None, memory: list[int] | None = None
) -> FreeNodes:
    columns = (gpus, cpus or [32] * len(gpus), memory or [64_000] * len(gpus))
    return FreeNodes(NodeGroups(nodes), *(np.array(column) for column in columns))


def shape_of(nodes: NodeTable, /, **request: Any) -> RequestShape:
    return group_snapshot_requests(cluster([waiting(1, **request)], nodes)).shapes[0]


# name, free GPUs, free CPUs, request, (node, GPUs) taken
CASES: list[tuple[str, list[int], list[int] | None, dict[str, Any], list[tuple[int, int]] | None]] = [
    ("the node with least left over", [4, 2, 3], None, {"gpus": 2}, [(1, 2)]),
    ("ties to the lower node", [4, 4, 4], None, {"gpus": 2}, [(0, 2)]),
    ("equal GPUs: the node with least CPUs over", [4, 4, 4], [9, 5, 7], {"gpus": 2}, [(1, 2)]),
    ("also where sorting takes more than 64 bits", [10**9, 10**8, 3], [2**40, 2**40, 1], {"gpus": 2, "cpus": 2}, [(1, 2)]),
    ("a node without the CPUs is passed", [2, 4], [1, 8], {"gpus": 2}, [(1, 2)]),
    ("so is one with more GPUs", [1, 3, 4], [32, 1, 8], {"gpus": 2, "gpus_per_node": 2}, [(2, 2)]),
    ("nobody has the CPUs", [2, 4], [1, 1], {"gpus": 2, "gpus_per_node": 2}, None),
    ("an exact shape on the tightest nodes", [4, 2, 4, 3], None, {"gpus": 4, "nodes": 2, "gpus_per_node": 2},
     [(1, 2), (3, 2)]),
    ("an exact shape needs all its nodes", [4, 1], None, {"gpus": 4, "nodes": 2, "gpus_per_node": 2}, None),
    ("exact shape, nodes follow from GPUs", [4, 4], None, {"gpus": 8, "gpus_per_node": 4}, [(0, 4), (1, 4)]),
    ("any split: one node if one will do", [4, 1, 3], None, {"gpus": 3}, [(2, 3)]),
    ("any split: fewest nodes, the rest where it fits best", [4, 2, 3], None, {"gpus": 6}, [(0, 4), (1, 2)]),
    ("any split: at least so many nodes", [4, 2, 3], None, {"gpus": 3, "nodes": 2}, [(0, 2), (1, 1)]),
    ("any split: all there is", [1, 2, 3], None, {"gpus": 6}, [(2, 3), (1, 2), (0, 1)]),
    ("any split: too much", [1, 2, 3], None, {"gpus": 7}, None),
    ("any split: CPUs limit a node's share", [4, 4], [2, 8], {"gpus": 5, "cpus": 10}, [(1, 4), (0, 1)]),
    ("any split: a job that asks for no CPUs", [2, 1], [0, 1], {"gpus": 3, "cpus": 0}, [(0, 2), (1, 1)]),
    ("a job without GPUs avoids nodes with free GPUs", [4, 0, 4], None, {"gpus": 0, "cpus": 8}, [(1, 0)]),
    ("a job without GPUs over several nodes", [0, 0], [8, 8], {"gpus": 0, "cpus": 12}, [(0, 0), (1, 0)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("gpus", "cpus", "request_", "places"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_best_fit(
    gpus: list[int], cpus: list[int] | None, request_: dict[str, Any], places: list[tuple[int, int]] | None
) -> None:
    nodes = mixed_nodes(*gpus)
    pool, shape = pool_of(nodes, gpus, cpus), shape_of(nodes, **request_)
    pieces = pool.find(shape)
    assert (pieces and [(piece.node, piece.gpus) for piece in pieces]) == places
    # The same if nothing of it is free now but all of it would be.
    nothing = [0] * len(gpus)
    vacated = {node: pool.on(node) for node in range(len(gpus))}
    assert pool_of(nodes, nothing, nothing, nothing).would_fit(shape, vacated) == (places is not None)


def test_the_smallest_hole_is_left_where_a_job_needs_more_nodes() -> None:
    """A job of 3 GPUs on 2 nodes or more, with 3, 4 and 4 free: the first node alone has enough, but is only one."""
    nodes = mixed_nodes(4, 4, 4)
    shape = shape_of(nodes, gpus=3, nodes=2)._replace(fills_holes=True)
    pieces = pool_of(nodes, [3, 4, 4]).find(shape)
    assert pieces is not None
    assert {piece.node: piece.gpus for piece in pieces} == {0: 2, 1: 1}


def test_memory_counts() -> None:
    nodes = mixed_nodes(4, 4)
    pool = pool_of(nodes, [2, 4], memory=[1000, 8000])
    assert pool.find(shape_of(nodes, gpus=2, memory_mib=2000)) == [NodeAllocation(1, 2, 2, 2000)]
    assert pool.find(shape_of(nodes, gpus=2, gpus_per_node=2, memory_mib=9000)) is None


def test_a_jobs_memory_is_divided_like_its_cpus_or_evenly_where_it_has_none() -> None:
    without_cpus = running(2, (0, 1), (1, 1), memory_mib=4000) | {"alloc": [(0, 1, 0), (1, 1, 0)]}
    jobs = cluster([running(1, (0, 1), (1, 3), memory_mib=4000), without_cpus], mixed_nodes(8, 8)).jobs
    assert [piece.memory_mib for piece in list_allocations(jobs, 0)] == [1000, 3000]
    assert [piece.memory_mib for piece in list_allocations(jobs, 1)] == [2000, 2000]


def test_only_usable_nodes_of_the_partition_and_type() -> None:
    nodes = replace(
        mixed_nodes(4, 4, 4, 4),
        usable=np.array([False, True, True, True]),
        in_partition=np.array([[True, False], [True, False], [True, True], [True, True]]),
        gpu_type=np.array([0, 0, 1, 0]),
        gpu_types=("a100", "v100"),
    )
    pool = pool_of(nodes, [4, 4, 4, 4])
    places = {
        (partition, gpu_type): pool.find(shape_of(nodes, gpus=4, partition=partition, gpu_type=gpu_type))
        for partition in ("p0", "p1") for gpu_type in ("", "a100", "v100", "h100")
    }  # fmt: skip
    assert {key: pieces and pieces[0].node for key, pieces in places.items()} == {
        ("p0", ""): 1, ("p0", "a100"): 1, ("p0", "v100"): 2, ("p0", "h100"): None,
        ("p1", ""): 2, ("p1", "a100"): 3, ("p1", "v100"): 2, ("p1", "h100"): None,
    }  # fmt: skip


@on_some_worlds
@given(moves=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 40)), max_size=30))
def test_taking_and_giving_back_leaves_the_pool_as_it_was(moves: list[tuple[int, int, int]]) -> None:
    nodes = mixed_nodes(4, 4, 4, 4)
    pool, fresh = pool_of(nodes, [4, 3, 2, 1]), pool_of(nodes, [4, 3, 2, 1])
    pieces = [NodeAllocation(node, gpus, cpus, 10) for node, gpus, cpus in moves]
    pool.give(pieces)
    for piece in reversed(pieces):
        pool.take([piece])
    for gpus in range(1, 5):
        shape = shape_of(nodes, gpus=gpus)
        assert pool.find(shape) == fresh.find(shape)


def test_a_claim_on_what_is_vacated_reserves_no_more_than_it_needs() -> None:
    """4 GPUs: 2 free, 2 leaving. A claim of 3 leaves 1, and that one may start at once."""
    snapshot = cluster([running(1, (0, 2), state=JobState.COMPLETING)], mixed_nodes(4))
    free_capacity = FreeCapacity(snapshot)
    shapes = {gpus: shape_of(snapshot.nodes, gpus=gpus) for gpus in (1, 2, 3)}
    claim = free_capacity.find(shapes[3])
    assert claim == JobPlacement([NodeAllocation(0, 3, 3, 0)], at_once=False)
    free_capacity.hold(claim)
    assert free_capacity.find(shapes[2]) is None
    beside = free_capacity.find(shapes[1])
    assert beside == JobPlacement([NodeAllocation(0, 1, 1, 0)], at_once=True)
    free_capacity.hold(beside)
    assert free_capacity.find(shapes[1]) is None
    free_capacity.undo(claim)
    assert free_capacity.find(shapes[1]) == JobPlacement([NodeAllocation(0, 1, 1, 0)], at_once=True)
    assert free_capacity.find(shapes[3]) == JobPlacement([NodeAllocation(0, 3, 3, 0)], at_once=False)
    free_capacity.undo(beside)
    assert free_capacity.find(shapes[2]) == JobPlacement([NodeAllocation(0, 2, 2, 0)], at_once=True)


@given(
    rows=st.lists(st.tuples(st.integers(-1, 5), st.integers(0, 2**40), st.integers(0, 2**40)), min_size=1, max_size=20)
)
def test_equal_rows_and_only_they_share_a_group(rows: list[tuple[int, int, int]]) -> None:
    columns = tuple(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    first, group = group_equal_rows(columns)
    assert [rows[row] for row in first[group].tolist()] == rows
    assert len(first) == len(set(rows))
