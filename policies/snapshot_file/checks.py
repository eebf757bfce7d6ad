"""Whether the columns of a snapshot that came from a file belong together, so that a policy may rely on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.scope.scope import LeftOut
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, JobTable, NodeTable, UnknownNodes
from slurm_soda.policies.snapshot_file.service_checks import check_services
from slurm_soda.policies.snapshot_file.values import EncodingError, unexpected
from slurm_soda.policies.spreading.slowdowns import EXTRA_NODES

MOST = 2**40
"""Larger counts, and times in seconds, are no cluster's; sums of them could overflow."""
_OF_SLURM = ("priority", "site_factor", "nice")
"""Numbers of Slurm's that nothing is summed of; an unknown one is far below 0."""
_CODES = {"gpu_type": -1, "node_set": -1}
"""Columns that may hold this where there is none."""


def check_snapshot(snapshot: ClusterSnapshot) -> None:
    """Check lengths, codes and ranges.

    Raises:
        EncodingError: something does not fit; it is named with its value.
    """
    if not np.isfinite(snapshot.now_s) or abs(snapshot.now_s) > MOST:
        raise unexpected("snapshot.now_s", snapshot.now_s, "a time in Unix seconds")
    _check_jobs(snapshot)
    _check_nodes(snapshot)
    _check_spread(snapshot)
    check_services(snapshot)
    _check_preemption_costs(snapshot)
    present = set(snapshot.jobs.job_id.tolist())
    for at, job in enumerate(snapshot.pools.waiting):
        if job.job_id not in present:
            raise unexpected(f"snapshot.pools.waiting[{at}].job_id", job.job_id, "a job of snapshot.jobs")


def _check_jobs(snapshot: ClusterSnapshot) -> None:
    jobs, count, where = snapshot.jobs, len(snapshot.jobs), "snapshot.jobs"
    entries = len(jobs.alloc_node)
    for name, column in _columns(jobs):
        lengths = {count, 0} if name in _optional(JobTable) else {count}
        if name.startswith("alloc_"):
            lengths = {count + 1} if name == "alloc_start" else {entries}
        _check_length(f"{where}.{name}", column, lengths)
        if name not in _OF_SLURM:
            _check_range(f"{where}.{name}", column, _CODES.get(name, 0))
    late = np.flatnonzero(np.diff(jobs.job_id) <= 0)
    if len(late):
        raise unexpected(f"{where}.job_id[{late[0] + 1}]", int(jobs.job_id[late[0] + 1]), "ascending job ids")
    starts = jobs.alloc_start.tolist()
    if starts[0] != 0 or starts[-1] != entries or any(low > high for low, high in pairwise(starts)):
        raise unexpected(f"{where}.alloc_start", starts, f"ascending numbers from 0 to {entries}")
    _check_codes(f"{where}.state", jobs.state, len(JobState))
    _check_codes(f"{where}.user", jobs.user, len(jobs.users))
    _check_codes(f"{where}.partition", jobs.partition, min(len(jobs.partitions), len(snapshot.partitions)))
    _check_codes(f"{where}.gpu_type", jobs.gpu_type, len(jobs.gpu_types))
    _check_codes(f"{where}.alloc_node", jobs.alloc_node, len(snapshot.nodes))
    _check_codes(f"{where}.unknown_nodes", jobs.unknown_nodes, len(UnknownNodes))
    _check_codes(f"{where}.left_out", jobs.left_out, len(LeftOut))
    _check_codes(f"{where}.node_set", jobs.node_set, snapshot.nodes.node_sets.shape[1])


def _check_preemption_costs(snapshot: ClusterSnapshot) -> None:
    costs, where = snapshot.preemption_costs, "snapshot.preemption_costs"
    for name, most in (("learned_s", MOST), ("weight", 1), ("most_s", MOST)):
        column = getattr(costs, name)
        _check_length(f"{where}.{name}", column, {len(snapshot.jobs), 0} if name == "learned_s" else {len(costs)})
        wrong = np.flatnonzero(~((column >= 0) & (column <= most)))
        if len(wrong):
            raise unexpected(f"{where}.{name}[{wrong[0]}]", column[wrong[0]].item(), f"a number from 0 to {most}")


def _check_nodes(snapshot: ClusterSnapshot) -> None:
    nodes, count, where = snapshot.nodes, len(snapshot.nodes), "snapshot.nodes"
    for name, column in _columns(nodes):
        if name == "in_partition":
            if column.shape != (count, len(snapshot.partitions)):
                raise unexpected(
                    f"{where}.{name}", column.shape, f"the shape {(count, len(snapshot.partitions))}: nodes, partitions"
                )
            continue
        if name == "node_sets":
            if column.ndim != 2 or (column.shape[1] and len(column) != count):
                raise unexpected(f"{where}.{name}", column.shape, f"{count} rows of flags: nodes, sets")
            continue
        _check_length(f"{where}.{name}", column, {count})
        _check_range(f"{where}.{name}", column, _CODES.get(name, 0))
    _check_codes(f"{where}.gpu_type", nodes.gpu_type, len(nodes.gpu_types))


def _check_spread(snapshot: ClusterSnapshot) -> None:
    spread, where = snapshot.spread, "snapshot.spread"
    _check_length(f"{where}.kind", spread.kind, {len(snapshot.jobs), 0})
    _check_range(f"{where}.kind", spread.kind, -1)
    for name, column in (("expected", spread.expected), ("at_most", spread.at_most)):
        if column.shape != (len(spread.expected), EXTRA_NODES):
            raise unexpected(f"{where}.{name}", column.shape, f"the shape {(len(spread.expected), EXTRA_NODES)}")
        if not (np.isfinite(column) & (column >= 1.0)).all():
            raise unexpected(f"{where}.{name}", column.tolist(), "finite numbers from 1")
    _check_codes(f"{where}.kind", spread.kind, len(spread.expected))


def _columns(table: JobTable | NodeTable) -> Iterator[tuple[str, NDArray[Any]]]:
    for part in fields(table):
        value = getattr(table, part.name)
        if isinstance(value, np.ndarray):
            yield part.name, value


def _optional(table: type) -> set[str]:
    """Columns that may be empty: those with a default."""
    return {part.name for part in fields(table) if part.default_factory is not MISSING}


def _check_length(where: str, column: NDArray[Any], lengths: set[int]) -> None:
    if column.ndim != 1 or len(column) not in lengths:
        shown = " x ".join(map(str, column.shape))
        raise EncodingError(f"{where} has {shown} values: expected {' or '.join(map(str, sorted(lengths)))}")


def _check_range(where: str, column: NDArray[Any], least: int) -> None:
    """Whole numbers are counts; times and durations may be negative, unknown or unlimited."""
    if column.dtype.kind == "i":
        wrong = np.flatnonzero((column < least) | (column > MOST))
        if len(wrong):
            raise unexpected(f"{where}[{wrong[0]}]", column[wrong[0]].item(), f"a whole number from {least} to {MOST}")
    elif column.dtype.kind == "f":
        wrong = np.flatnonzero(np.isfinite(column) & (np.abs(column) > MOST))
        if len(wrong):
            raise unexpected(f"{where}[{wrong[0]}]", column[wrong[0]].item(), f"a number up to {MOST}, inf or nan")


def _check_codes(where: str, column: NDArray[Any], names: int) -> None:
    wrong = np.flatnonzero(column >= names)
    if len(wrong):
        raise unexpected(f"{where}[{wrong[0]}]", column[wrong[0]].item(), f"a number below {names}")
