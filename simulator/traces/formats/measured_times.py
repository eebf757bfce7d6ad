"""Where run times come from when a trace has none."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class TrainingRunTimes(Protocol):
    """Measured run times of whole trainings."""

    def run_s(self, application: str, batch_size: int, gpus: int) -> float:
        """Run time of one training on so many GPUs, with the most consolidated placement; above 0.

        Raises:
            SimulatorError: nothing was measured for it.
        """
        ...


@runtime_checkable
class TrainingStepTimes(Protocol):
    """Measured times of one training step, for traces that say how many steps a job has."""

    def step_s(self, application: str, batch_size: int, gpus: int) -> float:
        """Time of one step on so many GPUs, alone on them; above 0.

        Raises:
            SimulatorError: nothing was measured for it.
        """
        ...


MeasuredTimes = TrainingRunTimes | TrainingStepTimes
"""Measured tables, as far as a reader needs them."""
