"""One decision in the making: jobs take their places in the policy's order.

Every policy of this package is an order plus a few rules; this is the part they share.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.engine.demand import ANY_NODE, Demand, RequestShape, group_snapshot_requests
from slurm_soda.policies.engine.free_capacity import FreeCapacity, JobPlacement
from slurm_soda.policies.engine.placement import FreeNodes, NodeGroups
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn, JobState, NodeTable

_FIRST_VERDICT = np.zeros(len(JobState), dtype=np.int8)
_FIRST_VERDICT[JobState.PENDING] = JobVerdict.WAIT
_FIRST_VERDICT[JobState.BLOCKED] = JobVerdict.BLOCKED
_FIRST_VERDICT[JobState.RUNNING] = JobVerdict.RUN
_FIRST_VERDICT[JobState.SUSPENDED] = JobVerdict.LEAVING
_FIRST_VERDICT[JobState.COMPLETING] = JobVerdict.LEAVING


# Looking up a member of an enumeration costs more than the rest of the loop that needs it.
_START, _WAIT_FOR_PREEMPTION, _PREEMPT = (
    int(JobVerdict.START),
    int(JobVerdict.WAIT_FOR_PREEMPTION),
    int(JobVerdict.PREEMPT),
)


_MOST_KNOWN = 100_000
"""Requests of which it is remembered whether they are too large."""


class RefusedShapes:
    """Requests that did not fit. While free capacity only shrinks, a request at least as large does not fit either."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[int, ...], list[tuple[int, ...]]] = {}

    def cover(self, shape: RequestShape) -> bool:
        """Whether a refusal so far decides this shape too."""
        size = shape.size
        return any(all(map(int.__le__, known, size)) for known in self._sizes.get(shape.kind, ()))

    def add(self, shape: RequestShape) -> None:
        """Remember a refusal, and forget those that it makes redundant."""
        size = shape.size
        known = self._sizes.setdefault(shape.kind, [])
        known[:] = [other for other in known if not all(map(int.__le__, size, other))]
        known.append(size)


def find_too_large(shapes: Sequence[RequestShape], nodes: NodeTable) -> BoolColumn:
    """Which requests no empty cluster could hold, down nodes included; one search for each that is new."""
    columns = (nodes.gpus, nodes.cpus, nodes.memory_mib, nodes.gpu_type, nodes.in_partition)
    known = _list_too_large(*(column.tobytes() for column in columns))
    # The nodes that would do change with what runs there.
    anywhere = [shape if shape.node_set == ANY_NODE else shape._replace(node_set=ANY_NODE) for shape in shapes]
    if any(shape not in known for shape in anywhere):
        every = NodeGroups(nodes, np.ones(len(nodes), dtype=np.bool_))
        whole = FreeNodes(every, nodes.gpus, nodes.cpus, nodes.memory_mib)
        if len(known) > _MOST_KNOWN:
            known.clear()
        known.update((shape, whole.find(shape) is None) for shape in anywhere if shape not in known)
    return np.array([known[shape] for shape in anywhere], dtype=np.bool_)


@lru_cache(maxsize=8)
def _list_too_large(*columns: bytes) -> dict[RequestShape, bool]:
    """What was found of nodes with these columns."""
    del columns
    return {}


class PlacementPass:
    """Verdicts, claims and free resources of one decision.

    Attributes:
        verdict: one :class:`JobVerdict` a job row.
        free_capacity: what is free now and soon, less the claims made so far.
        claims: places given to waiting jobs, by row, in the order they were given.
        unheld: rows whose claims the free capacity does not exclude: they may start in what is free now if others leave
            that, and two of them may have the same places.
        behind: rows that get nothing on nodes which Slurm keeps for another row, and that row.
    """

    def __init__(self, snapshot: ClusterSnapshot, demand: Demand | None = None) -> None:
        """``demand`` is given by a policy that has a say in how jobs are placed."""
        self.snapshot = snapshot
        self.demand = group_snapshot_requests(snapshot) if demand is None else demand
        self.verdict: NDArray[np.int8] = np.take(_FIRST_VERDICT, snapshot.jobs.state)
        self.free_capacity = FreeCapacity(snapshot)
        self.claims: dict[int, JobPlacement] = {}
        self.unheld: set[int] = set()
        self.behind: dict[int, int] = {}
        self._set_too_large_aside()

    def _set_too_large_aside(self) -> None:
        """Such jobs must not hold up others."""
        hopeless = find_too_large(self.demand.shapes, self.snapshot.nodes)
        if hopeless.any():
            self.verdict[(self.verdict == JobVerdict.WAIT) & hopeless[self.demand.code]] = JobVerdict.TOO_LARGE

    def candidates(self, order: IntColumn) -> IntColumn:
        """The rows of an order that wait, could run some day and may start now, in that order."""
        may_start = self.snapshot.jobs.may_start
        rows: IntColumn = order[self.verdict[order] == JobVerdict.WAIT]
        return rows[may_start[rows]] if len(may_start) else rows

    def pending(self, order: IntColumn) -> IntColumn:
        """The PENDING rows of an order, in that order."""
        rows: IntColumn = order[self.snapshot.jobs.state[order] == JobState.PENDING]
        return rows

    def start_fitting(self, order: IntColumn, *, skip: bool, apart: bool = False) -> None:
        """Give waiting jobs what is free now, in order, without preemption.

        Without ``skip`` a partition's first job that does not fit ends that partition's turn, with ``apart`` only that
        of the partition's GPU jobs or of its jobs without GPUs. At most one search for places for each job, and with
        ``skip`` at most one failing search for each distinct shape.
        """
        rows = self.candidates(order)
        codes = self.demand.code[rows]
        shut_shapes = bytearray(len(self.demand.shapes))
        shut_lines: set[tuple[int, bool]] = set()
        refusals = RefusedShapes()
        for row, code in zip(rows.tolist(), codes.tolist(), strict=True):
            if shut_shapes[code]:
                continue
            shape = self.demand.shapes[code]
            line = (shape.partition, apart and shape.wants_gpus)
            if line in shut_lines:
                continue
            pieces = None if refusals.cover(shape) else self.free_capacity.now.find(shape)
            if pieces is None:
                shut_shapes[code] = 1
                refusals.add(shape)
                if not skip:
                    shut_lines.add(line)
                continue
            self.claim(row, JobPlacement(pieces, at_once=True))

    def claim(self, row: int, claim: JobPlacement) -> None:
        """Give a waiting job its places."""
        self.free_capacity.hold(claim)
        self.unheld.discard(row)
        self.record(row, claim)

    def record(self, row: int, claim: JobPlacement) -> None:
        """Note places that the free capacity already excludes for a job."""
        self.claims[row] = claim
        if self.verdict[row] != _PREEMPT:
            self.verdict[row] = _START if claim.at_once else _WAIT_FOR_PREEMPTION
