"""Events of runs, and run records over a real spool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from slurm_soda.agent.job_events.run_event import parse_run_event
from slurm_soda.agent.reporting.recent_faults import RecentFaults
from slurm_soda.agent.reporting.run_records import (
    RunRecords,
)
from slurm_soda.wire.spool import Spool

NOW_S = 1000.0


def event(kind: str, job_id: int = 10, start_s: int = 500, restart: int = 0, **more: Any) -> bytes:
    opening = {
        "uid": 1000,
        "user": "alice",
        "partition": "main",
        "gpus": [0],
        "cpus_per_node": "2",
        "node_names": "n1",
        "env": {},
    }
    data = {
        "kind": kind,
        "job_id": job_id,
        "start_s": start_s,
        "restart": restart,
        "node": "n1",
        "at_s": float(start_s),
    }
    return json.dumps({**data, **(opening if kind == "open" else {"exit_code": "0:0"}), **more}).encode() + b"\n"


class Node:
    """A spool, and run records over it one after the other."""

    def __init__(self, path: Path) -> None:
        self.spool = Spool(str(path))
        self.faults = RecentFaults()
        self.run_records = RunRecords(self.spool, self.faults, 1000)

    def restart(self) -> None:
        self.run_records = RunRecords(self.spool, self.faults, 1000)
        self.run_records.adopt(NOW_S)

    def take(self, line: bytes) -> None:
        self.run_records.take(parse_run_event(line), line, NOW_S)

    def end(self) -> None:
        """What the sampling loop does with closed runs."""
        for run in self.run_records.active():
            run.over = run.closed is not None
            self.run_records.save(run, NOW_S)

    def deliver(self) -> list[str]:
        """Report all news; what was in it, in short."""
        batch = self.run_records.news()
        self.run_records.reported(batch)
        opened = [f"open {r.job_id}.{r.restart}" for r in batch.opened]
        closed = [f"close {r.job_id}.{r.restart}" for r in batch.closed]
        return [*opened, *closed, *(f"usage {r.job_id}.{r.restart}" for r in batch.usage)]
