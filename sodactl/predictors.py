"""Models that predict how much jobs slow each other down, from files."""

from __future__ import annotations

from pathlib import Path

from slurm_soda.policies.sharing.knowledge import Interference
from slurm_soda.simulator.errors import SimulatorError


def read_predictor(path: Path) -> Interference:
    """A model that was written by whoever fitted it.

    Raises:
        SimulatorError: it cannot be read.
    """
    raise SimulatorError(f"{path}: no kind of model can be read yet")
