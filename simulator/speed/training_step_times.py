"""Time of one training step by placement and local batch, from measured tables."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.speed.measured_tables import ABOVE_0, COUNT_FROM_1, FROM_0, MeasuredTable, read_measured

GpusByNode = tuple[int, ...]
"""GPUs on each node, in the order of the ring; rotations are the same placement."""


class TrainingStepTime(NamedTuple):
    """One step: all of it, and the part that GPUs spend on exchanging gradients."""

    step_s: float
    sync_s: float


@dataclass(frozen=True, slots=True)
class _Curve:
    """Times by local batch, ascending."""

    local_batch: FloatColumn
    step_s: FloatColumn
    sync_s: FloatColumn

    def at(self, local_batch: float) -> TrainingStepTime:
        """Linear between measurements and beyond the largest; below the smallest as there: no step is much faster."""
        step_s = self._one(self.step_s, local_batch)
        return TrainingStepTime(step_s, min(self._one(self.sync_s, local_batch), step_s))

    def _one(self, times_s: FloatColumn, local_batch: float) -> float:
        batches = self.local_batch
        if local_batch <= batches[-1] or len(batches) == 1:
            return float(np.interp(local_batch, batches, times_s))
        slope = max((times_s[-1] - times_s[-2]) / (batches[-1] - batches[-2]), 0.0)
        return float(times_s[-1] + slope * (local_batch - batches[-1]))


class TrainingStepTable:
    """Step times of one model.

    A placement that was measured gives its own times. Any other gives what was measured, on average, with as many GPUs
    per node on as many nodes: linear in GPUs among measurements on equally many nodes, then linear in nodes.

    Attributes:
        gpus_per_node: the most GPUs of one node that were measured.
        most_gpus: the most GPUs that were measured.
    """

    def __init__(self, placements: MeasuredTable, scalability: MeasuredTable) -> None:
        by_placement, by_size = _sorted_out(placements, scalability)
        self._placed = {placement: _curve(samples) for placement, samples in by_placement.items()}
        self._sizes: dict[int, list[tuple[int, _Curve]]] = defaultdict(list)
        for (nodes, gpus), samples in sorted(by_size.items()):
            self._sizes[nodes].append((gpus, _curve(samples)))
        self._levels = list(self._sizes)
        self.gpus_per_node = max(max(placement) for placement in by_placement)
        self.most_gpus = max(gpus for _, gpus in by_size)
        self.largest_local_batch = int(placements.numbers["local_bsz"].max())

    def step(self, placement: GpusByNode, local_batch: int) -> TrainingStepTime:
        """Time of one step with so many samples on each GPU; both parts at least 0.

        More GPUs on a node than were ever measured count as several nodes full of them.

        Raises:
            SimulatorError: the placement has no GPU, or more than were measured.
        """
        ring = _least_rotation(self._as_measured(placement))
        curve = self._placed.get(ring)
        return curve.at(local_batch) if curve is not None else self._between(len(ring), sum(ring), local_batch)

    def consolidated(self, gpus: int) -> GpusByNode:
        """So many GPUs on as few nodes as possible: full ones, then the rest."""
        full, rest = divmod(gpus, self.gpus_per_node)
        return (self.gpus_per_node,) * full + ((rest,) if rest else ())

    def _as_measured(self, placement: GpusByNode) -> GpusByNode:
        if not 0 < sum(placement) <= self.most_gpus:
            raise SimulatorError(
                f"placement {'-'.join(map(str, placement)) or 'on nothing'}: step times were measured from 1 GPU to "
                f"{self.most_gpus}"
            )
        if max(placement) > self.gpus_per_node:
            return tuple(part for gpus in placement for part in self.consolidated(gpus))
        return placement if 0 not in placement else tuple(gpus for gpus in placement if gpus)

    def _between(self, nodes: int, gpus: int, local_batch: int) -> TrainingStepTime:
        above = int(np.searchsorted(self._levels, nodes))
        if above < len(self._levels) and self._levels[above] == nodes:
            return self._on_nodes(nodes, gpus, local_batch)
        low, high = self._levels[max(above - 1, 0)], self._levels[min(above, len(self._levels) - 1)]
        at_low, at_high = (self._on_nodes(level, gpus / nodes * level, local_batch) for level in (low, high))
        return _mix(at_low, at_high, (nodes - low) / (high - low)) if low < high else at_low

    def _on_nodes(self, nodes: int, gpus: float, local_batch: int) -> TrainingStepTime:
        """Between the measurements on so many nodes; the nearest one where ``gpus`` are beyond all of them."""
        sizes = self._sizes[nodes]
        above = next((at for at, (size, _) in enumerate(sizes) if size >= gpus), len(sizes) - 1)
        size, curve = sizes[above]
        if size <= gpus or above == 0:
            return curve.at(local_batch)
        fewer, below = sizes[above - 1]
        return _mix(below.at(local_batch), curve.at(local_batch), (gpus - fewer) / (size - fewer))


def load_step_times(directory: Path) -> TrainingStepTable:
    """Read ``placements.csv`` and ``scalability.csv`` of one model.

    Raises:
        TraceError: a table is missing or malformed.
    """
    times = {"local_bsz": COUNT_FROM_1, "step_time": ABOVE_0, "sync_time": FROM_0}
    return TrainingStepTable(
        read_measured(directory / "placements.csv", times, ("placement",)),
        read_measured(
            directory / "scalability.csv", {"num_nodes": COUNT_FROM_1, "num_replicas": COUNT_FROM_1, **times}
        ),
    )


_Samples = dict[int, list[TrainingStepTime]]
"""Measurements by local batch."""


def _sorted_out(
    placements: MeasuredTable, scalability: MeasuredTable
) -> tuple[dict[GpusByNode, _Samples], dict[tuple[int, int], _Samples]]:
    by_placement: dict[GpusByNode, _Samples] = defaultdict(lambda: defaultdict(list))
    by_size: dict[tuple[int, int], _Samples] = defaultdict(lambda: defaultdict(list))
    for row, (text, (batch, time)) in enumerate(zip(placements.texts["placement"], _times(placements), strict=True)):
        if not re.fullmatch("[1-9]+", text, re.ASCII):
            raise placements.fail(row, f"placement must be digits from 1 to 9, one a node, not {text!r}")
        placement = tuple(map(int, text))
        by_placement[_least_rotation(placement)][batch].append(time)
        by_size[len(placement), sum(placement)][batch].append(time)
    nodes, gpus = (scalability.numbers[name].astype(int).tolist() for name in ("num_nodes", "num_replicas"))
    for row, (size, (batch, time)) in enumerate(zip(zip(nodes, gpus, strict=True), _times(scalability), strict=True)):
        if size[0] > size[1]:
            raise scalability.fail(row, f"num_replicas must be num_nodes ({size[0]}) or more, not '{size[1]}'")
        by_size[size][batch].append(time)
    return by_placement, by_size


def _times(table: MeasuredTable) -> list[tuple[int, TrainingStepTime]]:
    batch, step_s, sync_s = (table.numbers[name].tolist() for name in ("local_bsz", "step_time", "sync_time"))
    for row, (step, sync) in enumerate(zip(step_s, sync_s, strict=True)):
        if sync > step:
            raise table.fail(row, f"sync_time must be step_time ({step!r}) or less, not '{sync!r}'")
    return [(int(size), TrainingStepTime(step, sync)) for size, step, sync in zip(batch, step_s, sync_s, strict=True)]


def _curve(samples: _Samples) -> _Curve:
    batches = sorted(samples)
    means = np.array([np.mean(samples[batch], axis=0) for batch in batches])
    return _Curve(np.array(batches, dtype=np.float64), means[:, 0], means[:, 1])


def _mix(low: TrainingStepTime, high: TrainingStepTime, share: float) -> TrainingStepTime:
    return TrainingStepTime(*(a + (b - a) * share for a, b in zip(low, high, strict=True)))


def _least_rotation(ring: Iterable[int]) -> GpusByNode:
    ring = tuple(ring)
    return min(ring[at:] + ring[:at] for at in range(len(ring)))
