"""``--in-scope KEY=NAMES``: whom a policy would change."""

from __future__ import annotations

from collections.abc import Sequence

import click

from slurm_soda.policies.scope.scope import Scope
from slurm_soda.simulator.engine.deciders.scoped_decider import find_left_out
from slurm_soda.simulator.workload import Workload

_KEYS = ("partitions", "qos", "users")
"""What traces tell of jobs; they have no accounts."""
_SHOWN = 10


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


def check_scope(scope: Scope, workload: Workload) -> None:
    """See that the scope means some of these jobs.

    Raises:
        click.UsageError: no job has a name that it gives, or none is in it.
    """
    known = {"partitions": workload.partitions, "qos": workload.qos_names, "users": workload.users}
    for key, there in known.items():
        for name in sorted(scope.lists[key] - set(there)):
            listed = ", ".join(sorted(one for one in there if one)[:_SHOWN]) or "none"
            more = ", …" if len(there) > _SHOWN else ""
            raise click.UsageError(f"--in-scope: no job in the dump has {name!r} of {key}; there are: {listed}{more}")
    if find_left_out(workload, scope).all():
        raise click.UsageError(
            "--in-scope: no job that is simulated is in all of these lists; name others, or fewer lists"
        )
