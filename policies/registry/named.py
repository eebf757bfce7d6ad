"""What users choose by name (policies, generated workloads, trace formats), and the parameters that they give it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from slurm_soda.policies.errors import did_you_mean, no_such
from slurm_soda.policies.registry.parameters import Parameter

_SHOWN = 60


class Named(Protocol):
    """Something in a list that users choose from."""

    @property
    def name(self) -> str:
        """Its name, another one for each entry of a list."""
        ...


Entry = TypeVar("Entry", bound=Named)


def names_of(entries: Iterable[Named]) -> tuple[str, ...]:
    """All names, in the order of the list."""
    return tuple(entry.name for entry in entries)


def find_named(entries: Sequence[Entry], name: str, what: str, error: type[Exception]) -> Entry:
    """The entry of a name.

    Args:
        what: what the entries are, in the singular: `policy`.
        error: raised, with one line that names what there is, where no entry has the name.
    """
    for entry in entries:
        if entry.name == name:
            return entry
    raise error(no_such(what, name, names_of(entries)))


def read_values(
    owner: str, parameters: Sequence[Parameter], given: Mapping[str, Any], error: type[Exception]
) -> dict[str, Any]:
    """The values of the parameters that were given, as their owner expects them.

    Args:
        owner: whose parameters they are, as errors name it: `policy fifo`.
        error: raised, with one line, for a parameter that the owner does not have and for a value that is not allowed.
    """
    known = {parameter.name: parameter for parameter in parameters}
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            allowed = ", ".join(sorted(known)) or "none"
            raise error(f"{owner} has no parameter {key!r}; its parameters are: {allowed}{did_you_mean(key, known)}")
        try:
            values[key] = known[key].read(value)
        except (TypeError, ValueError, OverflowError):
            shown = repr(value) if len(repr(value)) <= _SHOWN else repr(value)[: _SHOWN - 3] + "..."
            raise error(f"{owner}: {key} = {shown} is not allowed; use {known[key].allowed}") from None
    return values
