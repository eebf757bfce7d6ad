"""Shares of the pools, derived from history (SODA, Section V-C: "derived from historical statistical information").

The paper does not say how. Here the cores that GPU jobs use best, for all GPUs of a node at once, are theirs and the rest is
the CPU pool's; the large pool has that part of the nodes that its jobs had of GPU time. A share moves slowly: little
differences are passed over, and one derivation moves it by a bounded step, so that one odd week does not turn a site over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_soda.policies.cpu_fit.start_cores import OTHER_CORES
from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.layout.usage_history import PastPoolJob, UsageSummary, summarise_usage

FEWEST_JOBS = 20
"""Fewer GPU jobs than this say nothing."""
LEAST_CPU_RATIO = 1 / 8
"""CPU jobs own at least this part of a node's cores, or 1; beyond it they borrow."""
CORE_STEP_RATIO = 1 / 8
"""One derivation moves the cores by at most this part of the node's, or 1."""
CORE_BAND_RATIO = 1 / 16
"""A difference of less than this part of the node's cores, or of 1, is passed over."""
NODE_STEP_RATIO = 1 / 10
"""One derivation moves the large pool's nodes by at most this part of the class's, or 1."""
NODE_BAND = 0.75
"""A difference of less than this many nodes, before rounding, is passed over."""
DIVIDED_FROM_NODES = 16
"""Without history a class of fewer nodes is not divided between small and large jobs..."""
DEFAULT_LARGE_RATIO = 1 / 4
"""... and of a larger one this part is the large pool's."""


@dataclass(frozen=True, slots=True)
class DerivedShare:
    """A share with its reasons, each one sentence."""

    share: PoolShare
    reasons: tuple[str, ...]


def derive_shares(
    history: Sequence[PastPoolJob],
    classes: Mapping[NodeClass, int],
    previous: Mapping[NodeClass, PoolShare] | None = None,
) -> dict[NodeClass, DerivedShare]:
    """The share of every class.

    Args:
        history: jobs that ran lately, in any order.
        classes: number of nodes of each class.
        previous: shares in force, which the new ones stay near; classes without one begin where history points.
    """
    before = previous or {}
    return {c: _derive_share(summarise_usage(history, c), c, nodes, before.get(c)) for c, nodes in classes.items()}


def _derive_share(found: UsageSummary, node_class: NodeClass, nodes: int, previous: PoolShare | None) -> DerivedShare:
    if not node_class.gpus:
        return DerivedShare(PoolShare(node_class.cpus, 0), ("nodes without GPUs are the CPU pool's as a whole",))
    if found.jobs < FEWEST_JOBS and previous is not None:
        share = PoolShare(min(previous.cpu_cores, node_class.cpus), min(previous.large_nodes, nodes))
        return DerivedShare(share, (f"{found.jobs} GPU jobs of the history are too few to move a share",))
    cores, why_cores = _derive_cores(found, node_class, None if previous is None else previous.cpu_cores)
    large, why_large = _derive_large_nodes(found, node_class, nodes, None if previous is None else previous.large_nodes)
    return DerivedShare(PoolShare(cores, large), (why_cores, why_large))


def _derive_cores(found: UsageSummary, node_class: NodeClass, previous: int | None) -> tuple[int, str]:
    """Cores of each node that CPU jobs may hold."""
    if found.jobs < FEWEST_JOBS:
        per_gpu, source = float(OTHER_CORES), "without history a GPU gets"
    else:
        per_gpu, source = found.cores_per_gpu, f"{found.jobs} GPU jobs used, per GPU, best"
    least = max(math.ceil(node_class.cpus * LEAST_CPU_RATIO), 1)
    # A GPU cannot be fed with less than one core.
    most = max(node_class.cpus - node_class.gpus, least)
    wanted = min(max(node_class.cpus - math.ceil(per_gpu * node_class.gpus - 1e-9), least), most)
    band, step = max(node_class.cpus * CORE_BAND_RATIO, 1), max(int(node_class.cpus * CORE_STEP_RATIO), 1)
    cores = _step_towards(previous, wanted, wanted, band, step)
    why = f"{source} {per_gpu:.3g} cores, so {wanted} of {node_class.cpus} are left to CPU jobs"
    return min(max(cores, 0), node_class.cpus), why + _describe_step(previous, wanted, cores)


def _derive_large_nodes(
    found: UsageSummary, node_class: NodeClass, nodes: int, previous: int | None
) -> tuple[int, str]:
    """Nodes of the large pool."""
    if found.jobs < FEWEST_JOBS:
        if nodes < DIVIDED_FROM_NODES:
            return 0, f"without history {nodes} nodes are not divided between small and large jobs"
        large = round(nodes * DEFAULT_LARGE_RATIO)
        return large, f"without history a quarter of {nodes} nodes is the large jobs'"
    exact = nodes * found.large_ratio
    wanted = round(exact)
    if 0 < wanted < nodes:
        # A pool that cannot hold its usual job is of no use; nor is one that leaves the other nothing.
        wanted = min(max(wanted, math.ceil(found.largest_gpus / node_class.gpus)), nodes - 1)
        exact = max(exact, wanted) if wanted > exact else exact
    large = _step_towards(previous, wanted, exact, NODE_BAND, max(int(nodes * NODE_STEP_RATIO), 1))
    why = f"large jobs had {found.large_ratio:.0%} of the GPU time, so {wanted} of {nodes} nodes are theirs"
    return min(max(large, 0), nodes), why + _describe_step(previous, wanted, large)


def _step_towards(previous: int | None, wanted: int, exact: float, band: float, step: int) -> int:
    """The wanted value, or the previous one where it is near, or one step towards it where it is far."""
    if previous is None:
        return wanted
    if abs(exact - previous) < band or wanted == previous:
        return previous
    return min(max(wanted, previous - step), previous + step)


def _describe_step(previous: int | None, wanted: int, now: int) -> str:
    if previous is None or now == wanted:
        return ""
    return f"; {previous} stays, it is near" if now == previous else f"; from {previous} one step, to {now}"
