"""How a simulation is told what jobs do to each other, and what policies know of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.sharing.job_kinds import InterferenceEstimator, TimeSlicingPrior
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, Mechanism
from slurm_soda.policies.sharing.pair_knowledge.learned_slowdowns import LearnedSlowdowns, PredictedSlowdowns
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.sharing.job_kinds import WorkloadKinds
from slurm_soda.simulator.sharing.stand_in_models import POLLUX_STAND_INS, load_model_map
from slurm_soda.simulator.sharing.true_slowdowns import (
    MeasuredSlowdowns,
    PerfectKnowledge,
    TrueSlowdowns,
    UniformSlowdown,
)
from slurm_soda.simulator.speed.pair_table import load_pairs
from slurm_soda.simulator.workload import Workload

PREDICTED = "predicted"
PAIR_KNOWLEDGE = ("truth", PREDICTED, "prior")
"""What policies know of pairs before they meet: everything; what a model predicts; that jobs take turns."""


class SharingInputs(NamedTuple):
    """A workload's sharing, for one run."""

    truth: TrueSlowdowns
    kinds: WorkloadKinds
    known: LearnedSlowdowns
    """At the start."""


@dataclass(frozen=True, slots=True)
class SharingRules:
    """What jobs do to each other, and who knows it; it can be sent to another process.

    Raises:
        SimulatorError: a word or a number that means nothing, or options that do not go together.
    """

    pairs: Path | None = None
    """Pair table in Gavel's format."""
    gpu: str = ""
    """Which GPU of the table all GPUs are; empty: its fastest."""
    slowdown: float | None = None
    """Instead of a table: every pair fits and has this slowdown."""
    model_map: Path | None = None
    """CSV of models that stand for the trace's; None: those of Pollux' workloads."""
    knowledge: str = "truth"
    """One of :data:`PAIR_KNOWLEDGE`."""
    predictor: InterferenceEstimator | None = None
    """Where ``knowledge`` is ``predicted``."""
    observes: bool = True
    """Slowdowns that were seen for a minute become known."""
    max_slowdown: float = math.inf
    """Bound of jobs whose owners name none."""
    parts: bool = True
    """Pairs in which a bound of an owner is seen to be broken part; nobody sees it where ``observes`` is false."""
    mechanism: Mechanism = IDEAL
    """What can be done when jobs share, and what it costs."""

    def __post_init__(self) -> None:
        if (self.pairs is None) == (self.slowdown is None):
            raise SimulatorError("give either a table of pairs or one slowdown for all pairs")
        if self.knowledge not in PAIR_KNOWLEDGE:
            raise SimulatorError(
                f"knowledge = {self.knowledge!r} is not allowed; choose one of: {', '.join(PAIR_KNOWLEDGE)}"
            )
        if (self.predictor is None) == (self.knowledge == PREDICTED):
            raise SimulatorError("knowledge = 'predicted' needs a predictor, and nothing else has one")
        if not self.max_slowdown >= 1.0:
            raise SimulatorError(f"max_slowdown = {self.max_slowdown!r} is not allowed; use a number from 1")
        if self.slowdown is not None:
            UniformSlowdown(self.slowdown)

    def bounded(self, workload: Workload) -> Workload:
        """The workload, each job with a bound of its owner or with the one of these rules."""
        if math.isinf(self.max_slowdown):
            return workload
        own = workload.max_slowdown
        return workload.with_columns(max_slowdown=np.where(np.isinf(own), self.max_slowdown, own))

    def together(self, workload: Workload) -> SharingInputs:
        """What is needed to run a workload.

        Raises:
            SimulatorError: a file cannot be used, or lacks what it should have.
        """
        truth = self._truth()
        kinds = WorkloadKinds(
            workload, truth, POLLUX_STAND_INS if self.model_map is None else load_model_map(self.model_map)
        )
        known = PerfectKnowledge(truth)
        if self.knowledge == "truth":
            return SharingInputs(truth, kinds, LearnedSlowdowns(known, exact=True))
        return SharingInputs(
            truth,
            kinds,
            LearnedSlowdowns(PredictedSlowdowns(self.predictor or TimeSlicingPrior(), known)),
        )

    def _truth(self) -> TrueSlowdowns:
        if self.pairs is None:
            return UniformSlowdown(self.slowdown or 1.0)
        table = load_pairs(self.pairs)
        if self.gpu and self.gpu not in table.gpus:
            raise SimulatorError(f"{self.pairs} has no GPU {self.gpu!r}; it has: {', '.join(table.kinds)}")
        return MeasuredSlowdowns(table, self.gpu or table.fastest())
