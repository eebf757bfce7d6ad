"""The Python codec by itself: tables of values, round trips, hostile comments."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.slurm_ext.errors import HintError
from slurm_soda.slurm_ext.hints import codec
from slurm_soda.slurm_ext.hints.flags import FLAG_BY_KEY, FLAGS, Hints
from tests.hints.values import ALLOWED, REFUSED, any_text, comments, near_values, some_hints


@pytest.mark.parametrize(("key", "text", "expected"), ALLOWED)
def test_allowed_values_become_canonical(key: str, text: str, expected: str) -> None:
    assert codec.parse_flag(key, text) == expected
    assert codec.parse_flag(FLAG_BY_KEY[key].option, text) == expected


@pytest.mark.parametrize(("key", "text"), REFUSED)
def test_refusal_is_one_safe_line_with_flag_value_and_remedy(key: str, text: str) -> None:
    flag = FLAG_BY_KEY[key]
    with pytest.raises(HintError) as caught:
        codec.parse_flag(key, text)
    line = str(caught.value)
    assert line == f"{flag.option}: {codec.quote_for_log(text)} is not allowed; use {flag.allowed}"
    assert line.isprintable()
    assert line.isascii()


def test_refusal_reads_well() -> None:
    with pytest.raises(HintError) as caught:
        codec.parse_flag("--soda-batch-size", "64; rm -rf /")
    assert str(caught.value) == (
        '--soda-batch-size: "64; rm -rf /" is not allowed; use a whole number from 1 to 9999999'
    )


def test_unknown_flag_names_the_known_ones() -> None:
    with pytest.raises(HintError, match=r'^"--soda-epochs" is no flag; use one of --soda-category, .*--soda-service$'):
        codec.parse_flag("--soda-epochs", "3")


@given(st.sampled_from(FLAGS), near_values)
def test_canonical_form_is_stable_and_fits_the_grammar(flag: object, text: str) -> None:
    value = codec.canonical_value(flag, text)  # type: ignore[arg-type]
    if value is not None:
        assert codec.canonical_value(flag, value) == value  # type: ignore[arg-type]
        assert value
        assert not set(value) & set(' ,="')


@given(some_hints)
def test_every_hint_survives_tag_dictionary_and_environment(hints: Hints) -> None:
    tag = codec.encode_tag(hints)
    values = codec.hints_to_dict(hints)
    assert codec.decode_comment(tag) == codec.DecodedComment(hints, "")
    assert codec.hints_from_dict(values) == hints
    env = {f"SPANK_{FLAG_BY_KEY[key].env}": text for key, text in values.items()}
    assert codec.hints_from_env({**env, "SODA_SHARE": "yes", "PATH": "/bin"}, "SPANK_") == hints
    assert len(tag) <= codec.TAG_MAX_BYTES


def test_longest_tag_fits() -> None:
    longest = Hints(
        "speech",
        "m" * 64,
        9999999,
        999999999999,
        True,
        True,
        True,
        False,
        99.999,
        9999999,
        True,
        "TERM",
        3600,
        "s" * 40,
    )
    assert len(codec.encode_tag(longest)) <= codec.TAG_MAX_BYTES


@given(comments, some_hints)
def test_the_users_text_survives(comment: str, hints: Hints) -> None:
    decoded = codec.decode_comment(codec.attach_tag(comment, hints))
    assert decoded.text == codec.strip_tags(comment)
    assert decoded.hints == hints
    assert decoded.problems == ()


@given(any_text.filter(lambda text: "soda:" not in text), some_hints)
def test_text_without_tags_is_kept_byte_for_byte(text: str, hints: Hints) -> None:
    assert codec.strip_tags(text) == text
    assert codec.decode_comment(codec.attach_tag(text, hints)).text == text


@given(comments)
def test_stripping_leaves_nothing_that_reads_as_a_tag(comment: str) -> None:
    stripped = codec.strip_tags(comment)
    assert codec.strip_tags(stripped) == stripped
    assert codec.decode_comment(stripped) == codec.DecodedComment(Hints(), stripped)


@pytest.mark.parametrize(
    ("comment", "text", "hints", "problems"),
    [
        ("", "", Hints(), 0),
        ("just words", "just words", Hints(), 0),
        ("x soda:1:model=resnet50,batch_size=64", "x", Hints(model="resnet50", batch_size=64), 0),
        ("x soda:1:share=yes y", "x y", Hints(), 0),
        ("soda:1:share=yes soda:1:share=no", "", Hints(share=False), 0),
        ("x\nsoda:1:share=yes", "x\nsoda:1:share=yes", Hints(), 0),
        ("x soda:1:", "x", Hints(), 1),
        ("x soda:2:share=yes", "x", Hints(), 1),
        ("x soda:1:batch_size=0,share=yes", "x", Hints(share=True), 1),
        ("x soda:1:colour=red,share=yes,share=no,,", "x", Hints(share=True), 4),
        ("x soda:1:model=$(id)", "x", Hints(), 1),
    ],
)
def test_reading_drops_and_reports_what_it_cannot_read(comment: str, text: str, hints: Hints, problems: int) -> None:
    decoded = codec.decode_comment(comment)
    assert (decoded.text, decoded.hints, len(decoded.problems)) == (text, hints, problems)


@given(st.text() | comments)
def test_reading_never_raises_and_reports_in_safe_lines(text: str) -> None:
    for comment in (text, f"soda:1:{text}", f"{text} soda:1:model={text},share=yes"):
        decoded = codec.decode_comment(comment)
        assert all(problem.isprintable() and problem.isascii() for problem in decoded.problems)
        codec.encode_tag(decoded.hints)


def test_environment_problems_are_reported() -> None:
    problems: list[str] = []
    hints = codec.hints_from_env({"SODA_SHARE": "perhaps", "SODA_MODEL": "vgg16"}, problems=problems)
    assert hints == Hints(model="vgg16")
    assert problems == ['--soda-share: "perhaps" is not allowed; use yes or no']


@pytest.mark.parametrize("hints", [Hints(batch_size=0), Hints(max_slowdown=float("nan")), Hints(model="a b")])
def test_writing_a_value_that_is_not_allowed_raises(hints: Hints) -> None:
    with pytest.raises(HintError):
        codec.encode_tag(hints)


def test_import_needs_no_regular_expressions_of_its_own_and_nothing_outside_the_standard_library() -> None:
    program = (
        "import sys, dataclasses; before = set(sys.modules); import slurm_soda.slurm_ext.hints.codec;"
        "print(*sorted(m for m in set(sys.modules) - before if not m.startswith('slurm_soda') and m[0] != '_'))"
    )
    new = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert set(new) <= set(sys.stdlib_module_names)
    assert len(new) <= 5, new
