"""Training the model that predicts what jobs do to each other, from the pairs that are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from slurm_soda.daemon.knowledge.reading import table_of
from slurm_soda.daemon.knowledge.values import Subject, Value
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.knowledge import Workload
from slurm_soda.policies.sharing.predicting.prediction import Predicted
from slurm_soda.slurm_ext.errors import SodaError

FEWEST_PAIRS = 10
"""With fewer a model says more about chance than about jobs."""


def train(values: Iterable[Value]) -> tuple[dict[str, Any], str]:
    """A model as plain data, and in words what it was learned from.

    Raises:
        SodaError: too few pairs are known, or the libraries for learning are missing.
    """
    from slurm_soda.learning.interference import fit_interference, measured_types  # noqa: PLC0415 - needs libraries
    from slurm_soda.policies.sharing.predicting.documents import encode  # noqa: PLC0415

    table = table_of(values)
    types = measured_types(table)
    pairs = sum(1 for (one, _), both in table.shared.items() if one.gpus == 1 and all(both) and one.gpu_type in types)
    if pairs < FEWEST_PAIRS:
        raise SodaError(
            f"{pairs} slowdowns of pairs on one GPU are known, and {FEWEST_PAIRS} are needed: import a table with "
            "`sodactl profiles import`"
        )
    try:
        document = encode(fit_interference(table))
    except PolicyError as error:
        raise SodaError(f"no model can be trained: {error}") from error
    return document, f"{pairs:,} slowdowns of pairs on {', '.join(name or 'untyped GPUs' for name in types)}"


def predicted(model: Predicted | None, values: Iterable[Value]) -> Iterator[Value]:
    """What a model says of pairs of kinds that are known alone on one GPU, where nobody measured them."""
    if model is None:
        return
    listed = list(values)
    known = {value.subject for value in listed if value.quantity == "xi"}
    alone = [value.subject.kind for value in listed if value.quantity == "iteration_s"]
    kinds = sorted({kind for kind in alone if kind.gpus == 1}, key=_order)
    for slowed in kinds:
        for other in kinds:
            subject = Subject.of(slowed, other)
            if slowed.gpu_type == other.gpu_type and subject not in known:
                estimate = model.xi(slowed, (other,))
                if estimate is not None:
                    yield Value(subject, "xi", estimate, 0, "trained model")


def _order(kind: Workload) -> tuple[str, str, int]:
    return kind.gpu_type, kind.model, kind.batch
