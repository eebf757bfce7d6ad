"""Speed by CPU cores: a job whose cores cannot feed its GPUs waits for data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.speed.measured_tables import ABOVE_0, read_measured
from slurm_soda.simulator.workload import Workload


@dataclass(frozen=True, slots=True)
class CoreCurve:
    """GPU utilisation of one model by CPU cores per GPU; linear between points, from (0, 0) to the first, flat beyond.

    Speed is proportional to it: "GPU utilization and running speed change in a same trend" (SODA, Section V-B).

    Attributes:
        cores: ascending, above 0.
        ratio: utilisations, above 0 and at most 1.
    """

    cores: tuple[float, ...]
    ratio: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.cores or len(self.cores) != len(self.ratio):
            raise SimulatorError(
                f"a curve needs as many utilisations as cores, not {len(self.ratio)} and {len(self.cores)}"
            )
        if min(self.cores) <= 0 or any(a >= b for a, b in pairwise(self.cores)):
            raise SimulatorError(f"cores of a curve must be above 0 and ascend, not {self.cores}")
        if min(self.ratio) <= 0 or max(self.ratio) > 1:
            raise SimulatorError(f"GPU utilisations of a curve must be above 0 and at most 1, not {self.ratio}")

    def at(self, cores: float) -> float:
        """Utilisation with so many cores per GPU."""
        return float(np.interp(cores, (0.0, *self.cores), (0.0, *self.ratio)))


class CoreSpeed:
    """Jobs whose model has a curve, relative to the cores they ask for; all others run as their trace says.

    A gang is as slow as its worst-fed node. Jobs that ask for no cores are not counted.
    """

    def __init__(self, curves: Mapping[str, CoreCurve], workload: Workload) -> None:
        self._label = workload.label
        self._fed: list[tuple[CoreCurve, float] | None] = []
        for model, cpus, gpus in zip(
            *(c.tolist() for c in (workload.model, workload.cpus, workload.gpus)), strict=True
        ):
            curve = curves.get(workload.models[model]) if model >= 0 and cpus and gpus else None
            self._fed.append(None if curve is None else (curve, curve.at(cpus / gpus)))

    def ratio(self, row: int, pieces: Sequence[NodeAllocation]) -> float:
        """Speed with these pieces' cores, relative to that with the cores asked for.

        Raises:
            SimulatorError: a piece has GPUs and no core: the job would never end.
        """
        known = self._fed[row]
        return 1.0 if known is None else known[0].at(self._cores(row, pieces)) / known[1]

    def utilisation(self, row: int, pieces: Sequence[NodeAllocation]) -> float:
        """GPU utilisation with these pieces' cores; NaN for a job without a curve.

        Raises:
            SimulatorError: as :meth:`ratio`.
        """
        known = self._fed[row]
        return math.nan if known is None else known[0].at(self._cores(row, pieces))

    def knows(self, row: int) -> bool:
        """Whether a job's cores matter."""
        return self._fed[row] is not None

    def _cores(self, row: int, pieces: Sequence[NodeAllocation]) -> float:
        cores = min((piece.cpus / piece.gpus for piece in pieces if piece.gpus), default=0.0)
        if not cores:
            raise SimulatorError(f"job {self._label[row]}: it has GPUs on a node where it has no CPU core")
        return cores


def load_core_curves(path: Path) -> dict[str, CoreCurve]:
    """Read curves by model from a CSV file with the columns ``model``, ``cores`` (per GPU) and ``ratio`` (GPU utilisation).

    Raises:
        TraceError: the file is malformed, or a model's cores do not ascend.
    """
    table = read_measured(path, {"cores": ABOVE_0, "ratio": ABOVE_0}, ("model",))
    points: dict[str, list[tuple[float, float]]] = {}
    columns = (table.texts["model"], table.numbers["cores"].tolist(), table.numbers["ratio"].tolist())
    for row, (model, cores, ratio) in enumerate(zip(*columns, strict=True)):
        curve = points.setdefault(model, [])
        if not model:
            raise table.fail(row, "model must be a name, not ''")
        if curve and cores <= curve[-1][0]:
            raise table.fail(
                row, f"cores of {model} must ascend from line to line, not {cores!r} after {curve[-1][0]!r}"
            )
        if ratio > 1:
            raise table.fail(row, f"ratio is a GPU utilisation, above 0 and at most 1, not {ratio!r}")
        curve.append((cores, ratio))
    return {model: CoreCurve(tuple(c for c, _ in curve), tuple(r for _, r in curve)) for model, curve in points.items()}
