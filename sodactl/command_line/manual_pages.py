"""Manual pages of all commands, from what ``--help`` says.

python -m slurm_soda.sodactl.command_line.manual_pages FOLDER        one file a command, such as sodactl-pools-plan.1
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

import click

from slurm_soda.agent.main import make_parser as make_agent_parser
from slurm_soda.daemon.main import make_parser as make_daemon_parser
from slurm_soda.sodactl.command_line.lazy_commands import LazyGroup
from slurm_soda.sodactl.main import cli

NOT_IN_PACKAGES = ("cluster", "demo")
"""Commands that need a checkout."""

_EXIT_STATUS = (
    ".SH EXIT STATUS\n0: well; 1: failed, with one line that says why; 2: wrong usage; 130: interrupted.\n"
    ".SH FILES\n.TP\n.I /etc/slurm\\-soda/soda.toml\nconfiguration of sodad and sodactl\n"
    ".TP\n.I /var/lib/slurm\\-soda\nwhat sodad keeps: jobs, changes, profiles\n"
)
_SEE_ALSO = ".SH SEE ALSO\n"


def manual_pages() -> dict[str, str]:
    """Text of each page, by the name of its file."""
    pages = {f"{name}.1": page for name, page in _click_pages("sodactl", cli, None)}
    for parser, files, also in (
        (
            make_daemon_parser(),
            {"/etc/slurm-soda/soda.toml": "configuration", "/var/lib/slurm-soda": "the store"},
            "sodactl.1",
        ),
        (
            make_agent_parser(),
            {
                "/etc/slurm-soda/agent.toml": "configuration",
                "/etc/slurm-soda/sharing.conf": "of prolog and epilog, where jobs share GPUs",
                "/var/spool/slurm-soda": "what sodad has not yet taken",
            },
            "sodad.8",
        ),
    ):
        pages[f"{parser.prog}.8"] = _parser_page(parser, files, also)
    return pages


def _click_pages(word: str, command: click.Command, parent: click.Context | None) -> Iterator[tuple[str, str]]:
    """Pages of a command and of those below it, by the name that joins their words with hyphens."""
    ctx = click.Context(command, info_name=word, parent=parent, **command.context_settings)
    below: dict[str, str] = {}
    if isinstance(command, click.Group):
        lazy = command.lazy_commands if isinstance(command, LazyGroup) else {}
        for sub in command.list_commands(ctx):
            if parent is None and sub in NOT_IN_PACKAGES:
                continue
            child = command.get_command(ctx, sub)
            if child is None or child.hidden:
                continue
            below[sub] = lazy[sub].summary if sub in lazy else child.get_short_help_str(200)
            yield from _click_pages(sub, child, ctx)
    yield _page_name(ctx), _click_page(command, ctx, below)


def _page_name(ctx: click.Context) -> str:
    above = f"{_page_name(ctx.parent)}-" if ctx.parent is not None else ""
    return f"{above}{ctx.info_name}"


def _click_page(command: click.Command, ctx: click.Context, below: Mapping[str, str]) -> str:
    name = _page_name(ctx)
    words = _words(ctx)
    usage = " ".join(command.collect_usage_pieces(ctx))
    text = _head(name, 1, command.get_short_help_str(200)) + _synopsis(words, usage)
    text += f".SH DESCRIPTION\n{_paragraphs(command.help or '')}"
    records = [record for param in command.get_params(ctx) if (record := param.get_help_record(ctx)) is not None]
    if records:
        text += ".SH OPTIONS\n" + "".join(_tagged(option, meaning) for option, meaning in records)
    if below:
        text += ".SH COMMANDS\n" + "".join(_tagged(f"{words} {sub}", meaning) for sub, meaning in below.items())
        text += f"Each has a page of its own, such as\n.BR {_escaped(f'{name}-{next(iter(below))}')} (1).\n"
    if ctx.parent is None:
        return text + _EXIT_STATUS + f"{_SEE_ALSO}.BR sodad (8),\n.BR soda\\-agent (8),\n.BR sbatch (1)\n"
    return text + f"{_SEE_ALSO}.BR {_escaped(_page_name(ctx.parent))} (1)\n"


def _words(ctx: click.Context) -> str:
    """As it is typed, without the arguments of the commands above."""
    above = f"{_words(ctx.parent)} " if ctx.parent is not None else ""
    return f"{above}{ctx.info_name}"


def _parser_page(parser: argparse.ArgumentParser, files: Mapping[str, str], also: str) -> str:
    description = parser.description or ""
    usage = " ".join(parser.format_usage().split()[2:])
    text = _head(parser.prog, 8, description) + _synopsis(parser.prog, usage)
    text += f".SH DESCRIPTION\n{_paragraphs(description)}.SH OPTIONS\n"
    for action in parser._actions:
        word = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
        if action.choices:
            word = "|".join(map(str, action.choices))
        text += _tagged(", ".join(f"{one} {word}".rstrip() for one in action.option_strings), action.help or "")
    text += ".SH FILES\n" + "".join(f".TP\n.I {_escaped(path)}\n{_escaped(what)}\n" for path, what in files.items())
    page, _, section = also.partition(".")
    return text + f"{_SEE_ALSO}.BR {_escaped(page)} ({section})\n"


def _head(name: str, section: int, summary: str) -> str:
    title = f'.TH "{name.upper()}" "{section}" "" "slurm\\-soda {version("slurm-soda")}" "slurm\\-soda"\n'
    return f"{title}.SH NAME\n{_escaped(name)} \\- {_escaped(summary.rstrip('.'))}\n"


def _synopsis(words: str, usage: str) -> str:
    return f".SH SYNOPSIS\n.B {_escaped(words)}\n{_escaped(usage)}\n"


def _tagged(tag: str, meaning: str) -> str:
    return f".TP\n.B {_escaped(tag)}\n{_lines(meaning)}\n"


def _paragraphs(text: str) -> str:
    r"""Help text; a paragraph that begins with ``\b`` keeps its lines, as click has it."""
    made = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if paragraph.startswith("\b"):
            made.append(f".PP\n.nf\n{_lines(paragraph.removeprefix(chr(8)).strip(chr(10)))}\n.fi\n")
        else:
            made.append(f".PP\n{_lines(' '.join(paragraph.split()))}\n")
    return "".join(made)


def _lines(text: str) -> str:
    return "\n".join(_escaped(line) for line in text.splitlines())


def _escaped(text: str) -> str:
    """For roff: a backslash is told by its name, a hyphen stays one, and no line begins with a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def main(folder: Path) -> None:
    """Write all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in manual_pages().items():
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
