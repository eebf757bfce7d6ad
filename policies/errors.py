"""Errors of policies. This package imports nothing of slurm-soda, so it has its own base."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class PolicyError(ValueError):
    """A policy or one of its parameters is not allowed; one line that names it, the value and what is allowed."""


def no_such(what: str, name: str, names: Iterable[str]) -> str:
    """That a name is none of a list, and what was probably meant."""
    listed = list(names)
    return f"there is no {what} {name!r}; choose one of: {', '.join(listed)}{did_you_mean(name, listed)}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of a line about a name that is not known: the nearest known one; empty if none is near."""
    near = get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""
