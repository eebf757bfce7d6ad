"""Shares as people write them, and how nodes are divided by them."""

from __future__ import annotations

import pytest

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.layout.node_division import divide_nodes
from slurm_soda.policies.pools.policy import Coda
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import NodeTable


def test_texts_name_a_class_and_its_share() -> None:
    policy = make_policy("coda", {"shares": ["a100:8x128=64/10", "5x28=14/40"]})
    assert isinstance(policy, Coda)
    assert policy.shares == {NodeClass("a100", 8, 128): PoolShare(64, 10), NodeClass("", 5, 28): PoolShare(14, 40)}


@pytest.mark.parametrize("value", ["5x28=14/40", ["5x28"], ["5x28=29/1"], ["5x28=1/1", "5x28=2/2"], [5], 7])
def test_other_texts_are_errors_that_show_the_form(value: object) -> None:
    with pytest.raises(
        PolicyError, match=r"policy coda: shares = .* is not allowed; use a list of texts \[TYPE:\]GPUS"
    ):
        make_policy("coda", {"shares": value})


def test_the_last_nodes_of_a_class_are_the_large_pools() -> None:
    nodes = NodeTable.uniform(4, 5, cpus=28)
    division = divide_nodes(nodes, shares={NodeClass("", 5, 28): PoolShare(14, 3)})
    assert division.large.tolist() == [False, True, True, True]
    assert division.small.tolist() == [True, False, False, False]
    assert division.cpu_cores.tolist() == [14] * 4
    # A fifth of a large node is what jobs of four leave.
    assert division.small_gpus.tolist() == [5, 1, 1, 1]
    assert division.small_cpus.tolist() == [28, 5, 5, 5]


def test_numbers_go_before_shares_and_below_one_are_parts() -> None:
    nodes = NodeTable.uniform(4, 5, cpus=28)
    division = divide_nodes(nodes, cpu_cores=0.5, large_nodes=0.25, shares={NodeClass("", 5, 28): PoolShare(3, 3)})
    assert division.cpu_cores.tolist() == [14] * 4
    assert division.large.tolist() == [False, False, False, True]
    assert divide_nodes(nodes, cpu_cores=99.0, large_nodes=99.0).cpu_cores.tolist() == [28] * 4


def test_a_pool_without_nodes_leaves_the_class_to_both() -> None:
    nodes = NodeTable.uniform(3, 5, cpus=28)
    for large_nodes in (0.0, 3.0, None):
        division = divide_nodes(nodes, large_nodes=large_nodes)
        assert division.large.all()
        assert division.small.all()
        assert not division.lent.any()


def test_nodes_without_gpus_are_cpu_jobs() -> None:
    division = divide_nodes(NodeTable.uniform(2, 0, cpus=16), cpu_cores=0.0)
    assert division.cpu_cores.tolist() == [16, 16]
    assert not division.large.any()
