"""Models of interference as plain data: numbers, words and lists, to be stored as JSON and read without any library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.knowledge import Workload
from slurm_soda.policies.sharing.predicting.gaussian import Pairs, Posterior, Shape
from slurm_soda.policies.sharing.predicting.kernels import PairKernel, Scaling
from slurm_soda.policies.sharing.predicting.model import PairModel
from slurm_soda.policies.sharing.predicting.prediction import Predicted
from slurm_soda.policies.sharing.predicting.regression import Features, Regression, View
from slurm_soda.policies.sharing.predicting.regressors import (
    Factors,
    Linear,
    Neighbours,
    Regressor,
    SupportVectors,
    Trees,
)
from slurm_soda.policies.sharing.predicting.sizes import Seen, Sizes
from slurm_soda.policies.sharing.predicting.traits import Traits

FORMAT = "slurm-soda interference 2"
Document = dict[str, Any]
_REGRESSORS: Mapping[str, Callable[..., Regressor]] = {
    kind.__name__: kind for kind in (Linear, SupportVectors, Neighbours, Trees, Factors)
}


def encode(predicted: Predicted) -> Document:
    """What :func:`decode` makes the same predictions of; it can be written as JSON.

    Raises:
        PolicyError: a model of a kind that cannot be stored.
    """
    gpu_types = {
        name: {"model": _model(model), "sizes": _sizes(predicted.sizes.get(name))}
        for name, model in predicted.models.items()
    }
    return {"format": FORMAT, "gpu_types": gpu_types}


def decode(document: object, gpu_type: str | None = None) -> Predicted:
    """The reverse of :func:`encode`; or as much of it as is of one type of GPU, which takes less time.

    Raises:
        PolicyError: it is of another format, or is not complete.
    """
    found = document.get("format") if isinstance(document, dict) else None
    if not isinstance(document, dict) or found != FORMAT:
        raise PolicyError(f"a model of interference has the format {FORMAT!r}, not {found!r}: train it anew")
    try:
        parts = [(name, part) for name, part in document["gpu_types"].items() if gpu_type is None or name == gpu_type]
        models = {name: _model_of(part["model"]) for name, part in parts}
        sizes = {name: _sizes_of(part["sizes"]) for name, part in parts if part["sizes"]}
    except (
        KeyError,
        TypeError,
        ValueError,
        ArithmeticError,
        AttributeError,
        IndexError,
        np.linalg.LinAlgError,
    ) as error:
        raise PolicyError(
            f"the model of interference is damaged ({type(error).__name__}: {error}): train it anew"
        ) from None
    return Predicted(models, sizes)


def _model(model: PairModel) -> Document:
    if isinstance(model, Posterior):
        shape, pairs = model.shape, model.pairs
        return {
            "kind": "gaussian",
            "traits": _traits(pairs.traits),
            "kernels": [kernel.vector.tolist() for kernel in shape.kernels],
            "shape": [shape.noise, shape.centre, shape.unit, shape.calibration],
            "pairs": [pairs.slowed.tolist(), pairs.other.tolist(), pairs.log_xi.tolist()],
        }
    if isinstance(model, Regression):
        return {
            "kind": "regression",
            "view": str(model.features.view),
            "traits": _traits(model.traits),
            "regressor": type(model.regressor).__name__,
            "numbers": {one.name: _plain(getattr(model.regressor, one.name)) for one in fields(model.regressor)},  # type: ignore[arg-type]
            "deviation": model.deviation,
        }
    raise PolicyError(f"models of the kind {type(model).__name__} cannot be stored")


def _model_of(document: Document) -> PairModel:
    traits = _traits_of(document["traits"])
    if document["kind"] == "gaussian":
        slowed, other, log_xi = document["pairs"]
        pairs = Pairs(traits, np.array(slowed, np.int64), np.array(other, np.int64), np.array(log_xi, np.float64))
        kernels = tuple(PairKernel.of(np.array(vector, np.float64)) for vector in document["kernels"])
        return Posterior(Shape(kernels, *map(float, document["shape"])), pairs)
    regressor = _REGRESSORS[document["regressor"]](**{key: _array(value) for key, value in document["numbers"].items()})
    features = Features(View(document["view"]), Scaling.of(traits), traits)
    return Regression(features, regressor, float(document["deviation"]))


def _traits(traits: Traits) -> Document:
    values = [[None if np.isnan(value) else value for value in row] for row in traits.values.tolist()]
    return {"kinds": [_kind(kind) for kind in traits.kinds], "names": list(traits.names), "values": values}


def _traits_of(document: Document) -> Traits:
    values = [[np.nan if value is None else float(value) for value in row] for row in document["values"]]
    kinds, names = tuple(Workload(*kind) for kind in document["kinds"]), tuple(document["names"])
    return Traits(kinds, names, np.array(values, np.float64).reshape(len(kinds), len(names)))


def _sizes(sizes: Sizes | None) -> Document | None:
    if sizes is None:
        return None
    seen = [[_kind(one), _kind(other), fits] for one, other, fits in sizes.seen]
    kinds = [_kind(kind) for kind in sizes.kinds]
    return {"kinds": kinds, "sizes": sizes.sizes.tolist(), "limit": sizes.limit, "seen": seen}


def _sizes_of(document: Document) -> Sizes:
    kinds = tuple(Workload(*kind) for kind in document["kinds"])
    seen = tuple(Seen(Workload(*one), Workload(*other), bool(fits)) for one, other, fits in document["seen"])
    return Sizes(kinds, np.array(document["sizes"], np.float64), float(document["limit"]), seen)


def _kind(kind: Workload) -> list[Any]:
    return [kind.model, kind.batch, kind.gpu_type, kind.gpus]


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _array(value: Any) -> Any:
    return np.array(value) if isinstance(value, list) else value
