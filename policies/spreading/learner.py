"""Learning slowdowns by nodes from runs, one at a time."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping

from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind
from slurm_soda.policies.spreading.measurements import (
    NEWEST_RUNS,
    SlowdownRow,
    TimedRun,
    join_owners,
    measure_slowdown,
    slowdown_row,
)
from slurm_soda.policies.spreading.slowdowns import EXTRA_NODES


class SpreadLearner:
    """What runs have shown so far, by owner and kind.

    Attributes:
        runs: how many it has learned from.
    """

    def __init__(self) -> None:
        self.runs = 0
        self._seen: dict[JobKind, dict[str, dict[int, deque[TimedRun]]]] = defaultdict(dict)
        """By kind, owner and nodes beyond the fewest."""
        self._slowdowns: dict[JobKind, dict[str, dict[int, Estimate]]] = defaultdict(dict)
        self._rows: dict[tuple[JobKind, str], SlowdownRow | None] = {}

    def learn(self, owner: str, kind: JobKind, extra_nodes: int, run: TimedRun) -> None:
        """Take in a run on so many nodes more than its job needed."""
        mine = self._seen[kind].setdefault(owner, {})
        mine.setdefault(min(extra_nodes, EXTRA_NODES), deque(maxlen=NEWEST_RUNS)).append(run)
        found = {extra: measure_slowdown(mine.get(0, ()), runs) for extra, runs in mine.items() if extra}
        self._slowdowns[kind][owner] = {extra: one for extra, one in found.items() if one is not None}
        self._rows = {key: row for key, row in self._rows.items() if key[0] != kind}
        self.runs += 1

    def known(self, owner: str, kind: JobKind) -> SlowdownRow | None:
        """What an owner's jobs of a kind are expected to do: by his own runs, else by those of three owners or more."""
        key = kind, owner
        if key not in self._rows:
            self._rows[key] = slowdown_row(self._estimates(owner, kind))
        return self._rows[key]

    def _estimates(self, owner: str, kind: JobKind) -> Mapping[int, Estimate]:
        of_kind = self._slowdowns.get(kind, {})
        found: dict[int, Estimate] = {}
        for extra in range(1, EXTRA_NODES + 1):
            own = of_kind.get(owner, {}).get(extra)
            joined = own or join_owners([mine[extra].value for mine in of_kind.values() if extra in mine])
            if joined is not None:
                found[extra] = joined
        return found
