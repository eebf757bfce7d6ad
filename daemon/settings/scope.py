"""Which jobs an enforcing sodad changes."""

from __future__ import annotations

from pydantic import Field, field_validator

from slurm_soda.daemon.settings.section import Section
from slurm_soda.policies.scope.scope import is_plain_name


class ScopeSettings(Section):
    """``[scope]``: which jobs an enforcing sodad changes: those that each list names which is not empty. All others are
    planned and explained, and nothing of them is changed.
    """

    partitions: list[str] = Field(default_factory=list)
    """A job that waits for several partitions must have all of them named."""
    accounts: list[str] = Field(default_factory=list)
    """Exactly these: accounts below them are others."""
    qos: list[str] = Field(default_factory=list)
    users: list[str] = Field(default_factory=list)

    @field_validator("partitions", "accounts", "qos", "users")
    @classmethod
    def _are_names(cls, names: list[str]) -> list[str]:
        for name in names:
            if not is_plain_name(name):
                raise ValueError(
                    f"plain names, one each; {name!r} is none, and patterns and lists in one text are not read"
                )
        if len(set(names)) < len(names):
            double = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"each name once; {double!r} is there twice")
        return names
