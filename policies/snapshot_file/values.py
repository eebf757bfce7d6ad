"""How single values and columns are written to a file and read from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import isfinite, prod
from typing import Any, Generic, TypeVar

import numpy as np

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.snapshot_file.identifiers import Identifier

Rename = Callable[[Identifier, Any], Any]
"""What to put in the place of a value that names something."""
T = TypeVar("T")

_NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
_MOST_SHOWN = 60


class EncodingError(PolicyError):
    """JSON that is not what it should be: names the place, what stands there, and what was expected."""


def unexpected(where: str, told: Any, expected: str) -> EncodingError:
    """The error for one value; a long one is cut."""
    shown = repr(told)
    return EncodingError(f"{where} = {shown[:_MOST_SHOWN]}{'…' * (len(shown) > _MOST_SHOWN)}: expected {expected}")


class Codec(Generic[T]):
    """How values of one type are written, read, and searched for names."""

    def encode(self, value: T) -> Any:
        """The value as JSON's own types."""
        raise NotImplementedError

    def decode(self, told: Any, where: str) -> T:
        """The value that :meth:`encode` was given; ``where`` is the place for messages.

        Raises:
            EncodingError: it is something else.
        """
        raise NotImplementedError

    def renamed(self, value: T, rename: Rename) -> T:
        """The value with other names in it."""
        return value


@dataclass(frozen=True, slots=True)
class ScalarCodec(Codec[Any]):
    """A value that JSON has itself."""

    kind: type
    words: str

    def encode(self, value: Any) -> Any:
        return self.kind(value)

    def decode(self, told: Any, where: str) -> Any:
        if type(told) is not self.kind:  # a truth value is an int, but no number of GPUs
            raise unexpected(where, told, self.words)
        return told


class FloatCodec(Codec[float]):
    """A number, which may be none or infinite."""

    def encode(self, value: float) -> Any:
        return _float_told(float(value))

    def decode(self, told: Any, where: str) -> float:
        return _float_read(told, where)


def _float_told(value: float) -> float | str:
    return value if isfinite(value) else str(value)


def _float_read(told: Any, where: str) -> float:
    if type(told) in (float, int):
        try:
            return float(told)
        except OverflowError:
            pass
    elif isinstance(told, str) and told in _NOT_FINITE:
        return _NOT_FINITE[told]
    raise unexpected(where, told, "a number, or one of the texts nan, inf, -inf")


SCALARS: dict[Any, Codec[Any]] = {
    int: ScalarCodec(int, "a whole number"), bool: ScalarCodec(bool, "true or false"), float: FloatCodec()
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NamedCodec(Codec[Any]):
    """A value, or a column of values, that names something."""

    inner: Codec[Any]
    identifier: Identifier

    def encode(self, value: Any) -> Any:
        return self.inner.encode(value)

    def decode(self, told: Any, where: str) -> Any:
        return self.inner.decode(told, where)

    def renamed(self, value: Any, rename: Rename) -> Any:
        if isinstance(value, np.ndarray):
            found = [rename(self.identifier, each) for each in value.tolist()]
            return np.array(found, dtype=value.dtype).reshape(value.shape)
        return rename(self.identifier, value)


@dataclass(frozen=True, slots=True)
class EnumCodec(Codec[Any]):
    """A member by its value."""

    kind: type[Enum]

    def encode(self, value: Any) -> Any:
        return self.kind(value).value

    def decode(self, told: Any, where: str) -> Any:
        values = {member.value: member for member in self.kind}
        if isinstance(told, bool | list | dict) or told not in values:
            raise unexpected(where, told, f"one of {', '.join(map(str, values))}")
        return values[told]


class ColumnCodec(Codec[Any]):
    """A numpy array; its elements are checked one by one, its length is its owner's business."""

    def __init__(self, dtype: type) -> None:
        self._dtype = np.dtype(dtype)
        if self._dtype.kind not in "bif":
            raise TypeError(f"columns of {dtype} cannot be written to a file")

    def encode(self, value: Any) -> Any:
        column = np.asarray(value).astype(self._dtype, casting="safe")
        told: list[Any] = column.reshape(-1).tolist()
        if self._dtype.kind == "f" and not np.isfinite(column).all():
            told = [_float_told(each) for each in told]
        return told if column.ndim == 1 else {"shape": list(column.shape), "values": told}

    def decode(self, told: Any, where: str) -> Any:
        if isinstance(told, list):
            return self._flat(told, where)
        if not isinstance(told, dict) or set(told) != {"shape", "values"} or not isinstance(told["values"], list):
            raise unexpected(where, told, "a list, or an object with shape and values")
        shape, values = told["shape"], told["values"]
        whole = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
        if not whole or len(shape) > _MOST_DIMENSIONS or prod(shape) != len(values):
            raise unexpected(f"{where}.shape", shape, f"the lengths of a table of {len(values)} values")
        return self._flat(values, f"{where}.values").reshape(shape)

    def _flat(self, told: list[Any], where: str) -> Any:
        if self._dtype.kind == "f":
            if not set(map(type, told)) <= {float}:
                told = [_float_read(each, f"{where}[{at}]") for at, each in enumerate(told)]
            return np.array(told, dtype=self._dtype)
        kinds, least, most, words = self._bounds()
        for at, each in enumerate(told):
            if type(each) not in kinds or not least <= each <= most:
                raise unexpected(f"{where}[{at}]", each, words)
        return np.array(told, dtype=self._dtype)

    def _bounds(self) -> tuple[tuple[type], int, int, str]:
        """The one type that an element may have, the least and the most that it may be, and this in words."""
        if self._dtype.kind == "b":
            return (bool,), 0, 1, "true or false"
        limits: Any = np.iinfo(self._dtype.name)
        return (int,), int(limits.min), int(limits.max), f"a whole number of {limits.bits} bits"


_MOST_DIMENSIONS = 2
