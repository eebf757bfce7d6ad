"""The command group: lazy loading, exit codes, one-line errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl import main
from slurm_soda.sodactl.main import COMMANDS, LazyCommand, run

SODACTL = Path(sys.executable).parent / "sodactl"
OWN = [name for name in COMMANDS if name not in ("cluster", "demo", "bench")]
ON_NO_SITE = ("completion", "simulate", "compare", "whatif")


def test_help_lists_every_command_and_imports_none() -> None:
    code = (
        "import sys; from slurm_soda.sodactl.main import run; run(['--help']);"
        "print(sorted(m for m in sys.modules if m in ('sqlalchemy', 'rich', 'docker', 'numpy', 'pydantic')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_says_the_summary_that_the_group_shows(name: str) -> None:
    command = COMMANDS[name].load()
    assert (command.help or "").split("\n", 1)[0] == COMMANDS[name].summary


@pytest.mark.parametrize("name", OWN)
def test_each_help_teaches_by_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Examples:" in out
    assert f"sodactl {name}" in out


@pytest.mark.parametrize("name", [name for name in OWN if name not in ON_NO_SITE])
def test_each_command_has_json_and_config(name: str) -> None:
    command = COMMANDS[name].load()
    for each in command.commands.values() if isinstance(command, click.Group) else [command]:
        assert {"--json", "--config"} <= {option for parameter in each.params for option in parameter.opts}


def test_a_command_that_cannot_be_imported_does_not_break_the_rest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = LazyCommand("slurm_soda.nowhere:nothing", "Broken.")
    monkeypatch.setattr(main, "COMMANDS", {**COMMANDS, "demo": broken})
    assert run(["--help"]) == 0
    assert run(["demo"]) == main.EXIT_FAILED
    out, err = capsys.readouterr()
    assert "demo" in out
    assert err == (
        "sodactl: this command cannot be loaded: No module named 'slurm_soda.nowhere'; "
        "reinstall slurm-soda with its dependencies\n"
    )


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (["nope"], 2, "No such command 'nope'"),
        (["status", "--nope"], 2, "No such option"),
        (["mode", "destroy"], 2, "'destroy' is not one of 'observe', 'advise', 'enforce'"),
        (["status", "--config", "/nonexistent.toml"], 1, "/nonexistent.toml: No such file or directory"),
        (["explain", "x"], 2, "'x' is not a valid"),
        (["undo"], 2, "give exactly one of"),
        (["undo", "3", "--last", "2"], 2, "give exactly one of"),
        (["history", "--since", "soon"], 2, "'soon' is no time; use a span such as 90m"),
    ],
)
def test_wrong_usage_and_failures(argv: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(argv) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err


def test_an_error_is_one_safe_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def bad() -> None:
        raise SodaError("job \x1b[31m\udcff\nsecond line")

    monkeypatch.setattr(LazyCommand, "load", lambda self: bad)
    assert run(["status"]) == 1
    assert capsys.readouterr().err == "sodactl: job \\x1b[31m\\xff second line\n"


def test_ctrl_c_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def slow() -> None:
        signal.raise_signal(signal.SIGINT)  # os.kill may come to another thread of the process, and so too late

    monkeypatch.setattr(LazyCommand, "load", lambda self: slow)
    assert run(["status"]) == main.EXIT_INTERRUPTED
    assert capsys.readouterr().err.strip() == "interrupted"


def test_a_reader_that_leaves_early_causes_no_traceback() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{SODACTL} --help | true; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert "_SODACTL_COMPLETE" in capsys.readouterr().out


def test_completion_knows_commands_and_options() -> None:
    def complete(*words: str) -> set[str]:
        env = {**os.environ, "_SODACTL_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(("sodactl", *words)),
               "COMP_CWORD": str(len(words))}  # fmt: skip
        done = subprocess.run([SODACTL], env=env, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return {line.split(",", 1)[1] for line in done.stdout.splitlines() if line}

    assert complete("he") == set()
    assert complete("p") == {"policy", "pools", "profiles"}
    assert complete("d") == {"doctor", "demo"}
    assert {"--since", "--job", "--json"} <= complete("history", "--")
    assert complete("mode", "e") == {"enforce"}
