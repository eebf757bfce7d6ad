"""Who predicts how much jobs slow each other down, where policies shall not be told."""

from __future__ import annotations

import json
from pathlib import Path

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.job_kinds import InterferenceEstimator
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.speed.pair_table import load_pairs
from slurm_soda.simulator.speed.small_files import read_small_file


def fit_leave_one_out(pairs: Path, gpu: str) -> InterferenceEstimator:
    """A prediction of each pair of a table, on one of its GPUs, from all its other pairs.

    Raises:
        SimulatorError: the table cannot be used, has too few pairs, or the libraries for learning are missing.
    """
    from slurm_soda.learning.interference import fit_held_out  # noqa: PLC0415 - few runs learn
    from slurm_soda.policies.sharing.prediction.speed_tables import parse_speed_table  # noqa: PLC0415

    load_pairs(pairs)  # tells faults with their place in the file
    try:
        return fit_held_out(parse_speed_table(json.loads(pairs.read_text(encoding="utf-8"))), gpu)
    except PolicyError as error:
        raise SimulatorError(
            f"{pairs}: {error}; for knowledge that is not learned from it: --predictor FILE or --knowledge prior"
        ) from error


def load_predictor(path: Path) -> InterferenceEstimator:
    """A model that ``learning`` fitted and somebody wrote down (``policies/sharing/prediction/model_json.py``).

    Raises:
        SimulatorError: it cannot be read, or is no such model.
    """
    from slurm_soda.policies.sharing.prediction.model_json import decode_model  # noqa: PLC0415 - few runs predict

    try:
        return decode_model(json.loads(read_small_file(path)))
    except (ValueError, RecursionError, PolicyError) as error:
        raise SimulatorError(f"{path}: it cannot be used as a model of interference: {error}") from None
