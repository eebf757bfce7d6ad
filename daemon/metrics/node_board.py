"""What each node's agent said last, for whoever asks for metrics; for threads."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.agent_reports import NODE_SILENT_S
from slurm_soda.wire.node_use import NodeUse
from slurm_soda.wire.records import NodeReport


@dataclass(frozen=True, slots=True)
class AgentSign:
    """The newest report of an agent, as far as metrics go."""

    at_s: float
    """When it came, Unix seconds."""
    steady_s: float
    """The same by the clock that nobody sets."""
    faults: int = 0
    mps_jobs: int = 0
    use: NodeUse | None = None
    """``None``: an older agent does not tell, or this sodad has had no report of it."""

    def is_silent(self, steady_s: float) -> bool:
        """Nothing that it said is of now."""
        return steady_s - self.steady_s > NODE_SILENT_S


@dataclass(slots=True)
class NodeBoard:
    """By node. Root of any node may report under any name: whoever shows them leaves out nodes that Slurm does not have."""

    reports: int = 0
    """Since sodad started."""
    _signs: dict[str, AgentSign] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, report: NodeReport, at: Instant) -> None:
        """Take in a report that is stored."""
        use = report.use[0] if report.use else None
        sign = AgentSign(at.now_s, at.steady_s, len(report.faults), len(report.mps_jobs), use)
        with self._lock:
            self.reports += 1
            self._signs[report.node] = sign

    def recall(self, session: Session, at: Instant) -> None:
        """Agents that reported to an earlier sodad, so that a silent one is seen after a restart too."""
        for row in queries.agent_heartbeats(session):
            steady_s = at.steady_since(row.seen_s, NODE_SILENT_S + 1.0)
            with self._lock:
                self._signs.setdefault(row.node, AgentSign(row.seen_s, steady_s, len(row.faults)))

    def keep(self, nodes: Collection[str]) -> None:
        """Forget nodes that Slurm does not have."""
        with self._lock:
            for node in self._signs.keys() - nodes:
                del self._signs[node]

    def signs(self) -> dict[str, AgentSign]:
        """All of them now."""
        with self._lock:
            return dict(self._signs)
