"""What a cluster replied, in words: made of what :mod:`benchmarks.campaign.inside` printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_soda.slurm_ext.read.sprio import NOT_COMPUTED

ENDED = frozenset(
    {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}
)


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """One line of squeue: a job, a task of an array, or a component of a heterogeneous job."""

    shown_id: str
    state: str
    reason: str
    user: str
    submit_s: float | None
    start_s: float | None
    name: str

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def started_before(self, at_s: float) -> bool:
        """It runs, and has done so since then or longer."""
        return self.state in ("RUNNING", "COMPLETING") and self.start_s is not None and self.start_s < at_s


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the cluster. ``None`` stands for what did not answer."""

    at_s: float
    """Unix seconds on the controller."""
    jobs: tuple[QueuedJob, ...] | None
    site_factors: Mapping[str, int] | None
    """Of waiting jobs, by id."""
    drained: Mapping[str, str]
    """Reason by node, of those that start no job."""
    store: Mapping[str, list[list[Any]]]
    """Rows by query; empty while the store cannot be read."""
    sodad: tuple[str, ...]
    """Process states of its processes, as in /proc."""
    lock_age_s: float | None
    """Since sodad last showed life."""

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> Seen:
        """From a document of ``inside.py seen``."""
        return cls(
            at_s=float(found["at_s"]),
            jobs=_jobs(_said(found["squeue"])),
            site_factors=_site_factors(_said(found["sprio"])),
            drained=_drained(_said(found["sinfo"]) or ""),
            store={} if "error" in found["store"] else found["store"],
            sodad=tuple(found["sodad"]),
            lock_age_s=found["lock_age_s"],
        )


@dataclass(frozen=True, slots=True)
class AccountedRun:
    """One record of sacct: a run of a job, task or component."""

    raw_id: int
    name: str
    user: str
    state: str
    submit_s: float | None
    start_s: float | None
    end_s: float | None
    restarts: int


def parse_accounting(text: str) -> list[AccountedRun]:
    """sacct's lines. Names that users chose may hold the separator, so the other fields are taken from both ends."""
    found = []
    for line in text.splitlines():
        raw_id, _, rest = line.partition("|")
        fields = rest.rsplit("|", 6)
        if not raw_id.isdigit() or len(fields) != 7:
            continue
        name, user, state, submit, start, end, restarts = fields
        begin_s, start_s, end_s = _number(submit), _number(start), _number(end)
        count = int(_number(restarts) or 0)
        found.append(AccountedRun(int(raw_id), name, user, _base(state), begin_s, start_s, end_s, count))
    return found


def _said(reply: Mapping[str, Any]) -> str | None:
    return str(reply["stdout"]) if reply["status"] == 0 else None


def _jobs(text: str | None) -> tuple[QueuedJob, ...] | None:
    if text is None:
        return None
    lines = [line.split("|", 6) for line in text.splitlines()]
    return tuple(
        QueuedJob(shown_id, _base(state), reason, user, _number(submit), _number(start), name)
        for shown_id, state, reason, user, submit, start, name in (line for line in lines if len(line) == 7)
    )


def _site_factors(text: str | None) -> dict[str, int] | None:
    if text is None:
        return None
    words = [line.split() for line in text.splitlines()]
    told = {line[0]: int(line[1]) for line in words if len(line) == 2 and line[1].lstrip("-").isdigit()}
    return {job: factor for job, factor in told.items() if factor != NOT_COMPUTED}


def _drained(text: str) -> dict[str, str]:
    lines = [line.split("|", 2) for line in text.splitlines()]
    return {node: reason for node, state, reason in lines if "drain" in state or state.startswith("down")}


def _base(state: str) -> str:
    return state.split(maxsplit=1)[0].rstrip("+") if state else ""


def _number(text: str) -> float | None:
    return float(text) if text.replace(".", "", 1).isdigit() else None
