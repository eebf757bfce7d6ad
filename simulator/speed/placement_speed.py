"""Speed by placement: a gang that is spread over nodes pays for its synchronisation."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.speed.training_profiles import TrainingProfiles
from slurm_soda.simulator.workload import Workload


class PlacementSpeed:
    """Jobs of measured models; all others, that is CPU jobs and jobs without a model, run as their trace says."""

    def __init__(self, profiles: TrainingProfiles, workload: Workload) -> None:
        """Look every kind of job up once, so that nothing is found missing halfway through a run.

        Raises:
            SimulatorError: a job's model, batch size or number of GPUs was not measured.
        """
        self._profiles = profiles
        self._kinds: list[tuple[str, int, int] | None] = []
        known: set[tuple[str, int, int]] = set()
        columns = (workload.model.tolist(), workload.batch_size.tolist(), workload.gpus.tolist())
        for label, model, batch_size, gpus in zip(workload.label, *columns, strict=True):
            if model < 0 or not gpus:
                self._kinds.append(None)
                continue
            kind = (workload.models[model], batch_size, gpus)
            if kind not in known:
                known.add(kind)
                self._check(label, kind)
            self._kinds.append(kind)

    def ratio(self, row: int, pieces: Sequence[NodeAllocation]) -> float:
        """Speed on these pieces, in the order of the ring, relative to the most consolidated placement."""
        kind = self._kinds[row]
        if kind is None:
            return 1.0
        return self._profiles.speed_ratio(*kind, tuple(piece.gpus for piece in pieces if piece.gpus))

    def _check(self, label: str, kind: tuple[str, int, int]) -> None:
        try:
            self._profiles.run_s(*kind)
        except SimulatorError as error:
            raise SimulatorError(f"job {label}: {error}") from None
