"""Manual pages say what ``--help`` says, for every command, and nothing that troff would take for a request."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from slurm_soda.sodactl.command_line.manual_pages import NOT_IN_PACKAGES, main, manual_pages
from slurm_soda.sodactl.main import cli


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return manual_pages()


def commands(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Commands by the words that call them."""
    yield words, command
    if isinstance(command, click.Group):
        ctx = click.Context(command, info_name=words)
        for word in command.list_commands(ctx):
            below = command.get_command(ctx, word)
            if below is not None and not below.hidden and not (words == "sodactl" and word in NOT_IN_PACKAGES):
                yield from commands(f"{words} {word}", below)


def plain(page: str) -> str:
    return page.replace("\\-", "-").replace("\\e", "\\").replace("\\&", "")


def test_each_command_has_its_page_with_all_options(pages: dict[str, str]) -> None:
    found = dict(commands("sodactl", cli))
    assert {f"{words.replace(' ', '-')}.1" for words in found} | {"sodad.8", "soda-agent.8"} == pages.keys()
    for words, command in found.items():
        page = plain(pages[f"{words.replace(' ', '-')}.1"])
        options = [one for param in command.params if isinstance(param, click.Option) for one in param.opts]
        assert not [option for option in options if option not in page], words
        assert f".SH SYNOPSIS\n.B {words}\n" in page


def test_examples_keep_their_lines(pages: dict[str, str]) -> None:
    assert "\n.nf\nExamples:\n  sodactl status              is it running" in plain(pages["sodactl.1"])
    assert "sodactl pools plan --json | jq .obstacles\n.fi\n" in plain(pages["sodactl-pools-plan.1"])


def test_daemons_have_theirs(pages: dict[str, str]) -> None:
    assert "--prepare-for REVISION\n" in plain(pages["sodad.8"])
    assert "\n.B --mode observe|advise|enforce\n" in plain(pages["sodad.8"])
    assert "/etc/slurm-soda/agent.toml" in plain(pages["soda-agent.8"])


def test_every_request_is_one_of_ours(pages: dict[str, str]) -> None:
    """Text that begins with a dot or a quote would be lost."""
    known = re.compile(r"\.(TH|SH|B|I|BR|TP|PP|nf|fi)\b|[^.']|$")
    for name, page in pages.items():
        assert not [line for line in page.splitlines() if not known.match(line)], name


@pytest.mark.skipif(not shutil.which("groff"), reason="no groff here")
@pytest.mark.parametrize("name", ["sodactl.1", "sodactl-pools-plan.1", "sodad.8"])
def test_troff_has_no_objection(pages: dict[str, str], name: str) -> None:
    argv = ["groff", "-man", "-Tutf8", "-ww", "-rLL=200n"]
    done = subprocess.run(argv, input=pages[name], capture_output=True, text=True, check=True)
    assert [line for line in done.stderr.splitlines() if "cannot adjust" not in line] == []
    assert name.partition(".")[0] in done.stdout


def test_pages_are_written(tmp_path: Path) -> None:
    main(tmp_path / "man")
    assert (tmp_path / "man/sodactl-service-start.1").read_text().startswith('.TH "SODACTL-SERVICE-START" "1"')
