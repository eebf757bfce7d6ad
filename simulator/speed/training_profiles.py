"""Measured trainings of several models: how long they run, and how fast on which placement.

Tables and semantics are those of Pollux' simulator (see docs/peers.md): a directory for each model with step times by
placement and local batch, and progress by batch size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from slurm_soda.simulator.errors import SimulatorError, TraceError
from slurm_soda.simulator.speed.training_progress import TrainingProgress, load_training
from slurm_soda.simulator.speed.training_step_times import GpusByNode, TrainingStepTable, load_step_times

LARGEST_LOCAL_BATCH: Mapping[str, int] = MappingProxyType({"yolov3": 8})
"""Most samples on one GPU where that is fewer than were measured (Pollux' simulator, applications.py)."""


class BatchSplit(NamedTuple):
    """How a batch is spread: samples on each GPU at a time, and gradient accumulations before the step's last one."""

    local_batch: int
    accumulations: int


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """One model's tables."""

    name: str
    steps: TrainingStepTable
    training: TrainingProgress
    largest_local_batch: int

    def split(self, batch_size: int, gpus: int) -> BatchSplit:
        """Spread a batch over GPUs in as few accumulations as fit, rounded up to equal parts.

        One GPU accumulates at least once for more than the smallest batch (it could not measure gradient noise else).

        Raises:
            SimulatorError: the batch is larger than any that was measured, or empty, or there are not enough samples.
        """
        largest = self.training.batches[-1]
        if not 0 < batch_size <= largest:
            raise SimulatorError(f"model {self.name}: batch size {batch_size}: trainings were measured up to {largest}")
        if not 0 < gpus <= largest:
            raise SimulatorError(f"model {self.name}: batches up to {largest} cannot be spread over {gpus} GPUs")
        local = -(-batch_size // gpus)
        rounds = -(-local // self.largest_local_batch)
        if gpus == 1 and batch_size > self.training.batches[0]:
            rounds = max(rounds, 2)
        # Rounding up must not lead beyond the largest batch that was measured.
        return BatchSplit(max(min(-(-local // rounds), largest // (gpus * rounds)), 1), rounds - 1)

    def step_s(self, batch_size: int, placement: GpusByNode) -> float:
        """Time of one step; each accumulation adds the step's time without its synchronisation."""
        split = self.split(batch_size, sum(placement))
        step_s, sync_s = self.steps.step(placement, split.local_batch)
        return step_s + split.accumulations * (step_s - sync_s)

    def run_s(self, batch_size: int, placement: GpusByNode) -> float:
        """Time until convergence; the batch is what comes out of spreading it in equal parts."""
        gpus = sum(placement)
        split = self.split(batch_size, gpus)
        spread = split.local_batch * gpus * (split.accumulations + 1)
        return self.training.run_s(spread, self.step_s(batch_size, placement))


@dataclass(frozen=True, slots=True)
class TrainingProfiles:
    """Measured models by name."""

    directory: str
    applications: Mapping[str, TrainedModel]
    _ratios: dict[tuple[str, int, int, GpusByNode], float] = field(default_factory=dict, repr=False, compare=False)

    def run_s(self, application: str, batch_size: int, gpus: int) -> float:
        """Run time of one training, alone, on the most consolidated placement of so many GPUs; above 0.

        Raises:
            SimulatorError: nothing was measured for it.
        """
        known = self._application(application)
        return known.run_s(batch_size, known.steps.consolidated(gpus))

    def step_s(self, application: str, batch_size: int, gpus: int) -> float:
        """Time of one step on the most consolidated placement of so many GPUs; above 0.

        Raises:
            SimulatorError: nothing was measured for it.
        """
        return self.placed_step_s(application, batch_size, self._application(application).steps.consolidated(gpus))

    def placed_step_s(self, application: str, batch_size: int, placement: GpusByNode) -> float:
        """Time of one step on a placement, accumulations included; above 0.

        Raises:
            SimulatorError: nothing was measured for it.
        """
        return self._application(application).step_s(batch_size, placement)

    def iterations(self, application: str, batch_size: int) -> float:
        """Steps of one training until convergence.

        Raises:
            SimulatorError: nothing was measured for it.
        """
        return self._application(application).training.iterations(batch_size)

    def speed_ratio(self, application: str, batch_size: int, gpus: int, placement: GpusByNode) -> float:
        """Speed on a placement relative to the most consolidated one of ``gpus``, from what was measured; memoised.

        Below 1 where spreading costs; above 1 for models that were measured to run faster when they are spread.

        Raises:
            SimulatorError: nothing was measured for it.
        """
        key = (application, batch_size, gpus, placement)
        ratio = self._ratios.get(key)
        if ratio is None:
            placed_s = self._application(application).run_s(batch_size, placement)
            ratio = self._ratios[key] = self.run_s(application, batch_size, gpus) / placed_s
        return ratio

    def _application(self, name: str) -> TrainedModel:
        try:
            return self.applications[name]
        except KeyError:
            known = ", ".join(self.applications)
            raise SimulatorError(f"{self.directory} has no model {name!r}; it has: {known}") from None


def load_profiles(directory: Path, largest_local_batch: Mapping[str, int] = LARGEST_LOCAL_BATCH) -> TrainingProfiles:
    """Read a directory of models, each a directory named as the model.

    Raises:
        TraceError: it has no model, or a table is missing or malformed.
    """
    folders = sorted(path.parent for path in directory.glob("*/placements.csv"))
    if not folders:
        raise TraceError(str(directory), 0, "it has no measured models, such as bert/placements.csv")
    applications = {}
    for folder in folders:
        steps = load_step_times(folder)
        largest = min(largest_local_batch.get(folder.name, steps.largest_local_batch), steps.largest_local_batch)
        applications[folder.name] = TrainedModel(folder.name, steps, load_training(folder), largest)
    return TrainingProfiles(str(directory), MappingProxyType(applications))
