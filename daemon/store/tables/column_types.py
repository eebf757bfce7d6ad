"""Column types for what Slurm hands on: text of any byte but NUL, while databases insist on valid Unicode, and job ids."""

from __future__ import annotations

import re
from typing import Annotated, Any

from sqlalchemy import BigInteger, LargeBinary, String
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import mapped_column
from sqlalchemy.types import TypeDecorator

JobId = Annotated[int, mapped_column(BigInteger)]
"""Slurm's ids have 32 bits: more than an INTEGER of PostgreSQL holds."""
BigCount = Annotated[int, mapped_column(BigInteger)]
"""A count that others report, which nobody bounds to 31 bits."""

_STAND_IN = 0xEF00
"""The first of the 256 characters that stand for bytes."""
_NOT_STORABLE = re.compile("[\0\ud800-\udfff\uef00-\uefff]")


class RawText(TypeDecorator[str]):
    """Text with surrogate-escaped bytes, stored as the original bytes."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        return None if value is None else value.encode("utf-8", "surrogateescape")

    def process_result_value(self, value: Any | None, dialect: Dialect) -> str | None:
        return None if value is None else bytes(value).decode("utf-8", "surrogateescape")


class SlurmName(TypeDecorator[str]):
    """A name that Slurm gave (user, account), cut to its column: readable text, with a stand-in for every byte that is none.

    A byte B that databases do not take stands as U+EF00 + B, a character of the private use area; so do the bytes of such a
    character itself. Equal names stay equal, and no two names become one.
    """

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        kept: str = _NOT_STORABLE.sub(_stand_in, value)
        return kept[: getattr(self.impl, "length", None)]

    def process_result_value(self, value: Any | None, dialect: Dialect) -> str | None:
        if value is None or value.isascii():
            return value
        pieces = (
            bytes([ord(char) - _STAND_IN]) if _STAND_IN <= ord(char) < _STAND_IN + 256 else char.encode()
            for char in value
        )
        return b"".join(pieces).decode("utf-8", "surrogateescape")


def _stand_in(match: re.Match[str]) -> str:
    escaped = "\udc80" <= match[0] <= "\udcff"
    raw = match[0].encode("utf-8", "surrogateescape" if escaped else "surrogatepass")
    return "".join(chr(_STAND_IN + byte) for byte in raw)
