"""Which nodes are remembered by name when an agent reports: those that Slurm has, and a bounded number of others.

Root of any node may report under any name. What a report says of jobs is bound to jobs; what is kept by the name of a node
would grow with every name that somebody makes up, while slurmctld is down too, when nobody can tell which of them exist.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from slurm_soda.daemon.logs import log

MAX_OTHER_NAMES = 1024
"""Names that Slurm did not show: nodes that it does not have any more, those that it has since its last answer, and
agents under a wrong name, which admins want to see."""


@dataclass(slots=True)
class ReportingNodes:
    """Names of nodes; for threads."""

    recalled: bool = False
    """The names in the store were taken in."""
    _known: frozenset[str] = frozenset()
    _others: set[str] = field(default_factory=set)
    _is_full: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def recall(self, names: Iterable[str]) -> None:
        """Take in names that are remembered already, however many they are."""
        with self._lock:
            self._others |= set(names) - self._known
            self.recalled = True

    def note(self, names: Collection[str]) -> None:
        """Take in the nodes that Slurm has now."""
        with self._lock:
            self._known = frozenset(names)
            self._others -= self._known
            self._is_full = False

    def admits(self, name: str) -> bool:
        """Whether a node of this name is remembered; a new name is, while there is room."""
        with self._lock:
            if name in self._known or name in self._others:
                return True
            if len(self._others) < MAX_OTHER_NAMES:
                self._others.add(name)
                return True
            if not self._is_full:
                self._is_full = True
                log(logging.WARNING, "nodes-not-remembered", example=name, others=len(self._others))
            return False
