"""docs/commands.md names every command and every option, and every JSON key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from slurm_soda.sodactl.main import COMMANDS, run

from .conftest import Bench, subcommands

TEXT = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()


def section(name: str) -> str:
    match = re.search(rf"^## sodactl {re.escape(name)}\b.*?(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    assert match, f"docs/commands.md has no section on sodactl {name}"
    return match[0]


def leaves(command: click.Command) -> Iterator[click.Command]:
    if isinstance(command, click.Group):
        for sub in subcommands(command):
            yield from leaves(sub)
    else:
        yield command


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented(name: str) -> None:
    text = section(name)
    for command in leaves(COMMANDS[name].load()):
        assert f"`{command.name}" in text or f"sodactl {command.name}" in text or f"{name} {command.name}" in text
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                for option in parameter.opts:
                    assert f"`{option}" in text, f"{name} {command.name} {option}"


@pytest.mark.parametrize(
    "argv",
    [
        ["status", "--timings"],
        ["jobs"],
        ["history"],
        ["shares"],
        ["quarantine"],
        ["fit", "--user", "alice"],
        ["report"],
        ["fit", "--job", "7"],
        ["profiles", "list"],
        ["profiles", "edits"],
        ["policy"],
        ["mode"],
        ["undo", "--last", "1"],
        ["release-all"],
    ],
    ids=lambda argv: argv[0],
)
def test_every_key_is_documented(soda: Bench, argv: list[str]) -> None:
    soda.daemon()
    soda.cycle(timings_s={"observe": 0.1})
    for key in soda(*argv, "--json").document:
        assert f"`{key}`" in section(argv[0]), key


@pytest.mark.parametrize("name", ["simulate", "compare"])
def test_every_key_of_a_simulation_is_documented(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--jobs", "5", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    figures = next(iter(document.get("policies", [{}])))
    for key in document:
        assert f"`{key}`" in section(name), key
    for key in figures:
        assert f"`{key}`" in section(name) or f"`{key}`" in section("simulate"), key
