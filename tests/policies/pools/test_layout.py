"""Partitions of pools: names, nodes, cores and tiers; and what holds for every site."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.pools.kinds import NodeClass, PoolKind, PoolShare
from slurm_soda.policies.pools.layout.partitions import PoolTable, describe_node_class, plan_pool_partitions
from slurm_soda.policies.pools.layout.routing import SubmittedRequest, route_job
from slurm_soda.slurm_ext.pools.pools_record import table_document, table_from_document

A100 = NodeClass("a100", 4, 28)
PLAIN = NodeClass("", 0, 64)


def members(count: int, node_class: NodeClass = A100, stem: str = "n") -> list[tuple[str, NodeClass]]:
    return [(f"{stem}{i}", node_class) for i in range(1, count + 1)]


def as_rows(table: PoolTable) -> dict[str, tuple[str, int, int]]:
    return {part.name: (",".join(part.nodes), part.cores_per_node, part.tier) for part in table}


def test_one_class_divided() -> None:
    assert as_rows(plan_pool_partitions("gpu", 5, 4, members(3), {A100: PoolShare(8, 1)})) == {
        "gpu_cpu": ("n1,n2,n3", 8, 4),
        "gpu_small": ("n1,n2", 20, 5),
        "gpu_large": ("n3", 20, 5),
        "gpu_cpu_lend": ("n1,n2,n3", 0, 4),
        "gpu_small_lend": ("n3", 20, 4),
        "gpu_large_lend": ("n1,n2", 20, 4),
    }


@pytest.mark.parametrize("large", [0, 3, 99, -1])
def test_a_class_that_is_not_divided_is_both_pools(large: int) -> None:
    table = plan_pool_partitions("gpu", 1, 0, members(3), {A100: PoolShare(8, large)})
    assert set(as_rows(table)) == {"gpu_cpu", "gpu_small", "gpu_large", "gpu_cpu_lend"}
    assert table.partitions["gpu_small"].nodes == table.partitions["gpu_large"].nodes == ("n1", "n2", "n3")


def test_shares_are_cut_to_what_there_is() -> None:
    nothing = plan_pool_partitions("gpu", 1, 0, members(1), {A100: PoolShare(0, 0)})
    assert "gpu_cpu" not in as_rows(nothing)
    assert nothing.partitions["gpu_small"].cores_per_node == 0
    # Four GPUs need four cores.
    everything = plan_pool_partitions("gpu", 1, 0, members(1), {A100: PoolShare(99, 0)})
    assert everything.partitions["gpu_cpu"].cores_per_node == 24
    assert everything.partitions["gpu_small"].cores_per_node == 4


def test_several_classes_have_tags_that_tell_them_apart() -> None:
    wide = NodeClass("a100", 8, 64)
    nodes = [*members(1), *members(1, wide, "w"), *members(1, PLAIN, "c"), *members(1, NodeClass("", 2, 8), "u")]
    table = plan_pool_partitions("p", 1, 0, nodes, {c: PoolShare(4, 0) for _, c in nodes})
    names = {part.name for part in table if part.kind is PoolKind.CPU and not part.borrowing}
    assert names == {"p_cpu_a100x4c28", "p_cpu_a100x8c64", "p_cpu_nogpu", "p_cpu_gpu"}
    assert {part.kind for part in table if part.node_class == PLAIN} == {PoolKind.CPU}
    assert table.partitions["p_cpu_nogpu"].most_cores == 64


def test_who_may_borrow_may_also_use_nodes_without_gpus() -> None:
    table = plan_pool_partitions(
        "p", 1, 0, [*members(1), *members(1, PLAIN, "c")], {A100: PoolShare(8, 0), PLAIN: PoolShare(64, 0)}
    )
    assert route_job(table, "p", SubmittedRequest(), may_borrow=True) == ("p_cpu_nogpu", "p_cpu_lend_a100")
    assert route_job(table, "p", SubmittedRequest(), may_borrow=False) == ("p_cpu_a100", "p_cpu_nogpu")
    assert route_job(table, "q", SubmittedRequest(), may_borrow=True) == ()


@pytest.mark.parametrize(
    ("nodes", "tiers", "shares", "words"),
    [
        ([], (1, 0), {A100: PoolShare(8, 0)}, "has no node"),
        (members(1), (1, 1), {A100: PoolShare(8, 0)}, "must be below"),
        (members(1), (1, 0), {}, "4 a100 GPUs and 28 cores"),
    ],
)
def test_what_cannot_be_laid_out(nodes: object, tiers: tuple[int, int], shares: object, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        plan_pool_partitions("gpu", *tiers, nodes, shares)  # type: ignore[arg-type]


def test_bases_are_found_behind_lists() -> None:
    table = plan_pool_partitions("gpu", 1, 0, members(2), {A100: PoolShare(8, 1)})
    table = table.merged(plan_pool_partitions("big", 1, 0, members(2, stem="b"), {A100: PoolShare(8, 1)}))
    assert table.bases == ("gpu", "big")
    assert table.base_of("gpu_small,gpu_small_lend") == table.base_of("gpu") == table.base_of("gpu,gpu_cpu") == "gpu"
    assert table.base_of("other") is table.base_of("gpu_small,big_small") is table.base_of("gpu,other") is None
    assert table.get("gpu") is None
    assert describe_node_class(NodeClass("", 2, 8)) == "2 GPUs and 8 cores"


classes = st.builds(NodeClass, st.sampled_from(["", "a100", "v100"]), st.integers(0, 8), st.integers(1, 64))
sites = st.lists(
    st.tuples(classes, st.integers(1, 4), st.builds(PoolShare, st.integers(-1, 70), st.integers(-1, 5))), min_size=1
)


@given(sites)
def test_any_site(site: list[tuple[NodeClass, int, PoolShare]]) -> None:
    shares = {node_class: share for node_class, _, share in site}
    nodes = [(f"n{at}-{i}", c) for at, (c, count, _) in enumerate(site) for i in range(count)]
    table = plan_pool_partitions("p", 7, 6, nodes, shares)
    assert table_from_document(json.loads(json.dumps(table_document(table)))) == table
    # Not two of one name, and every name is the base's.
    assert all(name == part.name and name.startswith("p_") for name, part in table.partitions.items())
    everywhere = {name for name, _ in nodes}
    assert {node for part in table for node in part.nodes} == everywhere
    by_node = dict(nodes)
    for node in everywhere:
        own = {part.kind: part for part in table if node in part.nodes and not part.borrowing}
        lent = {part.kind: part for part in table if node in part.nodes and part.borrowing}
        assert all(part.node_class == by_node[node] for part in (*own.values(), *lent.values()))
        assert all(part.tier == 6 for part in lent.values())
        if not by_node[node].gpus:
            assert set(own) == {PoolKind.CPU}
            assert not lent
            continue
        # Every node is somebody's, and what CPU jobs own GPU jobs leave them.
        gpu = [own[kind] for kind in (PoolKind.SMALL, PoolKind.LARGE) if kind in own]
        assert gpu
        cpu = own[PoolKind.CPU].most_cores if PoolKind.CPU in own else 0
        assert {part.most_cores + cpu for part in gpu} == {by_node[node].cpus}
        assert lent[PoolKind.CPU].most_cores == by_node[node].cpus
        # A kind owns a node or borrows it, never both.
        assert not set(own) & set(lent) - {PoolKind.CPU}
