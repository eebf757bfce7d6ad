"""sodactl profiles train: a model of the pairs that are known, kept, asked and taken back."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from slurm_soda.daemon.learning.profile_rows import value_from_row
from slurm_soda.daemon.learning.stored_profiles import read_slowdown_model
from slurm_soda.daemon.store.kind_profiles import all_values
from slurm_soda.daemon.store.tables.kind_profiles import StoredSlowdownModel
from slurm_soda.policies.sharing.job_kinds import JobKind, Source
from slurm_soda.policies.sharing.pair_knowledge.kind_profiles import KindProfiles

from .conftest import Bench

pytest.importorskip("scipy")

SPEEDS = {"alpha": 2.0, "beta": 4.0, "gamma": 8.0, "delta": 16.0, "epsilon": 32.0}
MISSING = {("alpha", "beta"), ("beta", "alpha")}


def key(model: str) -> str:
    return f"('{model} (batch size 8)', 1)"


def table() -> dict[str, Any]:
    """Slowdowns that follow from speeds, but for one pair that nobody measured."""
    jobs: dict[str, Any] = {key(model): {"null": speed} for model, speed in SPEEDS.items()}
    for one, other in product(SPEEDS, SPEEDS):
        if (one, other) not in MISSING:
            xi, its = (1.2 + 0.05 * SPEEDS[model] for model in (other, one))
            jobs[key(one)][key(other)] = [SPEEDS[one] / xi, SPEEDS[other] / its]
    # Too few to learn from: none of them counts.
    thin = {key("alpha"): {"null": 1.0, key("alpha"): [0.5, 0.5]}}
    return {"v100": jobs, "p100": thin}


@pytest.fixture
def trained(soda: Bench, tmp_path: Path) -> Bench:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(table()))
    soda("profiles", "import", str(path))
    assert "learned from 23 slowdowns of pairs on v100" in soda("profiles", "train").out
    return soda


def read_all(session: Session) -> KindProfiles:
    return KindProfiles((value_from_row(row) for row in all_values(session)), guess=read_slowdown_model(session))


def kind(model: str) -> JobKind:
    return JobKind(model, 8, "V100")


def test_a_pair_that_nobody_measured_is_predicted_with_an_error(trained: Bench) -> None:
    with trained.store.read() as session:
        knowledge = read_all(session)
    missing = knowledge.xi(kind("Alpha"), [kind("beta")])
    assert missing.source is Source.PREDICTED
    assert missing.error > 0
    assert 1.0 <= missing.value <= 3.0
    assert knowledge.xi(kind("alpha"), [kind("gamma")]).source is Source.IMPORTED
    assert knowledge.xi(kind("alpha"), [kind("unheard")]).source is Source.PRIOR
    assert knowledge.fits([kind("alpha"), kind("beta")]) is True, (
        "none of the pairs that were measured ran out of memory"
    )
    assert knowledge.fits([kind("alpha"), kind("unheard")]) is None


def test_pairs_shows_predictions_only_where_nothing_was_measured(trained: Bench) -> None:
    rows = trained("profiles", "pairs", "--predicted", "--source", "predicted", "--json").document["values"]
    assert {(row["model"], row["with"]) for row in rows} == MISSING
    assert {row["origin"] for row in rows} == {"trained model"}
    assert trained("profiles", "pairs", "--source", "predicted", "--json").document["values"] == []


def test_training_is_undone_like_any_change(trained: Bench) -> None:
    trained("profiles", "train")
    trained("profiles", "undo")
    with trained.store.read() as session:
        assert read_slowdown_model(session) is not None, "the one before is back"
    trained("profiles", "undo")
    with trained.store.read() as session:
        assert read_slowdown_model(session) is None


def test_too_little_to_learn_from(soda: Bench) -> None:
    said = soda("profiles", "train", status=1).err
    assert "0 slowdowns of pairs on one GPU are known, and 10 are needed" in said


def test_a_model_of_another_version_is_as_none(soda: Bench) -> None:
    soda.add(StoredSlowdownModel(at_s=1.0, summary="", document={"format": "of tomorrow"}))
    with soda.store.read() as session:
        assert read_all(session).xi(kind("a"), [kind("b")]).source is Source.PRIOR
