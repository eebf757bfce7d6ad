"""The one list of policies, and how their parameters are read.

A new policy is one more :class:`Entry` in :data:`POLICIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.fifo import Fifo
from slurm_soda.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a policy: ``read`` turns what a person wrote into its value."""

    name: str
    default: Any
    unit: str
    doc: str
    allowed: str
    read: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One policy that users can name."""

    name: str
    summary: str
    source: str
    """Paper and section."""
    build: Callable[..., Policy]
    parameters: tuple[Parameter, ...] = ()


POLICIES: tuple[Entry, ...] = (
    Entry(
        "fifo",
        "by submit time; a partition's first job that does not fit holds up the ones behind it",
        "Tiresias, Section 5.1 (YARN-CS)",
        Fifo,
    ),
    Entry(
        "fifo-skip",
        "by submit time; a job that does not fit is passed",
        "Tiresias, Section 5.1, with the skip of Pseudocode 2",
        partial(Fifo, skip=True),
    ),
)


def policy_names() -> tuple[str, ...]:
    """All names, in the order of :data:`POLICIES`."""
    return tuple(entry.name for entry in POLICIES)


def make_policy(name: str, parameters: Mapping[str, Any] | None = None) -> Policy:
    """Build a policy from its name and what a configuration file says of its parameters.

    Raises:
        PolicyError: no such policy or parameter, or a value that is not allowed.
    """
    entry = find_entry(name)
    known = {parameter.name: parameter for parameter in entry.parameters}
    values: dict[str, Any] = {}
    for key, value in (parameters or {}).items():
        if key not in known:
            allowed = ", ".join(sorted(known)) or "none"
            raise PolicyError(f"policy {name} has no parameter {key!r}; its parameters are: {allowed}")
        try:
            values[key] = known[key].read(value)
        except (TypeError, ValueError):
            shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
            raise PolicyError(f"policy {name}: {key} = {shown} is not allowed; use {known[key].allowed}") from None
    return entry.build(**values)


def find_entry(name: str) -> Entry:
    """The entry of a name.

    Raises:
        PolicyError: no such policy.
    """
    for entry in POLICIES:
        if entry.name == name:
            return entry
    raise PolicyError(f"there is no policy {name!r}; choose one of: {', '.join(policy_names())}")


def describe() -> list[dict[str, Any]]:
    """All policies and their parameters as plain values, for ``sodactl policy``."""
    return [
        {
            "name": entry.name,
            "summary": entry.summary,
            "source": entry.source,
            "parameters": [
                {"name": p.name, "default": p.default, "unit": p.unit, "allowed": p.allowed, "doc": p.doc}
                for p in entry.parameters
            ],
        }
        for entry in POLICIES
    ]
