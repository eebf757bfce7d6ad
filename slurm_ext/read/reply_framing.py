"""Replies that user text cannot forge and that cannot be cut short unnoticed.

Job names and comments hold any byte but NUL, so no fixed separator is safe. Fields and records are set apart by a nonce
that nobody can know before the call; it travels in the environment, which other users cannot read, not in the arguments.
The command runs under a constant ``sh`` line that prints an end mark only after it exited with 0: a reply without the mark
is half a reply, wherever it was cut.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_soda.slurm_ext.errors import SlurmReplyError

_NONCE_LETTERS = 8
_END_VARIABLE = "SODA_END_MARK"
_RUN_AND_MARK = f'"$@" && printf %s "${_END_VARIABLE}"'


@dataclass(frozen=True, slots=True)
class ReplyFraming:
    """The separators of one call."""

    nonce: str
    """ASCII letters, different for every call."""

    @property
    def field(self) -> str:
        """Ends a field; begins with a control character, so no option parser takes it for a width."""
        return f"\x1f{self.nonce}"

    @property
    def record(self) -> str:
        """Ends a record, as the last field's separator; the command adds a newline."""
        return f"\x1e{self.nonce}"

    @property
    def end(self) -> str:
        """Ends a whole reply."""
        return f"\x04{self.nonce}"

    @property
    def env(self) -> dict[str, str]:
        """What the end mark needs."""
        return {_END_VARIABLE: self.end}

    def squeue_env(self, fields: Sequence[str], widths: Mapping[str, int] | None = None) -> dict[str, str]:
        """The format for squeue, in the environment because arguments are public.

        Args:
            fields: squeue's names of them.
            widths: of fields that squeue cuts, and pads, to so many bytes.
        """
        separators = [self.field] * (len(fields) - 1) + [self.record]
        named = zip(fields, separators, strict=True)
        return {"SQUEUE_FORMAT2": ",".join(f"{name}:{(widths or {}).get(name, '')}{end}" for name, end in named)}

    def squeue_letters_env(self, letters: Sequence[str]) -> dict[str, str]:
        """The format for squeue by the letters of its older option ``--format``, such as ``%A``."""
        separators = [self.field] * (len(letters) - 1) + [self.record]
        return {"SQUEUE_FORMAT": "".join(letter + end for letter, end in zip(letters, separators, strict=True))}

    def body(self, stdout: bytes, what: str) -> str:
        """The reply without its end mark, undecodable bytes as surrogate escapes.

        Raises:
            SlurmReplyError: the reply is cut short.
        """
        text = stdout.decode("utf-8", "surrogateescape")
        if not text.endswith(self.end):
            raise SlurmReplyError(f"{what} was cut short after {len(stdout)} bytes; nothing is done with it")
        return text[: -len(self.end)]

    def records(self, stdout: bytes, fields: int, what: str) -> list[list[str]]:
        """All records of a reply, each with exactly ``fields`` fields.

        Raises:
            SlurmReplyError: the reply is cut short, or a record has another number of fields.
        """
        records = self.body(stdout, what).split(f"{self.record}\n")
        if records.pop():
            raise SlurmReplyError(f"{what} has text after its last record; nothing is done with it")
        rows = [record.split(self.field) for record in records]
        for row in rows:
            if len(row) != fields:
                raise SlurmReplyError(f"{what} has a record of {len(row)} fields, not {fields}: {row[0]!r}")
        return rows


def with_end_mark(argv: Sequence[str]) -> list[str]:
    """The command line that prints the end mark after ``argv`` succeeded."""
    return ["sh", "-c", _RUN_AND_MARK, "sh", *argv]


def random_nonce() -> str:
    """A nonce that nobody can guess."""
    return "".join(secrets.choice(string.ascii_letters) for _ in range(_NONCE_LETTERS))
