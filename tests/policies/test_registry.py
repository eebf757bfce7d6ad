"""Policies by name, and what their parameters may be."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.registry.catalog import POLICIES, describe_policies, make_policy, policy_names
from slurm_soda.policies.tiresias.policy import Tiresias


@pytest.mark.parametrize("name", policy_names())
def test_every_name_makes_the_policy_that_bears_it(name: str) -> None:
    policy = make_policy(name)
    assert isinstance(policy, Policy)
    assert policy.name == name


def test_defaults_that_are_shown_are_those_that_hold() -> None:
    for entry in POLICIES:
        by_default = make_policy(entry.name)
        for parameter in entry.parameters:
            held = getattr(by_default, parameter.name)
            np.testing.assert_array_equal(held, parameter.read(parameter.default))


def test_parameters_are_read() -> None:
    policy = make_policy(
        "tiresias-gittins",
        {"thresholds_gpu_s": [10, 20.5], "promote_knob": math.inf, "min_run_s": 0, "samples_gpu_s": [3, 1, 2]},
    )
    assert isinstance(policy, Tiresias)
    assert policy.thresholds_gpu_s == (10.0, 20.5)
    assert policy.samples_gpu_s.tolist() == [1.0, 2.0, 3.0]
    assert (policy.promote_knob, policy.min_run_s) == (math.inf, 0.0)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("lifo", {}, "there is no policy 'lifo'; choose one of: soda, fifo, fifo-skip, "),
    ("tiresia-las", {}, "colocation, srsf-share; did you mean tiresias-las?"),
    ("fifo", {"min_run_s": 1}, "policy fifo has no parameter 'min_run_s'; its parameters are: none"),
    ("backfill", {"estimate": "guess"}, "estimate = 'guess' is not allowed; use limit or predicted"),
    ("backfill", {"depth": 1.5}, "depth = 1.5 is not allowed; use a whole number from 0"),
    ("backfill", {"depth": -1}, "depth = -1 is not allowed"),
    ("backfill", {"depth": True}, "depth = True is not allowed"),
    ("tiresias-las", {"threshold": 1},
     "has no parameter 'threshold'; its parameters are: min_run_s, packlimit, promote_knob, thresholds_gpu_s"),
    ("tiresias-las", {"min_run_s": -1}, "min_run_s = -1 is not allowed; use a number from 0"),
    ("tiresias-las", {"min_run_s": "60"}, "min_run_s = '60' is not allowed"),
    ("tiresias-las", {"min_run_s": True}, "min_run_s = True is not allowed"),
    ("tiresias-las", {"min_run_s": math.nan}, "min_run_s = nan is not allowed"),
    ("tiresias-las", {"promote_knob": None}, "promote_knob = None is not allowed; use a number from 0, or inf"),
    ("tiresias-las", {"thresholds_gpu_s": 3200}, "thresholds_gpu_s = 3200 is not allowed; use an ascending list"),
    ("tiresias-las", {"thresholds_gpu_s": [5, 5]}, "thresholds_gpu_s = [5, 5] is not allowed"),
    ("tiresias-las", {"thresholds_gpu_s": [0, 5]}, "thresholds_gpu_s = [0, 5] is not allowed"),
    ("tiresias-las", {"thresholds_gpu_s": [math.inf]}, "thresholds_gpu_s = [inf] is not allowed"),
    ("tiresias-las", {"thresholds_gpu_s": "3200"}, "thresholds_gpu_s = '3200' is not allowed"),
    ("tiresias-gittins", {"samples_gpu_s": [1, "2"]}, "samples_gpu_s = [1, '2'] is not allowed"),
    ("tiresias-gittins", {"samples_gpu_s": [[1], [2]]}, "samples_gpu_s = [[1], [2]] is not allowed"),
    ("tiresias-gittins", {"samples_gpu_s": [[1], [2, 3]]}, "samples_gpu_s = [[1], [2, 3]] is not allowed"),
    ("tiresias-gittins", {"samples_gpu_s": [1, 0]}, "use a list of positive numbers"),
    ("tiresias-gittins", {"samples_gpu_s": 7}, "samples_gpu_s = 7 is not allowed"),
    ("tiresias-gittins", {"samples_gpu_s": [-1] * 1000}, "..."),
    ("soda", {"change_s": -1}, "change_s = -1 is not allowed; use a number from 0 to 1e+12"),
    ("soda", {"change_s": math.nan}, "change_s = nan is not allowed"),
    ("soda", {"change_s": 1e308}, "change_s = 1e+308 is not allowed"),
    ("srsf-share", {"change_s": 1e308}, "change_s = 1e+308 is not allowed; use a number from 0 to 1e+12"),
    ("soda", {"resolution": 0.99}, "resolution = 0.99 is not allowed; use a number from 1, or inf"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "parameters", "message"), BAD, ids=[f"{name} {given}"[:60] for name, given, _ in BAD])
def test_bad_names_and_values_are_refused_in_one_line(name: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError) as refused:
        make_policy(name, parameters)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_describe_names_every_parameter_with_its_unit() -> None:
    described = {entry["name"]: entry for entry in describe_policies()}
    assert list(described) == list(policy_names())
    assert [parameter["name"] for parameter in described["tiresias-las"]["parameters"]] == [
        "thresholds_gpu_s", "within_queue", "promote_knob", "min_run_s", "packlimit"
    ]  # fmt: skip
    assert all(parameter["unit"] for entry in described.values() for parameter in entry["parameters"])


def test_the_index_of_the_documentation_says_for_whom_each_policy_is() -> None:
    folder = Path(__file__).parents[2] / "docs" / "policies"
    rows = re.findall(
        r"^\| \[`(.+?)`\]\((.+?)\) \| (.+?) \| (.+?) \|$", (folder / "README.md").read_text(), re.MULTILINE
    )
    assert [(name, for_whom, summary) for name, _, for_whom, summary in rows] == [
        (entry.name, entry.for_whom, entry.summary) for entry in POLICIES
    ]
    for name, page, *_ in rows:
        assert f"`{name}`" in (folder / page).read_text() or name == Path(page).stem, name


def test_for_whom_names_a_site_and_what_it_must_know() -> None:
    for entry in POLICIES:
        assert re.fullmatch(r"(recommended: )?a site [^;]+; it must know [^;]+", entry.for_whom), entry.name
