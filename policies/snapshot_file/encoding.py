"""Values of dataclasses as plain JSON and back, found from the types of their fields: a new column needs nothing here.

The same value always becomes the same JSON. Numbers keep their type: NaN and infinities, which JSON does not have, are the
texts ``nan``, ``inf`` and ``-inf``; columns with two dimensions are ``{"shape": …, "values": …}``; mappings keep their order
and are lists of pairs. A field that the JSON lacks has its default, one that the type lacks is refused.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.snapshot_file.values import (
    SCALARS,
    Codec,
    ColumnCodec,
    EncodingError,
    EnumCodec,
    NamedCodec,
    Rename,
    ScalarCodec,
    T,
    unexpected,
)


def codec_of(kind: type[T]) -> Codec[T]:
    """The codec of a type.

    Raises:
        TypeError: the type, or one inside it, cannot be written; text must be of a type of
            :mod:`.identifiers`.
    """
    return cast("Codec[T]", _codec(cast("Hashable", kind)))


@cache
def _codec(kind: Any) -> Codec[Any]:  # noqa: PLR0911 - one line for each kind of type
    origin, inner = get_origin(kind), get_args(kind)
    alias = getattr(origin, "__value__", None)  # on Python 3.12 and newer NumPy writes NDArray as a generic alias
    if alias is not None:
        return _codec(alias[inner])
    if origin is Annotated:
        return NamedCodec(ScalarCodec(str, "text") if inner[0] is str else _codec(inner[0]), inner[1])
    if kind in SCALARS:
        return SCALARS[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return EnumCodec(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        return _Record(kind)
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _Row(cast("Any", kind)._make, tuple(_codec(part) for part in _hints(kind).values()))
    if origin is np.ndarray:
        return ColumnCodec(get_args(inner[1])[0])
    if origin is tuple:
        return _Items(_codec(inner[0])) if inner[1:] == (...,) else _Row(tuple, tuple(map(_codec, inner)))
    if origin in (dict, Mapping):
        return _Pairs(_codec(inner[0]), _codec(inner[1]))
    if origin in (Union, types.UnionType):
        return _union([part for part in inner if part is not types.NoneType], optional=types.NoneType in inner)
    raise TypeError(f"values of type {kind} cannot be written to a file")


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _union(kinds: Sequence[Any], *, optional: bool) -> Codec[Any]:
    codec = _codec(kinds[0]) if len(kinds) == 1 else _OneOf({kind.__name__: _Record(kind) for kind in kinds})
    return _Optional(codec) if optional else codec


@dataclass(frozen=True, slots=True)
class _Items(Codec[Any]):
    """A tuple of any length."""

    item: Codec[Any]

    def encode(self, value: Any) -> Any:
        return [self.item.encode(each) for each in value]

    def decode(self, told: Any, where: str) -> Any:
        listed = _list(told, where)
        return tuple(self.item.decode(each, f"{where}[{at}]") for at, each in enumerate(listed))

    def renamed(self, value: Any, rename: Rename) -> Any:
        return tuple(self.item.renamed(each, rename) for each in value)


@dataclass(frozen=True, slots=True)
class _Row(Codec[Any]):
    """A tuple of so many parts, each of its own type."""

    make: Callable[[Any], Any]
    parts: tuple[Codec[Any], ...]

    def encode(self, value: Any) -> Any:
        return [part.encode(each) for part, each in zip(self.parts, value, strict=True)]

    def decode(self, told: Any, where: str) -> Any:
        listed = _list(told, where)
        if len(listed) != len(self.parts):
            raise unexpected(where, told, f"a list of {len(self.parts)}")
        read = enumerate(zip(self.parts, listed, strict=True))
        return self.make([part.decode(each, f"{where}[{at}]") for at, (part, each) in read])

    def renamed(self, value: Any, rename: Rename) -> Any:
        return self.make([part.renamed(each, rename) for part, each in zip(self.parts, value, strict=True)])


@dataclass(frozen=True, slots=True)
class _Pairs(Codec[Any]):
    """A mapping, in its order."""

    key: Codec[Any]
    value: Codec[Any]

    def encode(self, value: Any) -> Any:
        return [[self.key.encode(key), self.value.encode(each)] for key, each in value.items()]

    def decode(self, told: Any, where: str) -> Any:
        pair = _Row(tuple, (self.key, self.value))
        pairs = [pair.decode(each, f"{where}[{at}]") for at, each in enumerate(_list(told, where))]
        found = dict(pairs)
        if len(found) < len(pairs):
            raise unexpected(where, [key for key, _ in pairs], "keys that differ")
        return found

    def renamed(self, value: Any, rename: Rename) -> Any:
        return {self.key.renamed(k, rename): self.value.renamed(v, rename) for k, v in value.items()}


@dataclass(frozen=True, slots=True)
class _Optional(Codec[Any]):
    inner: Codec[Any]

    def encode(self, value: Any) -> Any:
        return None if value is None else self.inner.encode(value)

    def decode(self, told: Any, where: str) -> Any:
        return None if told is None else self.inner.decode(told, where)

    def renamed(self, value: Any, rename: Rename) -> Any:
        return None if value is None else self.inner.renamed(value, rename)


class _Record(Codec[Any]):
    """A dataclass by its fields."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        hints = _hints(kind)
        self._parts = {part.name: (part, _codec(hints[part.name])) for part in fields(kind)}

    def encode(self, value: Any) -> Any:
        return {name: codec.encode(getattr(value, name)) for name, (_, codec) in self._parts.items()}

    def decode(self, told: Any, where: str) -> Any:
        if not isinstance(told, dict):
            raise unexpected(where, told, "an object")
        if unknown := [name for name in told if name not in self._parts]:
            raise EncodingError(f"{where}.{unknown[0]}: this version of slurm-soda knows no such field")
        found = {}
        for name, (part, codec) in self._parts.items():
            if name in told:
                found[name] = codec.decode(told[name], f"{where}.{name}")
            elif not _has_default(part):
                raise EncodingError(f"{where}.{name}: it is missing")
        try:
            return self._kind(**found)
        except PolicyError as error:
            raise EncodingError(f"{where}: {error}") from error

    def renamed(self, value: Any, rename: Rename) -> Any:
        parts = {name: codec.renamed(getattr(value, name), rename) for name, (_, codec) in self._parts.items()}
        return self._kind(**parts)


def _has_default(part: Field[Any]) -> bool:
    return part.default is not MISSING or part.default_factory is not MISSING


@dataclass(frozen=True, slots=True)
class _OneOf(Codec[Any]):
    """One of several dataclasses; ``is`` says which."""

    kinds: Mapping[str, _Record]

    def encode(self, value: Any) -> Any:
        name = type(value).__name__
        return {"is": name, **self.kinds[name].encode(value)}

    def decode(self, told: Any, where: str) -> Any:
        name = told.get("is") if isinstance(told, dict) else None
        if not isinstance(name, str) or name not in self.kinds:
            raise unexpected(where, told, f"an object that is one of {', '.join(self.kinds)}")
        return self.kinds[name].decode({key: each for key, each in told.items() if key != "is"}, where)

    def renamed(self, value: Any, rename: Rename) -> Any:
        return self.kinds[type(value).__name__].renamed(value, rename)


def _list(told: Any, where: str) -> list[Any]:
    if not isinstance(told, list):
        raise unexpected(where, told, "a list")
    return told
