"""How fast the emulated models are, alone and in pairs: what a site has measured before, as a table in Gavel's format.

The numbers are the emulator's own (``emulation/trainer``), as a site's table would come from its own GPUs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_soda.demo.accounting import DemoError

GPU_TYPE = "a100"
"""What Slurm calls the cluster's GPUs."""


@dataclass(frozen=True, slots=True)
class ModelSpeed:
    """One model of the emulator. Nominal seconds."""

    batch: int
    fixed_s: float
    sample_s: float
    sync_s: float
    """Between two GPUs of one node."""

    def iteration_s(self, gpus: int) -> float:
        """An iteration alone on one or two GPUs."""
        return self.fixed_s + self.sample_s * self.batch + (self.sync_s if gpus > 1 else 0.0)


def read_speeds(trainer: Path) -> dict[str, ModelSpeed]:
    """The emulator's models by name.

    Args:
        trainer: folder of the emulator with ``profiles.tsv``.

    Raises:
        DemoError: the file cannot be read.
    """
    return {
        cells[0]: ModelSpeed(
            int(cells[2]), *(float(cell) / scale for cell, scale in zip(cells[3:6], (1e3, 1e6, 1e3), strict=True))
        )
        for cells in _rows(trainer / "profiles.tsv")
    }


def read_slowdowns(trainer: Path) -> dict[tuple[str, str], float]:
    """Iteration time of the first model beside the second one over that alone, under MPS.

    Raises:
        DemoError: the file cannot be read.
    """
    return {(cells[0], cells[1]): float(cells[2]) for cells in _rows(trainer / "pairs.tsv")}


def make_table(speeds: Mapping[str, ModelSpeed], slowdowns: Mapping[tuple[str, str], float], time_scale: float) -> str:
    """Iterations in a real second, alone and in pairs, for one and two GPUs: JSON for ``sodactl profiles import``."""
    table: dict[str, dict[str, object]] = {}
    for gpus in (1, 2):
        alone = {model: time_scale / speed.iteration_s(gpus) for model, speed in speeds.items()}
        name = {model: f"('{model} (batch size {speed.batch})', {gpus})" for model, speed in speeds.items()}
        for model in speeds:
            table[name[model]] = {"null": alone[model]} | {
                name[other]: [alone[model] / slowdowns[model, other], alone[other] / slowdowns[other, model]]
                for other in speeds
                if (model, other) in slowdowns and (other, model) in slowdowns
            }
    return json.dumps({GPU_TYPE: table})


def _rows(path: Path) -> Iterator[list[str]]:
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise DemoError(
            f"{path} cannot be read ({error.strerror}); run the demo from slurm-soda's own folder"
        ) from error
    return (line.split() for line in lines if line.strip() and not line.startswith("#"))
