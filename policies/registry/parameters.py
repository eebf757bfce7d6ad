"""Parameters of policies: how what a person wrote becomes a value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a policy.

    ``read`` turns what a configuration file holds into the value; it raises ValueError or TypeError for everything
    that ``allowed`` does not say.
    """

    name: str
    default: Any
    unit: str
    doc: str
    allowed: str
    read: Callable[[Any], Any]


def number_from(least: float) -> Callable[[Any], float]:
    """A reader of numbers that are not below ``least``; infinity is one, NaN and truth values are not."""

    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value < least:
            raise ValueError(value)
        return float(value)

    return read


def finite_from(least: float) -> Callable[[Any], float]:
    """A reader of finite numbers that are not below ``least``."""
    number = number_from(least)

    def read(value: Any) -> float:
        if math.isinf(finite := number(value)):
            raise ValueError(value)
        return finite

    return read


def number_within(least: float, most: float) -> Callable[[Any], float]:
    """A reader of numbers from ``least`` to ``most``."""
    number = number_from(least)

    def read(value: Any) -> float:
        if (found := number(value)) > most:
            raise ValueError(value)
        return found

    return read


def integer_from(least: int) -> Callable[[Any], int]:
    """A reader of whole numbers that are not below ``least``."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(value)
        return value

    return read


def optional_reader(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same reader, of a parameter that has no value of its own: ``None`` stays so."""
    return lambda value: None if value is None else read(value)


def read_boolean(value: Any) -> bool:
    """A reader of truth values."""
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def one_of(names: tuple[str, ...]) -> Callable[[Any], str]:
    """A reader of one of these names."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError(value)
        return value

    return read


def read_thresholds(value: Any) -> tuple[float, ...]:
    """Positive finite numbers, each larger than the one before; an empty list means one queue."""
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        raise TypeError(value)
    read = number_from(0.0)
    thresholds = tuple(read(item) for item in value)
    steps = zip((0.0, *thresholds), thresholds, strict=False)
    if any(high <= low for low, high in steps) or math.inf in thresholds:
        raise ValueError(value)
    return thresholds


def read_samples(value: Any) -> FloatColumn:
    """Positive finite numbers in any order, as an ascending column."""
    samples = np.asarray(value)
    if samples.size and (samples.ndim != 1 or samples.dtype.kind not in "iuf"):
        raise TypeError(value)
    column = np.sort(samples.reshape(-1).astype(np.float64))
    if not np.all(np.isfinite(column)) or np.any(column <= 0):
        raise ValueError(value)
    return column
