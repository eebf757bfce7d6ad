"""Devices for one job, best first, narrowed until a mechanism can give it the first of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.sharing.mechanism.guest_rules import GuestRules, JobsOn


def list_rankings(
    rules: GuestRules, row: int, shape: RequestShape, ranked: Sequence[int], jobs_on: JobsOn
) -> Iterator[list[int]]:
    """Rankings to try one after the other: all devices that the job may join; only shared ones; those of one host.

    For a gang over several nodes, with equal indices: for each node, in the order of the ranking, the best devices of it,
    and those of the same indices on other nodes. Devices that nobody is on come last, and only where they may be mixed in.

    Complexity: O(ranked devices) for each ranking, of which there are as many as hosts, or nodes.
    """
    allowed = [device for device in ranked if not rules.refuse_device(row, device, jobs_on(device))]
    shared = [device for device in allowed if jobs_on(device)]
    mechanism = rules.mechanism
    if mechanism.with_own_gpus:
        yield allowed
    if not shared:
        return
    yield shared
    if mechanism.equal_indices:
        yield from _with_equal_indices(rules, shape, shared)
    if not (mechanism.several_hosts and mechanism.part_of_host):
        by_host: dict[int, list[int]] = {}
        for device in shared:
            by_host.setdefault(rules.host(device, jobs_on(device)), []).append(device)
        yield from by_host.values()


def _with_equal_indices(rules: GuestRules, shape: RequestShape, shared: Sequence[int]) -> Iterator[list[int]]:
    by_node: dict[int, dict[int, int]] = {}
    for device in shared:
        node, index = rules.place(device)
        by_node.setdefault(node, {})[index] = device
    largest = max(map(len, by_node.values()))
    for gpus, nodes in _even_splits(shape, largest):
        for first in by_node.values():
            indices = list(first)[:gpus]
            alike = [held for held in by_node.values() if all(index in held for index in indices)]
            if len(indices) == gpus and len(alike) >= nodes:
                yield [held[index] for held in alike[:nodes] for index in indices]


def _even_splits(shape: RequestShape, largest: int) -> list[tuple[int, int]]:
    """GPUs on each of several nodes, and how many of these: the most on one first."""
    if not shape.units:
        return [(shape.gpus, shape.nodes)] if shape.nodes > 1 else []
    sizes = range(min(largest, shape.units - 1), 0, -1)
    splits = [(gpus, shape.units // gpus) for gpus in sizes if shape.units % gpus == 0]
    return [(gpus, nodes) for gpus, nodes in splits if nodes >= shape.nodes and not 0 < shape.most_nodes < nodes]
