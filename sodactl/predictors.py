"""Who predicts how much jobs slow each other down, where policies shall not be told."""

from __future__ import annotations

import json
from pathlib import Path

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.knowledge import Interference
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.reading import read_small
from slurm_soda.simulator.speed.pairs import load_pairs


def left_out(pairs: Path, gpu: str) -> Interference:
    """A prediction of each pair of a table, on one of its GPUs, from all its other pairs.

    Raises:
        SimulatorError: the table cannot be used, has too few pairs, or the libraries for learning are missing.
    """
    from slurm_soda.learning.interference import fit_without_each  # noqa: PLC0415 - few runs learn
    from slurm_soda.policies.sharing.predicting.tables import parse  # noqa: PLC0415

    load_pairs(pairs)  # tells faults with their place in the file
    try:
        return fit_without_each(parse(json.loads(pairs.read_text(encoding="utf-8"))), gpu)
    except PolicyError as error:
        raise SimulatorError(
            f"{pairs}: {error}; for knowledge that is not learned from it: --predictor FILE or --knowledge prior"
        ) from error


def stored(path: Path) -> Interference:
    """A model that ``learning`` fitted and somebody wrote down (``policies/sharing/predicting/documents.py``).

    Raises:
        SimulatorError: it cannot be read, or is no such model.
    """
    from slurm_soda.policies.sharing.predicting.documents import decode  # noqa: PLC0415 - few runs predict

    try:
        return decode(json.loads(read_small(path)))
    except (ValueError, RecursionError, PolicyError) as error:
        raise SimulatorError(f"{path}: it cannot be used as a model of interference: {error}") from None
