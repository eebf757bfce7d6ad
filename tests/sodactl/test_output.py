"""Printing what others wrote: nothing acts on a terminal, nothing is lost in JSON."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.sodactl import output

from .conftest import HOSTILE


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, [red] and | \"quotes\"", 'plain text, [red] and | "quotes"'),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\udcff\udc80", "\\xff\\x80"),
        ("\ud800", "\\ud800"),
        ("\u202eabc\u200b", "\\u202eabc\\u200b"),
        ("漢字 🚀 ü", "漢字 🚀 ü"),
        ("\x7f\x9b", "\\x7f\\x9b"),
    ],
)  # fmt: skip
def test_what_is_not_plain_text_is_spelled_out(text: str, shown: str) -> None:
    assert output.escape_unprintable(text) == shown


@given(st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape")))
def test_printable_is_printable_and_needs_no_second_time(text: str) -> None:
    once = output.escape_unprintable(text)
    assert once.isprintable()
    assert output.escape_unprintable(once) == once


@given(st.binary())
def test_json_carries_every_byte(raw: bytes) -> None:
    text = json.loads(json.dumps(raw.decode("utf-8", "surrogateescape"), ensure_ascii=True))
    assert text.encode("utf-8", "surrogateescape") == raw


def test_json_has_no_numbers_that_json_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"a": math.nan, "b": [math.inf, 1.5], "c": {"d": (-math.inf, "\udcff")}})
    out = capsys.readouterr().out
    assert json.loads(out) == {"a": None, "b": [None, 1.5], "c": {"d": [None, "\udcff"]}}
    assert out.isascii()


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (0.1 + 0.2, "0.3"), (3 * 1.1, "3.3"), (1e6 + 0.1 + 0.2, "1000000.3"), (1 / 3, "0.333333333333"), (5e-324, "5e-324"),
        (1.5e-9, "1.5e-09"), (1_700_000_000.123456, "1700000000.123456"), (1_700_000_000.25, "1700000000.25"), (0.0, "0.0"),
        (4711, "4711"), (2**63 + 1, "9223372036854775809"), (1e18, "1e+18"), (True, "true"), (np.float64(0.1) * 3, "0.3"),
    ],
)  # fmt: skip
def test_json_has_the_digits_that_count(value: float, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"value": [value]})
    assert capsys.readouterr().out.split()[-3] == printed


@given(st.integers(0, 2**31), st.integers(0, 999_999))
def test_json_keeps_the_microseconds_of_a_time(seconds: int, micros: int) -> None:
    at_s = seconds + micros / 1e6
    assert round(output.without_nonfinite_numbers(at_s) * 1e6) == round(at_s * 1e6)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_table_holds_a_hostile_cell_on_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table([output.Column("name"), output.Column("n", right=True)], [(text, "1"), ("x" * 150, "2")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
    assert lines[2].startswith("x" * 150)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"), (math.nan, "-"), (math.inf, "unlimited"), (0, "0 ms"), (0.0042, "4 ms"), (0.9999, "1.0 s"),
        (3.21, "3.2 s"), (59.96, "1 min 00 s"), (303, "5 min 03 s"), (3599.7, "1 h 00 min"), (7500, "2 h 05 min"),
        (273600, "3 d 04 h"), (-90, "-1 min 30 s"),
    ],
)  # fmt: skip
def test_durations_for_people(seconds: float | None, shown: str) -> None:
    assert output.format_duration(seconds) == shown


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (output.format_percent(0.456), "46 %"),
        (output.format_percent(None), "-"),
        (output.format_amount(12345.6, "MiB"), "12,346 MiB"),
        (output.format_amount(None, "MiB"), "-"),
        (output.format_hints({"model": "x", "share": "no"}), "model=x share=no"),
        (output.format_instant(None), "-"),
        (output.format_instant(math.nan), "-"),
        (output.format_instant(2.0**40), "1099511627776 s since 1970"),
        (output.format_instant(-1e300), "-1e+300 s since 1970"),
    ],
)
def test_figures_for_people(call: str, shown: str) -> None:
    assert call == shown
