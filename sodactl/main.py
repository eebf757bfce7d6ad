"""Entry point of ``sodactl``: the command group, and the one place where errors become one line and an exit status."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import TextIOWrapper

import click

from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl.command_line.lazy_commands import LazyCommand, LazyGroup
from slurm_soda.sodactl.output import escape_unprintable

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a standard output that takes no more; files by name are each command's own business."""


_HERE = "slurm_soda.sodactl"

GROUPS: Mapping[str, Mapping[str, LazyCommand]] = {
    "For users": {
        "status": LazyCommand(f"{_HERE}.live.status:status", "Is slurm-soda running, and what is it doing?"),
        "jobs": LazyCommand(f"{_HERE}.live.jobs:jobs", "Waiting and running jobs, with hints and verdicts."),
        "explain": LazyCommand(f"{_HERE}.explain.explain_job:explain", "Why a job waits, or what happened to it."),
        "report": LazyCommand(
            f"{_HERE}.live.report:report", "What a job used of what it held, and what would be better."
        ),
        "page": LazyCommand(
            f"{_HERE}.live.page:page",
            "A link to the queue, jobs, GPUs and changes in a browser.",
        ),
        "fit": LazyCommand(f"{_HERE}.live.cpu_fit:fit", "How many CPU cores GPU jobs asked for, got and needed."),
        "profiles": LazyCommand(
            f"{_HERE}.profiles.commands:profiles", "What is known about kinds of jobs, and from which source."
        ),
        "service": LazyCommand(
            f"{_HERE}.service.commands:service", "Serve a model by batch jobs, on GPUs or CPU cores by its load."
        ),
        "completion": LazyCommand(
            f"{_HERE}.command_line.completion:completion", "Print the script for shell completion."
        ),
    },
    "For admins": {
        "history": LazyCommand(f"{_HERE}.live.history:history", "What finished jobs used and how long they waited."),
        "shares": LazyCommand(f"{_HERE}.live.shares:shares", "Which jobs share GPUs, and why they stopped."),
        "share": LazyCommand(f"{_HERE}.control.share:share", "Let a waiting job join a running one on its GPUs."),
        "unshare": LazyCommand(f"{_HERE}.control.unshare:unshare", "Send a guest back, with its own request."),
        "quarantine": LazyCommand(
            f"{_HERE}.control.quarantine:quarantine", "Which programs a fault under MPS keeps apart."
        ),
        "policy": LazyCommand(f"{_HERE}.control.mode_and_policy:policy", "Show, list or set the scheduling policy."),
        "mode": LazyCommand(
            f"{_HERE}.control.mode_and_policy:mode", "Show or set the mode: observe, advise or enforce."
        ),
        "undo": LazyCommand(f"{_HERE}.control.undo:undo", "Undo changes to jobs."),
        "release-all": LazyCommand(
            f"{_HERE}.control.release_all:release_all", "Undo all changes, even with sodad down."
        ),
        "release-lifts": LazyCommand(
            f"{_HERE}.control.release_lifts:release_lifts", "Reset all SiteFactors, for a sodad that died."
        ),
        "snapshot": LazyCommand(f"{_HERE}.control.snapshot:snapshot", "Write one decision of sodad to a file."),
        "decide": LazyCommand(
            f"{_HERE}.control.decide:decide", "Repeat a decision from a file, without Slurm or sodad."
        ),
        "pools": LazyCommand(
            f"{_HERE}.pools.commands:pools", "Divide a partition among CPU, small and large GPU jobs."
        ),
        "doctor": LazyCommand(f"{_HERE}.checks.doctor:doctor", "Check this site and say what to fix."),
        "site": LazyCommand(f"{_HERE}.site.commands:site_group", "Turn slurm-soda on in stages.", "simulator"),
    },
    "Simulation and test clusters": {
        "simulate": LazyCommand(
            f"{_HERE}.simulation.simulate:simulate", "What one policy would do to a cluster.", "simulator"
        ),
        "compare": LazyCommand(f"{_HERE}.simulation.compare:compare", "Many policies on the same jobs.", "simulator"),
        "whatif": LazyCommand(
            f"{_HERE}.simulation.whatif:whatif", "What another policy would do to this site.", "simulator"
        ),
        "demo": LazyCommand(
            f"{_HERE}.containers.demo:demo", "The same jobs under stock Slurm and under slurm-soda.", "demo"
        ),
        "cluster": LazyCommand(
            f"{_HERE}.containers.cluster:cluster", "A real Slurm cluster in containers on this machine.", "demo"
        ),
        "bench": LazyCommand(f"{_HERE}.bench.decide:bench", "Measure parts of slurm-soda on this machine."),
    },
}
"""All commands, by whom they are for; the order of ``sodactl --help``."""

COMMANDS: Mapping[str, LazyCommand] = {name: lazy for group in GROUPS.values() for name, lazy in group.items()}

COMMANDS_WITH_CLEANUP = (("demo",), ("cluster", "up"))
"""Commands that own things outside while they run, and take them down however they are ended."""


class SodactlGroup(LazyGroup):
    """``sodactl`` itself."""

    sections = GROUPS

    @property
    def lazy_commands(self) -> Mapping[str, LazyCommand]:
        return COMMANDS


@click.group(cls=SodactlGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="slurm-soda", prog_name="sodactl")
def cli() -> None:
    """Inspect, control and check slurm-soda, which schedules deep-learning jobs beside Slurm.

    \b
    Examples:
      sodactl status              is it running, and what did the last cycle do
      sodactl jobs --json | jq .  the queue, for scripts
      sodactl explain 4711        why job 4711 waits
      sodactl mode observe        stop changing anything, go on observing
      sodactl doctor              what is wrong with this site
    """  # noqa: D301 - click reads the control character


def main(argv: Sequence[str] | None = None) -> None:
    """Run ``sodactl`` and exit: 0 well, 1 failed, 2 wrong usage, 130 interrupted."""
    words = sys.argv[1:] if argv is None else list(argv)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed; the first file to be opened would take its place
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    if any(tuple(words[: len(command)]) == command for command in COMMANDS_WITH_CLEANUP):
        from slurm_soda.sodactl.containers.interrupts import raise_interrupt_on_signals  # noqa: PLC0415 - the others do without

        raise_interrupt_on_signals()  # from before their imports: an interrupt in the midst of one may be lost
    status = run(argv)
    if status == EXIT_INTERRUPTED:
        _leave(status)
    sys.exit(status)


def _leave(status: int) -> None:
    """End at once: all that a command owns is cleaned up by now, and Python's own clean-up may hang or crash.

    It would wait for threads whose locks the interrupt may have left taken, and unload modules whose import was cut short.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def run(argv: Sequence[str] | None = None, outside: object | None = None) -> int:
    """Run ``sodactl`` with these arguments (default: the process's own) and return its exit status.

    ``outside`` (:class:`slurm_soda.sodactl.site_access.CommandContext`) replaces the world around it in tests.
    """
    # A terminal of another encoding must not turn a job's name into a crash.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        outcome = cli.main(args=argv, prog_name="sodactl", standalone_mode=False, obj=outside)
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE if isinstance(error, click.UsageError) else error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _print_error("interrupted")
        return EXIT_INTERRUPTED
    except SodaError as error:
        _print_error(f"sodactl: {error}")
        return EXIT_FAILED
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        return _unwritten(error)
    return _flushed(outcome if isinstance(outcome, int) else 0)


def _flushed(status: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, less) has what it wanted
        _discard_output()
    except OSError as error:
        return _unwritten(error)
    return status


def _unwritten(error: OSError) -> int:
    _discard_output()
    _print_error(
        f"sodactl: standard output cannot be written: {error.strerror}; make room there, or write it elsewhere"
    )
    return EXIT_FAILED


def _discard_output() -> None:
    """Without this Python would complain when it flushes again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(line: str) -> None:
    """One line on stderr, whatever is in it."""
    click.echo(escape_unprintable(" ".join(line.split())), err=True)
