"""The outcome of one check, and how checks ask Slurm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_soda.slurm_ext.command_runner import SLURM_ENVIRONMENT, CommandRunner, CompletedCommand
from slurm_soda.slurm_ext.errors import NOT_FOUND

CheckState = Literal["ok", "warn", "fail", "skip"]

CHECK_TIMEOUT_S = 15.0
"""Slurm's own commands give up on a dead slurmctld after 9 to 18 s."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found; ``remedy`` says what to do unless all is well."""

    check: str
    state: CheckState
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class CommandProbe:
    """Runs commands for checks."""

    runner: CommandRunner

    def run(self, *argv: str, stdin: bytes = b"") -> CompletedCommand:
        """Run a command to its end; never raises for what it does."""
        return self.runner(argv, stdin=stdin, timeout_s=CHECK_TIMEOUT_S, env=SLURM_ENVIRONMENT)

    def text(self, *argv: str) -> str | None:
        """What a command printed, or ``None`` if it failed."""
        done = self.run(*argv)
        return done.stdout.decode("utf-8", "surrogateescape") if done.status == 0 else None


def failure_text(done: CompletedCommand) -> str:
    """Why a command failed, in a few words."""
    if done.status == NOT_FOUND:
        return f"{done.argv[0]} is not installed on this host"
    if done.status is None:
        return f"{done.argv[0]} did not answer in {CHECK_TIMEOUT_S:.0f} s"
    said = done.stderr.decode("utf-8", "surrogateescape").strip().split("\n", 1)[0]
    return said or f"{done.argv[0]} exited with status {done.status}"
