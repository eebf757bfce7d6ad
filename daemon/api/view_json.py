r"""Pictures and rows as JSON, and back as the same objects, whatever bytes users chose and whoever answers.

Undecodable bytes travel as lone surrogates (byte 0xff as ``\udcff``), which is what they are in memory. NaN and infinity,
which JSON does not have, travel as ``null`` and come back as NaN. Keys that the reader does not know are left out, so that a
newer sodad may say more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from sqlalchemy import inspect
from sqlalchemy.orm import ColumnProperty

from slurm_soda.daemon.store.tables.scheduling import Base
from slurm_soda.slurm_ext.errors import SodaError

T = TypeVar("T")
K = TypeVar("K")
ValueReader = Callable[[Any], Any]


class ViewJsonError(SodaError):
    """JSON that is not what it should be; says where and what was expected."""


def encode_view(view: object) -> bytes:
    """A view or a row as JSON in ASCII."""
    return json.dumps(_plain(view), ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


def decode_view(kind: type[T], raw: bytes) -> T:
    """What :func:`encode_view` made of an object of this kind.

    Raises:
        ViewJsonError: it is something else.
    """
    reader: ValueReader = _reader(cast("Hashable", kind))
    try:
        found: T = reader(json.loads(raw))
    except (ValueError, RecursionError) as error:
        raise ViewJsonError("not JSON") from error
    except _UnexpectedError as error:
        raise ViewJsonError(f"{kind.__name__}{error.where} {error.what}") from error
    return found


class _UnexpectedError(Exception):
    """What was found in place of a value, and where: the path grows as the error rises."""

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(what)
        self.what, self.where = what, where


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    kind: type = type(value)
    return {name: _plain(getattr(value, name)) for name in _kinds(kind)}


@cache
def _kinds(kind: type) -> dict[str, Any]:
    """The parts of a dataclass or a table, each with its type."""
    hints = get_type_hints(kind)
    if is_dataclass(kind):
        return {part.name: hints[part.name] for part in fields(kind)}
    # A column is declared as Mapped[its type].
    columns: Iterable[ColumnProperty[Any]] = inspect(kind).column_attrs
    return {column.key: get_args(hints[column.key])[0] for column in columns}


@cache
def _reader(kind: Any) -> ValueReader:  # noqa: PLR0911 - one line for each kind of type
    """What turns JSON's own types into this one; made once, since a queue has 10 000 jobs."""
    if isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, Base)):
        return partial(_read_parts, kind, {name: _reader(part) for name, part in _kinds(kind).items()})
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        present = _reader(next(part for part in inner if part is not NoneType))
        return lambda data: None if data is None else present(data)
    if origin in (dict, Mapping):
        return partial(_read_mapping, _reader(inner[1]))
    if origin in (list, Sequence):
        return partial(_read_list, _reader(inner[0]))
    if kind is Any:
        return lambda data: data
    if kind is float:
        return _read_number
    return partial(_read_plain, kind)


def _read_parts(kind: Callable[..., Any], readers: Mapping[str, ValueReader], data: Any) -> Any:
    return kind(**_read_each(_parts(readers, _read_plain(dict, data))))


def _parts(readers: Mapping[str, ValueReader], values: Mapping[str, Any]) -> Iterator[tuple[str, ValueReader, Any]]:
    for name, reader in readers.items():
        if name not in values:
            raise _UnexpectedError(f"has no {name}")
        yield name, reader, values[name]


def _read_mapping(reader: ValueReader, data: Any) -> dict[str, Any]:
    return _read_each((key, reader, item) for key, item in _read_plain(dict, data).items())


def _read_list(reader: ValueReader, data: Any) -> list[Any]:
    return list(_read_each((at, reader, item) for at, item in enumerate(_read_plain(list, data))).values())


def _read_each(parts: Iterable[tuple[K, ValueReader, Any]]) -> dict[K, Any]:
    found = {}
    for key, reader, item in parts:
        try:
            found[key] = reader(item)
        except _UnexpectedError as error:
            raise _UnexpectedError(error.what, f".{key}{error.where}") from error
    return found


def _read_number(data: Any) -> float:
    if data is None:
        return math.nan
    if type(data) not in (float, int):
        raise _UnexpectedError("is no number")
    try:
        return float(data)
    except OverflowError as error:
        raise _UnexpectedError("is too large") from error


def _read_plain(kind: type, data: Any) -> Any:
    if type(data) is not kind:  # a bool is an int, but no number of GPUs
        raise _UnexpectedError(f"is no {kind.__name__}")
    return data
