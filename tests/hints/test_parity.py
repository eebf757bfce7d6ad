"""C, lua and Python accept, refuse and normalise exactly alike, and carry the same table."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.slurm_ext.hints import codec, flag_tables
from slurm_soda.slurm_ext.hints.flags import FLAG_BY_KEY, FLAGS, HintFlag
from tests.hints.lua_site import LUA_VERSIONS, LuaSite
from tests.hints.values import ALLOWED, REFUSED, comments, near_values, some_hints

ROOT = Path(__file__).parents[2] / "slurm_ext"
Verdict = Callable[[HintFlag, str], str]
"""``=canonical`` or ``!refusal``."""


def raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def python_verdict(flag: HintFlag, text: str) -> str:
    value = codec.canonical_value(flag, text)
    return f"!{codec.refusal_text(flag, text)}" if value is None else f"={value}"


class Validator:
    """The plugin's validate.c as a process."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, option: str, value: bytes, replies: int) -> list[str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(option.encode() + b"\0" + value + b"\0")
        self.process.stdin.flush()
        answer = b""
        while answer.count(b"\0") < replies:
            chunk = os.read(self.process.stdout.fileno(), 65536)
            assert chunk, "the validator ended"
            answer += chunk
        return [text.decode("ascii") for text in answer.split(b"\0")[:-1]]

    def verdict(self, flag: HintFlag, text: str) -> str:
        return self.ask(flag.option.removeprefix("--"), raw(text), 1)[0]


@pytest.fixture(scope="module")
def validator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Validator]:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here; the plugin is also compiled and used by the tests marked slurm")
    program = tmp_path_factory.mktemp("validate") / "validate"
    flags = ["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined",
             "-fno-sanitize-recover=all", f"-I{ROOT / 'spank'}"]  # fmt: skip
    sources = [ROOT / "spank" / "validate.c", Path(__file__).with_name("validate_main.c")]
    subprocess.run([compiler, *flags, "-o", program, *sources], check=True)
    validator = Validator(program)
    yield validator
    assert validator.process.stdin is not None
    validator.process.stdin.close()
    assert validator.process.wait(10) == 0


@pytest.fixture(scope="module", params=LUA_VERSIONS)
def site(request: pytest.FixtureRequest) -> LuaSite:
    return LuaSite(request.param)


def lua_verdict(site: LuaSite, flag: HintFlag, text: str) -> str:
    found = next(f for f in site.hints[b"flags"].values() if f[b"key"] == flag.key.encode())
    value = found[b"rule"](raw(text))
    verdict: bytes = b"!" + site.hints[b"refusal"](found, raw(text)) if value is None else b"=" + value
    return verdict.decode("ascii")


CASES = [(key, text) for key, text, _ in ALLOWED] + REFUSED


@pytest.mark.parametrize(("key", "text"), CASES)
def test_c_table_of_values(validator: Validator, key: str, text: str) -> None:
    assert validator.verdict(FLAG_BY_KEY[key], text) == python_verdict(FLAG_BY_KEY[key], text)


@given(st.sampled_from(FLAGS), near_values)
def test_c_any_value(validator: Validator, flag: HintFlag, text: str) -> None:
    assert validator.verdict(flag, text) == python_verdict(flag, text)


def test_c_table_of_flags(validator: Validator) -> None:
    texts = validator.ask("", b"", 5 * len(FLAGS))
    expected = [
        text
        for flag in FLAGS
        for text in (flag.option.removeprefix("--"), flag.env, flag.metavar, flag.allowed, flag.usage)
    ]
    assert texts == expected


def test_lua_table_of_values(site: LuaSite) -> None:
    for key, text in CASES:
        assert lua_verdict(site, FLAG_BY_KEY[key], text) == python_verdict(FLAG_BY_KEY[key], text)


@given(st.sampled_from(FLAGS), near_values)
def test_lua_any_value(site: LuaSite, flag: HintFlag, text: str) -> None:
    assert lua_verdict(site, flag, text) == python_verdict(flag, text)


def test_lua_table_of_flags(site: LuaSite) -> None:
    found = [tuple(f[name].decode() for name in (b"option", b"env", b"allowed")) for f in site.hints[b"flags"].values()]
    assert found == [(flag.option, flag.env, flag.allowed) for flag in FLAGS]


@given(comments)
def test_lua_strips_like_python(site: LuaSite, comment: str) -> None:
    assert site.hints[b"strip"](raw(comment)) == raw(codec.strip_tags(comment))


@given(some_hints)
def test_lua_writes_the_tag_that_python_writes(site: LuaSite, hints: Any) -> None:
    values = codec.hints_to_dict(hints)
    env = [f"{FLAG_BY_KEY[key].env}={text}".encode() for key, text in values.items()]
    refused: list[bytes] = []
    assert (
        site.hints[b"tag_from_env"](site.table(dict(enumerate(env))), refused.append)
        == codec.encode_tag(hints).encode()
    )
    assert refused == []


def test_the_tables_for_c_and_lua_are_current() -> None:
    """After a change of FLAGS: ``make flags``."""
    assert flag_tables.HEADER.read_text() == flag_tables.c_header()
    lua = flag_tables.LUA.read_text()
    assert lua == flag_tables.with_table(lua)
