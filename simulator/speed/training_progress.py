"""How many steps a training takes, by batch size: measured progress and gradient noise."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.errors import SimulatorError, TraceError
from slurm_soda.simulator.speed.measured_tables import (
    ABOVE_0,
    ANY_NUMBER,
    FROM_0,
    MeasuredTable,
    ValueRange,
    read_measured,
)

_FILE = re.compile(r"validation-(\d+)\.csv", re.ASCII)
_COLUMNS: Mapping[str, ValueRange] = MappingProxyType(
    {"progress": ABOVE_0, "iteration": ABOVE_0, "metric": ANY_NUMBER, "grad_sqr": FROM_0, "grad_var": ABOVE_0}
)


class TrainingProgress:
    """One model's way to convergence, epoch by epoch, at several batch sizes; linear in batch size between them.

    Progress is counted in steps of the smallest batch. A step of batch B makes (v + q) / (v / s + q) such steps, s = B /
    smallest batch, q and v the squared norm and variance of the gradient (Pollux, Section 3.1).

    Attributes:
        batches: measured batch sizes, ascending.
        epochs: epochs until convergence.
    """

    def __init__(self, measured: Mapping[int, MeasuredTable]) -> None:
        self.batches = tuple(sorted(measured))
        self.epochs = min(map(len, measured.values()))
        self._columns = {
            batch: {name: column[: self.epochs] for name, column in table.numbers.items()}
            for batch, table in measured.items()
        }
        # An epoch is over when the least progress is made that one of the measured batch sizes made in it.
        reached = np.min([columns["progress"] for columns in self._columns.values()], axis=0)
        self._progress = np.diff(reached, prepend=0.0)

    def iterations(self, batch: int) -> float:
        """Steps of a batch size until convergence, as they were counted.

        Raises:
            SimulatorError: the batch size is beyond all measured ones.
        """
        return float(self._at("iteration", batch)[-1])

    def run_s(self, batch: int, step_s: float) -> float:
        """Time until convergence if each step takes so long; each epoch in whole seconds, unless that makes it 0.

        Raises:
            SimulatorError: the batch size is beyond all measured ones.
        """
        scale = batch / self.batches[0]
        noise, signal = self._at("grad_var", batch), self._at("grad_sqr", batch)
        gain = (noise + signal) / (noise / scale + signal)
        epochs_s = self._progress / gain * step_s
        return float(np.round(epochs_s).sum()) or float(epochs_s.sum())

    def _at(self, name: str, batch: int) -> FloatColumn:
        low = max((known for known in self.batches if known <= batch), default=None)
        high = min((known for known in self.batches if known >= batch), default=None)
        if low is None or high is None:
            raise SimulatorError(
                f"batch size {batch}: trainings were measured from {self.batches[0]} to {self.batches[-1]}"
            )
        if low == high:
            return self._columns[low][name]
        share = (batch - low) / (high - low)
        mixed: FloatColumn = (1 - share) * self._columns[low][name] + share * self._columns[high][name]
        return mixed


def load_training(directory: Path) -> TrainingProgress:
    """Read all ``validation-BATCH.csv`` of one model.

    Raises:
        TraceError: there is none, one is malformed, or progress or iterations do not grow from line to line.
    """
    measured: dict[int, MeasuredTable] = {}
    for path in sorted(directory.glob("validation-*.csv")):
        match = _FILE.fullmatch(path.name)
        if match is None or int(match[1]) == 0:
            raise TraceError(str(path), 0, "its name must be validation-BATCH.csv, with a batch size from 1")
        measured[int(match[1])] = _checked(read_measured(path, _COLUMNS))
    if not measured:
        raise TraceError(str(directory), 0, "it has no validation-BATCH.csv, such as validation-128.csv")
    return TrainingProgress(measured)


def _checked(table: MeasuredTable) -> MeasuredTable:
    for name in ("progress", "iteration"):
        column = table.numbers[name]
        falls = np.flatnonzero(np.diff(column) <= 0)
        if len(falls):
            row = int(falls[0]) + 1
            raise table.fail(row, f"{name} must grow from line to line, not {float(column[row])!r}")
    return table
