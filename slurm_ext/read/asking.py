"""Commands of Slurm that only ask, run so that half a reply is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slurm_soda.slurm_ext.command_runner import CommandRunner, CompletedCommand
from slurm_soda.slurm_ext.errors import OutputTooLongError, SlurmCommandError
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming, with_end_mark

REMEDY = "check that slurmctld answers (scontrol ping) and that this user may do it"


@dataclass(frozen=True, slots=True)
class AskingCommands:
    """How they are run."""

    runner: CommandRunner
    environment: Mapping[str, str]
    timeout_s: float
    nonce: Callable[[], str]

    def framing(self) -> ReplyFraming:
        """Separators for one call."""
        return ReplyFraming(self.nonce())

    def whole(
        self,
        argv: Sequence[str],
        framing: ReplyFraming,
        env: Mapping[str, str] | None = None,
        most_bytes: int | None = None,
    ) -> bytes:
        """What a command prints, followed by the framing's end mark.

        Raises:
            OutputTooLongError: it prints more than ``most_bytes``.
            SlurmCommandError: it failed.
        """
        said = self.runner(
            with_end_mark(argv),
            stdin=b"",
            timeout_s=self.timeout_s,
            env={**self.environment, **framing.env, **(env or {})},
            most_bytes=most_bytes,
        )
        if said.cut:
            raise OutputTooLongError(f"{' '.join(argv)} prints more than {most_bytes} bytes")
        if said.status != 0:
            raise failure(tuple(argv), said)
        return said.stdout

    def run(self, argv: Sequence[str], stdin: bytes = b"") -> CompletedCommand:
        """A command whose failure says something as well."""
        return self.runner(argv, stdin=stdin, timeout_s=self.timeout_s, env=self.environment)


def failure(argv: Sequence[str], said: CompletedCommand, remedy: str = REMEDY) -> SlurmCommandError:
    """The error that a command's end means, with what it said and what to check; ``argv``: without what framed it."""
    return SlurmCommandError(tuple(argv), said.status, said.stderr.decode("utf-8", "backslashreplace"), remedy)
