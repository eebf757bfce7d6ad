"""The Gaussian process predicts as that of scikit-learn does, and what is stored as it did before it was stored."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel

from slurm_soda.learning.errors import LearningError
from slurm_soda.learning.gaussian_process import fit_gaussian
from slurm_soda.learning.interference import fit_interference
from slurm_soda.learning.libraries import import_library
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.prediction.gaussian_process import GaussianPosterior
from slurm_soda.policies.sharing.prediction.model_json import decode_model, encode_model
from slurm_soda.policies.sharing.prediction.predicted_interference import PredictedInterference, collect_pairs
from tests.learning.tables import table

TABLE = table(noise=0.02)
UNKNOWN_KIND = {"kind": "regression", "traits": {"kinds": [], "names": [], "values": []}}


def test_the_gaussian_process_predicts_as_scikit_learn() -> None:
    pairs = collect_pairs(TABLE, "fast")
    some = pairs.rows(np.arange(len(pairs)) % 3 > 0)
    model = fit_gaussian(some)
    everything = GaussianPosterior(model.shape, pairs)
    covariance = np.linalg.inv(everything._inverse) - np.exp(model.shape.noise) * np.eye(len(pairs))

    class Known(Kernel):  # type: ignore[misc]
        """Covariances by the number of the pair."""

        def __init__(self) -> None:
            """Scikit-learn wants to see that there is no parameter."""

        def __call__(self, x: Any, y: Any = None, eval_gradient: bool = False) -> Any:
            return covariance[np.ix_(x[:, 0].astype(int), (x if y is None else y)[:, 0].astype(int))]

        def diag(self, x: Any) -> Any:
            return np.diagonal(covariance)[x[:, 0].astype(int)]

        def is_stationary(self) -> bool:
            return False

    seen = np.flatnonzero(np.arange(len(pairs)) % 3 > 0)
    theirs = GaussianProcessRegressor(Known(), alpha=np.exp(model.shape.noise), optimizer=None)
    theirs.fit(seen[:, None], (some.log_xi - model.shape.centre) / model.shape.unit)
    mean, deviation = theirs.predict(np.arange(len(pairs))[:, None], return_std=True)
    ours = model.predict(pairs.traits.rows(pairs.slowed), pairs.traits.rows(pairs.other))
    np.testing.assert_allclose(ours[0], model.shape.centre + model.shape.unit * mean, atol=1e-5)
    noisy = np.sqrt(deviation**2 + np.exp(model.shape.noise))
    np.testing.assert_allclose(ours[1], model.shape.calibration * model.shape.unit * noisy, atol=1e-4)


def test_what_was_stored_predicts_the_same() -> None:
    before = fit_interference(TABLE)
    after = decode_model(json.loads(json.dumps(encode_model(before))))
    kinds = [kind for kind in TABLE.alone if kind.gpus == 1]
    for one in kinds[::4]:
        for other in kinds[::5]:
            mine, its = before.xi(one, (other,)), after.xi(one, (other,))
            assert (mine is None) == (its is None)
            if mine is not None and its is not None:
                assert its.value == pytest.approx(mine.value, rel=1e-9)
                assert its.error == pytest.approx(mine.error, rel=1e-9)
            assert before.fits((one, other)) == after.fits((one, other))


def test_one_type_of_gpu_is_read_alone() -> None:
    before = fit_interference(TABLE)
    document = json.loads(json.dumps(encode_model(before)))
    (name, *rest) = before.models
    assert rest
    alone = decode_model(document, name)
    assert (list(alone.models), decode_model(document, "none").models) == ([name], {})
    one, other, *_ = [kind for kind in TABLE.alone if kind.gpu_type == name and kind.gpus == 1]
    assert alone.xi(one, (other,)) == before.xi(one, (other,))


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "has the format 'slurm-soda interference 2', not None: train it anew"),
        ({"format": "other"}, "not 'other'"),
        ({"format": "slurm-soda interference 2"}, r"is damaged \(KeyError: 'gpu_types'\): train it anew"),
        ({"format": "slurm-soda interference 2", "gpu_types": {"x": {"model": 3}}}, r"is damaged \(TypeError"),
        (
            {"format": "slurm-soda interference 2", "gpu_types": {"x": {"model": UNKNOWN_KIND, "sizes": None}}},
            r"is damaged \(ValueError: models of the kind 'regression' are unknown",
        ),
    ],
)
def test_other_documents_are_refused(document: object, problem: str) -> None:
    with pytest.raises(PolicyError, match=problem):
        decode_model(document)


def test_other_models_cannot_be_stored() -> None:
    with pytest.raises(PolicyError, match="kind object cannot be stored"):
        encode_model(PredictedInterference({"x": object()}))  # type: ignore[dict-item]


def test_missing_libraries_name_the_remedy() -> None:
    with pytest.raises(LearningError, match=r"needs nowhere, which is not here .*: pip install 'slurm-soda\[learn\]'"):
        import_library("nowhere.at.all")
