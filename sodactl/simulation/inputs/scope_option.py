"""``--in-scope KEY=NAMES``: whom a policy would change."""

from __future__ import annotations

from collections.abc import Sequence

import click

from slurm_soda.policies.scope.scope import Scope

_KEYS = ("partitions", "qos", "users")
"""What traces tell of jobs; they have no accounts."""


def build_scope(texts: Sequence[str]) -> Scope | None:
    """The scope that was named; ``None``: none was.

    Raises:
        click.UsageError: it is no list of names, or of something that traces do not tell.
    """
    if not texts:
        return None
    lists: dict[str, frozenset[str]] = {}
    for text in texts:
        key, equals, written = text.partition("=")
        names = frozenset(name.strip() for name in written.split(",") if name.strip())
        if not equals or key not in _KEYS or not names:
            raise click.UsageError(
                f"--in-scope {text!r}: write KEY=NAME[,NAME…], such as partitions=small; KEY is {', '.join(_KEYS)}"
            )
        lists[key] = lists.get(key, frozenset()) | names
    return Scope(**lists)
