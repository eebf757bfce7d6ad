"""Training the model that predicts what jobs do to each other, from the pairs that are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from slurm_soda.daemon.learning.stored_profiles import speed_table_of
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileSubject, ProfileValue
from slurm_soda.policies.sharing.prediction.predicted_interference import PredictedInterference
from slurm_soda.slurm_ext.errors import SodaError

MIN_PAIRS = 10
"""With fewer a model says more about chance than about jobs."""


def train_model(values: Iterable[ProfileValue]) -> tuple[dict[str, Any], str]:
    """A model as plain data, and in words what it was learned from.

    Raises:
        SodaError: too few pairs are known, or the libraries for learning are missing.
    """
    from slurm_soda.learning.interference import fit_interference, measured_gpu_types  # noqa: PLC0415 - needs libraries
    from slurm_soda.policies.sharing.prediction.model_json import encode_model  # noqa: PLC0415

    table = speed_table_of(values)
    types = measured_gpu_types(table)
    pairs = sum(1 for (one, _), both in table.shared.items() if one.gpus == 1 and all(both) and one.gpu_type in types)
    if pairs < MIN_PAIRS:
        raise SodaError(
            f"{pairs} slowdowns of pairs on one GPU are known, and {MIN_PAIRS} are needed: import a table with "
            "`sodactl profiles import`"
        )
    try:
        document = encode_model(fit_interference(table))
    except PolicyError as error:
        raise SodaError(f"no model can be trained: {error}") from error
    return document, f"{pairs:,} slowdowns of pairs on {', '.join(name or 'untyped GPUs' for name in types)}"


def predict_pairs(model: PredictedInterference | None, values: Iterable[ProfileValue]) -> Iterator[ProfileValue]:
    """What a model says of pairs of kinds that are known alone on one GPU, where nobody measured them."""
    if model is None:
        return
    listed = list(values)
    known = {value.subject for value in listed if value.quantity == "xi"}
    alone = [value.subject.kind for value in listed if value.quantity == "iteration_s"]
    kinds = sorted({kind for kind in alone if kind.gpus == 1}, key=_order)
    for slowed in kinds:
        for other in kinds:
            subject = ProfileSubject.of(slowed, other)
            if slowed.gpu_type == other.gpu_type and subject not in known:
                estimate = model.xi(slowed, (other,))
                if estimate is not None:
                    yield ProfileValue(subject, "xi", estimate, 0, "trained model")


def _order(kind: JobKind) -> tuple[str, str, int]:
    return kind.gpu_type, kind.model, kind.batch
