r"""Pictures and rows as JSON, and back as the same objects, whatever bytes users chose and whoever answers.

Undecodable bytes travel as lone surrogates (byte 0xff as ``\udcff``), which is what they are in memory. NaN and infinity,
which JSON does not have, travel as ``null`` and come back as NaN. Keys that the reader does not know are left out, so that a
newer sodad may say more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from slurm_soda.daemon.store.schema import Base
from slurm_soda.slurm_ext.errors import SodaError
from sqlalchemy import inspect
from sqlalchemy.orm import ColumnProperty

T = TypeVar("T")


class TransferError(SodaError):
    """JSON that is not what it should be; says where and what was expected."""


def encode(picture: object) -> bytes:
    """A picture or a row as JSON in ASCII."""
    return json.dumps(_plain(picture), ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


def decode(kind: type[T], raw: bytes) -> T:
    """What :func:`encode` made of an object of this kind.

    Raises:
        TransferError: it is something else.
    """
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise TransferError("not JSON") from error
    found: T = _value(kind, data, kind.__name__)
    return found


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


def _value(kind: Any, data: Any, where: str) -> Any:  # noqa: PLR0911 - one line for each kind of type
    if kind is Any:
        return data
    if isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, Base)):
        told = _checked(dict, data, where)
        return kind(
            **{name: _value(part, _part(told, name, where), f"{where}.{name}") for name, part in _kinds(kind).items()}
        )
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        present = next(part for part in inner if part is not NoneType)
        return None if data is None else _value(present, data, where)
    if origin in (dict, Mapping):
        return {key: _value(inner[1], item, f"{where}.{key}") for key, item in _checked(dict, data, where).items()}
    if origin in (list, Sequence):
        return [_value(inner[0], item, f"{where}[{at}]") for at, item in enumerate(_checked(list, data, where))]
    if kind is float:
        return math.nan if data is None else float(_checked((float, int), data, where))
    return _checked(kind, data, where)


def _part(told: dict[str, Any], name: str, where: str) -> Any:
    if name not in told:
        raise TransferError(f"{where} has no {name}")
    return told[name]


def _checked(kind: type | tuple[type, ...], data: Any, where: str) -> Any:
    if isinstance(data, kind) and (kind is bool or not isinstance(data, bool)):
        return data
    expected = kind.__name__ if isinstance(kind, type) else "number"
    raise TransferError(f"{where} is no {expected}")
