"""What commands take as arguments: names, finite numbers, and names of lists that are long to import."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

MOST_ROWS = 10**9
"""More rows, and higher numbers of rows, no store has."""


class OneOf(click.ParamType[str]):
    """A name of a list that is imported when it is needed."""

    def __init__(self, name: str, names: Callable[[], Sequence[str]]) -> None:
        self.name, self._names = name, names

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name itself, if it is one."""
        from slurm_soda.policies.errors import no_such  # noqa: PLC0415 - only where names are needed

        names = self._names()
        if value not in names:
            self.fail(no_such(self.name, value, names), param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names by prefix."""
        del ctx, param
        return [CompletionItem(name) for name in self._names() if name.startswith(incomplete)]


def _policy_names() -> Sequence[str]:
    from slurm_soda.policies.registry.catalog import policy_names  # noqa: PLC0415 - all policies, and numpy

    return policy_names()


POLICY = OneOf("policy", _policy_names)


class _StoredName(click.ParamType[str]):
    """A name that a store can be asked for."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name itself, if it is text."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail(f"{value!r} is no name: it must be UTF-8", param, ctx)
        return value


STORED_NAME = _StoredName()


class NumberRange(click.FloatRange):
    """A number in a range, infinity too if the range has no end, but not NaN, which is in every range of click's."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


class FiniteRange(click.FloatRange):
    """A number in a range, but neither NaN, which is in every range of click's, nor infinite."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number
