"""The C that runs as root or within sbatch, with any bytes that can reach it, under sanitizers that stop it at a fault.

No AFL or libFuzzer, which want clang: Hypothesis draws the bytes, and Python's own rules say what the answer must be.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.slurm_ext.hints import codec
from slurm_soda.slurm_ext.hints.flags import FLAGS
from tests.fuzz.fuzzing import anything, fuzz
from tests.prolog.conftest import EPILOG_ENV, PROLOG_ENV, Desk
from tests.prolog.test_deliver_event import as_bytes, compare

TOP = Path(__file__).resolve().parents[2]
SANITIZED = ("-std=gnu11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
VALUES = [b"cv", b"resnet50", b"256", b"1.250", b"12G", b"USR1@90", b"SIGTERM@2m", b"yes", b"9999999M", b"99.999"]


@pytest.fixture(scope="module")
def validate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin's rules as a program (tests/hints/validate_main.c)."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    program = tmp_path_factory.mktemp("validate") / "validate"
    sources = (TOP / "slurm_ext" / "spank" / "validate.c", TOP / "tests" / "hints" / "validate_main.c")
    subprocess.run(["cc", *SANITIZED, f"-I{TOP / 'slurm_ext' / 'spank'}", "-o", program, *sources], check=True)
    return program


def without_end(raw: bytes) -> bytes:
    """As an argument or a variable can be: up to the first NUL."""
    return raw.partition(b"\0")[0]


@fuzz(100)
@given(st.lists(st.tuples(st.sampled_from(FLAGS), anything(VALUES).map(without_end)), min_size=1, max_size=40))
def test_values_of_flags(validate: Path, asked: list[tuple[codec.HintFlag, bytes]]) -> None:
    told = b"".join(flag.option.removeprefix("--").encode() + b"\0" + value + b"\0" for flag, value in asked)
    done = subprocess.run([validate], input=told, capture_output=True, timeout=60, check=True)
    answers = done.stdout.decode("ascii").split("\0")[:-1]
    for (flag, raw), answer in zip(asked, answers, strict=True):
        text = raw.decode("utf-8", "surrogateescape")
        value = codec.canonical_value(flag, text)
        assert answer == (f"!{codec.refusal_text(flag, text)}" if value is None else f"={value}")


NAMES = sorted({*PROLOG_ENV, *EPILOG_ENV, "SPANK_SODA_MODEL", "SPANK_SODA_X"})
TEXTS = [value.encode() for value in (*PROLOG_ENV.values(), *EPILOG_ENV.values())]


@fuzz(60)
@given(
    kind=st.sampled_from(["open", "close"]),
    changed=st.dictionaries(st.sampled_from(NAMES).map(str.encode), anything(TEXTS).map(without_end), max_size=6),
)
def test_variables_of_a_job(
    deliver_event_program: Path,
    desk: Desk,
    kind: str,
    changed: dict[bytes, bytes],
) -> None:
    compare(deliver_event_program, desk, kind, {**as_bytes(PROLOG_ENV if kind == "open" else EPILOG_ENV), **changed})
