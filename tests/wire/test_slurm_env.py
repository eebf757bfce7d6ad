"""slurmd's environment is bounded and never makes a prolog fail."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.prolog.main import make_open_event
from slurm_soda.wire import slurm_env
from slurm_soda.wire.event_delivery import MAX_EVENT_BYTES
from slurm_soda.wire.records import MAX_FAULT_LENGTH


@pytest.mark.parametrize(
    ("value", "indices"),
    [
        ("", []), ("0", [0]), ("0,1", [0, 1]), ("3,1,1", [1, 3]), ("0-3", [0, 1, 2, 3]), ("0-1,7", [0, 1, 7]),
        ("N/A", []), ("a,2", [2]), ("1-", []), ("-1", []), ("3-1", []), ("٣", []), ("99999999999", []),
    ],
)  # fmt: skip
def test_gpu_indices(value: str, indices: list[int]) -> None:
    assert slurm_env.read_gpu_indices({"SLURM_JOB_GPUS": value}) == indices


@pytest.mark.parametrize(
    ("value", "number"), [("7", 7), ("", 5), ("-1", 5), ("1e3", 5), ("٣", 5), ("4294967296", 5), ("9" * 99, 5)]
)
def test_whole(value: str, number: int) -> None:
    assert slurm_env.read_integer({"X": value}, "X", default=5) == number


def test_text_is_cut_and_has_no_control_characters() -> None:
    assert slurm_env.read_text({"X": "a\nb\x1b[31m\x9bc" + "d" * 500}, "X", 12) == "a?b?[31m?cdd"


@pytest.mark.parametrize("filler", ["A", '"', "\\", "\udcff", "\U0001f600", "\n"])
def test_no_user_can_make_the_opening_too_long_to_be_kept(filler: str) -> None:
    chosen = {f"SPANK_SODA_{i:053}": filler * 9000 for i in range(99)} | {"SLURM_JOB_COMMENT": filler * 9000}
    slurms = dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_PARTITION"), "n" * 9000)
    event = make_open_event({"SLURM_JOB_ID": "7", "SLURM_JOB_USER": filler * 99, **slurms, **chosen}, 1.0, "n1")
    assert len(json.dumps(event)) < MAX_EVENT_BYTES - MAX_FAULT_LENGTH


def test_only_the_plugins_own_variables_are_hints() -> None:
    environ = {"SPANK_SODA_MODEL": "x\ny", "SPANK_OTHER": "1", "SODA_MODEL": "2", "SPANK_SODA_" + "A" * 99: "3"}
    assert slurm_env.read_hints(environ) == {"SPANK_SODA_MODEL": "x?y"}


@given(st.dictionaries(st.sampled_from(["SLURM_JOB_GPUS", "SPANK_SODA_X", "X"]) | st.text(), st.text()))
def test_nothing_ever_raises(environ: dict[str, str]) -> None:
    assert len(slurm_env.read_gpu_indices(environ)) <= slurm_env.MAX_TEXT
    assert len(slurm_env.read_hints(environ)) <= slurm_env.MAX_HINTS
    assert 0 <= slurm_env.read_integer(environ, "X") <= 0xFFFF_FFFF
