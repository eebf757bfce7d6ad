"""The command group: lazy loading, exit codes, one-line errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl import main
from slurm_soda.sodactl.command_line.lazy_commands import LazyGroup
from slurm_soda.sodactl.main import COMMANDS, GROUPS, LazyCommand, cli, run
from tests.sodactl.conftest import subcommands

SODACTL = Path(sys.executable).parent / "sodactl"
OWN = [name for name in COMMANDS if name not in ("cluster", "demo", "bench")]
ON_NO_SITE = ("completion", "simulate", "compare", "whatif", "decide")


def test_help_lists_every_command_and_imports_none() -> None:
    code = (
        "import sys; from slurm_soda.sodactl.main import run; run(['--help']);"
        "print(sorted(m for m in sys.modules if m in ('sqlalchemy', 'rich', 'docker', 'numpy', 'pydantic')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout
    assert done.stdout.endswith("[]\n")


def test_help_shows_commands_by_whom_they_are_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    titles = [line.removesuffix(":") for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles[-3:] == ["For users", "For admins", "Simulation and test clusters"]
    commands: dict[str, list[str]] = {}
    title = ""
    for line in shown.splitlines():
        if line.removesuffix(":") in GROUPS:
            title = line.removesuffix(":")
        elif title and line.strip():
            commands.setdefault(title, []).append(line.split()[0])
    assert commands == {title: list(group) for title, group in GROUPS.items()}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_says_the_summary_that_the_group_shows(name: str) -> None:
    command = COMMANDS[name].load()
    assert (command.help or "").split("\n", 1)[0] == COMMANDS[name].summary


@pytest.mark.parametrize("name", [name for name in OWN if isinstance(COMMANDS[name].load(), LazyGroup)])
def test_so_does_each_command_of_a_group_that_loads_lazily(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    group = COMMANDS[name].load()
    assert isinstance(group, LazyGroup)
    for sub, lazy in group.lazy_commands.items():
        command = lazy.load()
        assert (command.name, (command.help or "").split("\n", 1)[0]) == (sub, lazy.summary)
        assert "Examples:" in (command.help or "")
    assert run([name, "chekc"]) == main.EXIT_USAGE
    assert "did you mean check?" in capsys.readouterr().err


@pytest.mark.parametrize("name", OWN)
def test_each_help_teaches_by_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Examples:" in out
    assert f"sodactl {name}" in out


@pytest.mark.parametrize("name", [name for name in OWN if name not in ON_NO_SITE])
def test_each_command_has_json_and_config(name: str) -> None:
    command = COMMANDS[name].load()
    for each in subcommands(command) if isinstance(command, click.Group) else [command]:
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
        "reinstall slurm-soda with its dependencies, or with the extra that this needs: docs/install.md\n"
    )


@pytest.mark.parametrize("name", ["demo", "cluster"])
def test_a_command_without_its_extra_names_it(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after `make venv`, which brings no docker."""
    for module in [module for module in sys.modules if module.startswith("slurm_soda.sodactl.containers")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "docker", None)
    for module in [module for module in sys.modules if module.startswith(("slurm_soda.containers", "slurm_soda.demo"))]:
        monkeypatch.delitem(sys.modules, module)
    assert run([name, "--help"]) == main.EXIT_FAILED
    assert "it needs the extra demo: pip install 'slurm-soda[demo]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (["nope"], 2, "No such command 'nope'"),
        (["status", "--nope"], 2, "No such option"),
        (["mode", "destroy"], 2, "'destroy' is not one of 'observe', 'advise', 'enforce'"),
        (["status", "--config", "/nonexistent.toml"], 1, "/nonexistent.toml: No such file or directory"),
        (["explian", "7"], 2, "No such command 'explian'; did you mean explain?"),
        (["explain", "x"], 2, "'x' is not a valid"),
        (
            ["explain", "abc"],
            2,
            "'abc' is not a valid job id; give its number, such as 4711; `sodactl jobs` lists jobs",
        ),
        (["explain", "0"], 2, "'0' is not a valid job id"),
        (["explain", "4294967296"], 2, "'4294967296' is not a valid job id"),
        (["explain", "47_x"], 2, "'47_x' is not a valid job id; give its number, such as 4711"),
        (["explain", "7", "--with", "abc"], 2, "'abc' is not a valid job id"),
        (["policy", "tiresias-la"], 1, "did you mean tiresias-las?"),
        (["simulate", "--policy", "backfil"], 2, "did you mean backfill?"),
        (["compare", "--policy", "fifos"], 2, "did you mean fifo?"),
        (["simulate", "--set", "changes_s=1"], 2, "did you mean change_s?"),
        (["simulate", "--workload", "smal"], 2, "did you mean small?"),
        (["simulate", "--csv", "-", "--json"], 2, "--csv - and --json both write to standard output"),
        (["compare", "--csv", "-"], 2, "each run has a file of its own, so name a folder"),
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


def complete(*words: str) -> set[str]:
    """What the shell is offered for the last word."""
    return {item.value for item in ShellComplete(cli, {}, "sodactl", "").get_completions(list(words[:-1]), words[-1])}


def test_completion_by_the_program_itself() -> None:
    env = {**os.environ, "_SODACTL_COMPLETE": "bash_complete", "COMP_WORDS": "sodactl mode e", "COMP_CWORD": "2"}
    done = subprocess.run([SODACTL], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("plain,enforce\n", "")


def test_completion_knows_commands_and_options() -> None:
    assert complete("he") == set()
    assert complete("p") == {"page", "policy", "pools", "profiles"}
    assert complete("d") == {"decide", "doctor", "demo"}
    assert {"--since", "--job", "--json"} <= complete("history", "--")
    assert complete("mode", "e") == {"enforce"}
    assert complete("policy", "l") == {"list"}
    assert complete("policy", "tiresias") == {"tiresias-las", "tiresias-gittins"}
    assert complete("simulate", "--policy", "srsf") == {"srsf", "srsf-share"}
    assert complete("simulate", "--policy", "srsf", "--set", "") == {"min_run_s="}
    assert complete("compare", "--policy", "gandiva", "--policy", "srsf", "--set", "") == {"quantum_s=", "min_run_s="}
    assert complete("compare", "--set", "gandiva.") == {"gandiva.quantum_s="}
    assert "thresholds_gpu_s=" in complete("simulate", "--set", "th")
    assert complete("simulate", "--policy", "fi") == {"fifo", "fifo-skip"}
    assert complete("simulate", "--workload", "phi") == {"philly-month"}
    assert complete("compare", "--format", "sw") == {"swf", "swf-gpu"}
    assert {"--trace", "--cluster", "--policy"} <= complete("simulate", "--")


@pytest.mark.parametrize("name", ["jobs", "explain"])
def test_without_slurms_commands_the_line_says_what_to_do(name: str, tmp_path: Path) -> None:
    code = (
        "import sys; from slurm_soda.slurm_ext import command_runner as runner; from slurm_soda.sodactl.main import run;"
        f"runner.SLURM_ENVIRONMENT['PATH'] = '{tmp_path}'; sys.exit(run(sys.argv[1:]))"
    )
    (tmp_path / "sh").symlink_to("/bin/sh")
    config = tmp_path / "soda.toml"
    config.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/none.db"\n')
    words = [name, *(["7"] if name == "explain" else []), "--config", str(config)]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "squeue is not installed on this host: run this where Slurm's commands are" in done.stderr
    assert "exited with status" not in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["--help"], ["completion", "bash"], ["simulate", "--jobs", "2", "--csv", "-"]])
def test_a_full_output_is_one_line(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([SODACTL, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    said = "standard output cannot be written: No space left on device; make room there, or write it elsewhere"
    assert (done.returncode, done.stderr) == (1, f"sodactl: {said}\n")


def test_a_closed_output_is_no_crash() -> None:
    words = [SODACTL, "policy", "list", "--config", "/dev/null"]
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["history", "--limit", 20 * "9"], "is not in the range 0<=x<=1000000000"),
        (["fit", "--jobs", "--limit", 20 * "9"], "is not in the range 0<=x<=1000000000"),
        (["undo", 20 * "9"], "is not in the range 1<=x<=1000000000"),
        (["undo", "--last", 20 * "9"], "is not in the range 1<=x<=1000000000"),
        (["history", "--user", "\udcff"], "'\\udcff' is no name: it must be UTF-8"),
        (["fit", "--user", "\udcff"], "'\\udcff' is no name: it must be UTF-8"),
        (["fit", "--model", "\udcff"], "'\\udcff' is no name: it must be UTF-8"),
        (["pools", "log", "--hours", "nan"], "'nan' is not a finite number"),
        (["snapshot", "dump", "x", "--wait", "nan"], "'nan' is not a finite number"),
    ],
)
def test_what_no_store_can_be_asked_for_is_wrong_usage(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == main.EXIT_USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--jobs", 14 * "9"], ["--nodes", 14 * "9"], ["--seed", "-1"]])
def test_a_cluster_that_cannot_be_made_up_is_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "decide", *words]) == main.EXIT_USAGE
    assert "is not in the range" in capsys.readouterr().err
