"""Models of interference as plain data: numbers, words and lists, to be stored as JSON and read without any library."""

from __future__ import annotations

from typing import Any

import numpy as np

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.prediction.covariance_kernels import PairKernel
from slurm_soda.policies.sharing.prediction.gaussian_process import (
    GaussianHyperparameters,
    GaussianPosterior,
    MeasuredPairs,
)
from slurm_soda.policies.sharing.prediction.kind_traits import KindTraits
from slurm_soda.policies.sharing.prediction.memory_fit import MemorySizes, SeenPairFit
from slurm_soda.policies.sharing.prediction.pair_model import PairModel
from slurm_soda.policies.sharing.prediction.predicted_interference import PredictedInterference

FORMAT = "slurm-soda interference 2"
ModelDocument = dict[str, Any]


def encode_model(predicted: PredictedInterference) -> ModelDocument:
    """What :func:`decode_model` makes the same predictions of; it can be written as JSON.

    Raises:
        PolicyError: a model of a kind that cannot be stored.
    """
    gpu_types = {
        name: {"model": _encode_model(model), "sizes": _encode_sizes(predicted.sizes.get(name))}
        for name, model in predicted.models.items()
    }
    return {"format": FORMAT, "gpu_types": gpu_types}


def decode_model(document: object, gpu_type: str | None = None) -> PredictedInterference:
    """The reverse of :func:`encode_model`; or as much of it as is of one type of GPU, which takes less time.

    Raises:
        PolicyError: it is of another format, or is not complete.
    """
    found = document.get("format") if isinstance(document, dict) else None
    if not isinstance(document, dict) or found != FORMAT:
        raise PolicyError(f"a model of interference has the format {FORMAT!r}, not {found!r}: train it anew")
    try:
        parts = [(name, part) for name, part in document["gpu_types"].items() if gpu_type is None or name == gpu_type]
        models = {name: _decode_model(part["model"]) for name, part in parts}
        sizes = {name: _decode_sizes(part["sizes"]) for name, part in parts if part["sizes"]}
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
    return PredictedInterference(models, sizes)


def _encode_model(model: PairModel) -> ModelDocument:
    if isinstance(model, GaussianPosterior):
        shape, pairs = model.shape, model.pairs
        return {
            "kind": "gaussian",
            "traits": _encode_traits(pairs.traits),
            "kernels": [kernel.vector.tolist() for kernel in shape.kernels],
            "shape": [shape.noise, shape.centre, shape.unit, shape.calibration],
            "pairs": [pairs.slowed.tolist(), pairs.other.tolist(), pairs.log_xi.tolist()],
        }
    raise PolicyError(f"models of the kind {type(model).__name__} cannot be stored")


def _decode_model(document: ModelDocument) -> PairModel:
    traits = _decode_traits(document["traits"])
    if document["kind"] != "gaussian":
        raise ValueError(f"models of the kind {document['kind']!r} are unknown")
    slowed, other, log_xi = document["pairs"]
    pairs = MeasuredPairs(traits, np.array(slowed, np.int64), np.array(other, np.int64), np.array(log_xi, np.float64))
    kernels = tuple(PairKernel.of(np.array(vector, np.float64)) for vector in document["kernels"])
    return GaussianPosterior(GaussianHyperparameters(kernels, *map(float, document["shape"])), pairs)


def _encode_traits(traits: KindTraits) -> ModelDocument:
    values = [[None if np.isnan(value) else value for value in row] for row in traits.values.tolist()]
    return {"kinds": [_encode_kind(kind) for kind in traits.kinds], "names": list(traits.names), "values": values}


def _decode_traits(document: ModelDocument) -> KindTraits:
    values = [[np.nan if value is None else float(value) for value in row] for row in document["values"]]
    kinds, names = tuple(JobKind(*kind) for kind in document["kinds"]), tuple(document["names"])
    return KindTraits(kinds, names, np.array(values, np.float64).reshape(len(kinds), len(names)))


def _encode_sizes(sizes: MemorySizes | None) -> ModelDocument | None:
    if sizes is None:
        return None
    seen = [[_encode_kind(one), _encode_kind(other), fits] for one, other, fits in sizes.seen]
    kinds = [_encode_kind(kind) for kind in sizes.kinds]
    return {"kinds": kinds, "sizes": sizes.sizes.tolist(), "limit": sizes.limit, "seen": seen}


def _decode_sizes(document: ModelDocument) -> MemorySizes:
    kinds = tuple(JobKind(*kind) for kind in document["kinds"])
    seen = tuple(SeenPairFit(JobKind(*one), JobKind(*other), bool(fits)) for one, other, fits in document["seen"])
    return MemorySizes(kinds, np.array(document["sizes"], np.float64), float(document["limit"]), seen)


def _encode_kind(kind: JobKind) -> list[Any]:
    return [kind.model, kind.batch, kind.gpu_type, kind.gpus]
