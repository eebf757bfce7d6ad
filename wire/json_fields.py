"""Reads JSON objects that came from another machine: every field typed, bounded and named in the error."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from slurm_soda.wire.errors import RecordError

MAX_NUMBER = 1e15
"""No time, size or count in a record is larger."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def decode_json(text: bytes | str, longest: int, what: str) -> object:
    """The JSON value in ``text``.

    Raises:
        RecordError: more than ``longest`` bytes, no JSON, not UTF-8, or nested too deep.
    """
    if len(text) > longest:
        raise RecordError(f"{what}: {len(text)} bytes; at most {longest} are read")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{what}: cannot be read as JSON ({str(error)[:120]})") from error


class JsonFields:
    """One JSON object, read field by field. Keys that nobody asks for are ignored, so that newer writers can be read."""

    def __init__(self, what: str, data: object) -> None:
        if not isinstance(data, dict):
            raise RecordError(f"{what}: expected an object, got {_shown(data)}")
        self._what = what
        self._data: dict[str, Any] = data

    def whole(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number from ``low`` to ``high``; required unless there is a ``default``."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._wrong(key, value, f"a whole number from {low} to {high}")
        return value

    def flag(self, key: str, *, default: bool | None = None) -> bool:
        """True or false; required unless there is a ``default``."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def number(self, key: str, low: float = 0.0, high: float = MAX_NUMBER, default: float | None = None) -> float:
        """A finite number from ``low`` to ``high``."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, value, "a number")
        if not (low <= value <= high and math.isfinite(value)):
            raise self._wrong(key, value, f"a number from {low:g} to {high:g}")
        return float(value)

    def text(self, key: str, longest: int, default: str | None = None) -> str:
        """Text without control characters; bytes that are no UTF-8 arrive as surrogate escapes and are kept."""
        return self._text(key, self._get(key, default), longest)

    def document(self, key: str, longest: int) -> str:
        """Text of several lines."""
        value = self._get(key, None)
        if not isinstance(value, str) or len(value) > longest:
            raise self._wrong(key, value, f"text of at most {longest} characters")
        return value

    def choice(self, key: str, allowed: Sequence[str]) -> str:
        """One of some words."""
        value = self._get(key, None)
        if not isinstance(value, str) or value not in allowed:
            raise self._wrong(key, value, f"one of {', '.join(allowed)}")
        return value

    def name(self, key: str) -> str:
        """A host or node name: letters, digits, ``.``, ``_`` and ``-``."""
        value = self._get(key, None)
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise self._wrong(key, value, "a host name")
        return value

    def wholes(self, key: str, most: int, low: int, high: int) -> tuple[int, ...]:
        """A list of at most ``most`` whole numbers; empty if missing."""
        values = self.objects(key, most)
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise self._wrong(key, value, f"whole numbers from {low} to {high}")
        return tuple(values)

    def texts(self, key: str, most: int, longest: int) -> tuple[str, ...]:
        """A list of at most ``most`` texts; empty if missing."""
        return tuple(self._text(key, value, longest) for value in self.objects(key, most))

    def text_map(self, key: str, most: int, longest: int) -> dict[str, str]:
        """An object of at most ``most`` texts; empty if missing."""
        value = self._data.get(key, {})
        if not isinstance(value, dict) or len(value) > most:
            raise self._wrong(key, value, f"an object of at most {most} texts")
        return {self._text(key, k, longest): self._text(key, v, longest) for k, v in value.items()}

    def whole_map(self, key: str, most: int, low: int, high: int) -> dict[str, int]:
        """An object of at most ``most`` whole numbers; empty if missing."""
        value = self._data.get(key, {})
        if not isinstance(value, dict) or len(value) > most:
            raise self._wrong(key, value, f"an object of at most {most} whole numbers")
        inner = JsonFields(f"{self._what} {key}", value)
        return {name: inner.whole(name, low, high) for name in value}

    def objects(self, key: str, most: int) -> list[Any]:
        """A list of at most ``most`` values of any kind; empty if missing."""
        value = self._data.get(key, [])
        if not isinstance(value, list) or len(value) > most:
            raise self._wrong(key, value, f"a list of at most {most}")
        return value

    def _get(self, key: str, default: Any) -> Any:
        value = self._data.get(key, default)
        if value is None:
            raise RecordError(f"{self._what}: {key} is missing")
        return value

    def _text(self, key: str, value: object, longest: int) -> str:
        if not isinstance(value, str) or len(value) > longest or _CONTROL.search(value):
            raise self._wrong(key, value, f"text of at most {longest} characters without control characters")
        return value

    def _wrong(self, key: str, value: object, allowed: str) -> RecordError:
        return RecordError(f"{self._what}: {key} is {_shown(value)}; allowed is {allowed}")


def _shown(value: object) -> str:
    """A value for a message: short, on one line, printable."""
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        return "a huge number"
    return ascii(value)[:80]
