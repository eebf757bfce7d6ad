"""Pair tables of known structure, made by a seed: jobs of some size slow each other down by it, and some do not fit."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.prediction.speed_tables import SpeedTable

MODELS = ("Wide", "Deep-18", "Deep-50", "Talk")
BATCHES = (16, 32, 64)
MEMORY = 1.5
"""Of a GPU, in the unit of a job's size."""


def table(seed: int = 1, noise: float = 0.0, gpu_types: tuple[str, ...] = ("fast", "slow")) -> SpeedTable:
    """Log xi is the product of how much one suffers and how much the other does, by model and batch."""
    rng = np.random.default_rng(seed)
    suffers, presses = rng.uniform(0.2, 1.0, len(MODELS)), rng.uniform(0.2, 1.0, len(MODELS))
    alone: dict[JobKind, float] = {}
    shared: dict[tuple[JobKind, JobKind], tuple[float, float]] = {}
    for number, gpu_type in enumerate(gpu_types):
        jobs = [(JobKind(model, batch, gpu_type), row, math.log2(batch / 16) / 3)
                for row, model in enumerate(MODELS) for batch in BATCHES]  # fmt: skip
        for kind, row, size in jobs:
            alone[kind] = (10 + 90 * presses[row]) / (1 + number) * 2 ** (-2 * size)
        for kind, row, size in jobs:
            for other, column, its in jobs:
                if size * suffers[row] + its * suffers[column] > 0.8 * MEMORY * 0.75:
                    shared[kind, other] = 0.0, 0.0
                    continue
                mine = math.exp((1 - 0.5 * size) * suffers[row] * (0.5 + its) * presses[column])
                theirs = math.exp((1 - 0.5 * its) * suffers[column] * (0.5 + size) * presses[row])
                off = np.exp(rng.normal(0.0, noise, 2)) if noise else (1.0, 1.0)
                shared[kind, other] = alone[kind] / (mine * off[0]), alone[other] / (theirs * off[1])
    return SpeedTable(alone, shared)


def written(measured: SpeedTable, path: Path) -> Path:
    """The table as Gavel writes it."""

    def key(kind: JobKind) -> str:
        return f"('{kind.model} (batch size {kind.batch})', {kind.gpus})"

    document: dict[str, dict[str, dict[str, object]]] = {}
    for kind, speed in measured.alone.items():
        document.setdefault(kind.gpu_type, {})[key(kind)] = {"null": speed}
    for (one, other), both in measured.shared.items():
        document[one.gpu_type][key(one)][key(other)] = list(both)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
