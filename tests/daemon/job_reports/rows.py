"""Rows of one job for tests of its report: a run of an hour on two GPUs of n1, from which a test differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slurm_soda.daemon.job_reports.stored_facts import StoredFacts
from slurm_soda.daemon.store.gpu_uses import stored_gpu_use
from slurm_soda.daemon.store.tables.job_reports import JobGpuUseRow
from slurm_soda.daemon.store.tables.progress import JobPaceRow, JobProgressRow
from slurm_soda.daemon.store.tables.scheduling import Job, JobNodeUsage, JobRun
from slurm_soda.daemon.store.tables.sharing import ShareRow
from slurm_soda.wire.gpu_use import GpuUse

SUBMIT_S = 1_700_000_000.0
START_S = SUBMIT_S + 600
RUN_S = 3600.0
END_S = START_S + RUN_S

BUSY = GpuUse(0, 1800, RUN_S, 0.9, 1.0, 30_000.0, 40_960.0, 300.0, 390.0, 5.0, RUN_S, 20.0, 0, 0.0, (), 60.0, "b4" * 60)
"""Used from its start to its end, with 90 %."""
UNUSED = replace(
    BUSY, util_ratio=0.0, util_max_ratio=0.0, memory_peak_mib=512.0, busy_from_s=-1.0, busy_until_s=-1.0, idle_s=RUN_S,
    idle_spans=1, idle_spans_s=RUN_S, timeline="00" * 60,
)  # fmt: skip


def job(**more: Any) -> Job:
    values: dict[str, Any] = {
        "job_id": 7, "submit_s": SUBMIT_S, "user": "alice", "account": "lab", "partition": "gpu", "name": "train",
        "state": "COMPLETED", "exit_code": "0:0", "gpus": 2, "nodes": 1, "cpus": 16, "memory_mib": 65_536,
        "first_start_s": START_S, "end_s": END_S, "time_limit_s": 7200.0, "preemptions": 0, "id": 1,
    }  # fmt: skip
    return Job(**values | more)


def run(restart: int = 0, start_s: float = START_S, end_s: float | None = END_S, **more: Any) -> JobRun:
    values = {"job_pk": 1, "node_names": "n1", "gpus": 2, "shared": False}
    return JobRun(restart=restart, start_s=start_s, end_s=end_s, **values | more)


def usage(**more: Any) -> JobNodeUsage:
    values: dict[str, Any] = {
        "job_id": 7, "restart": 0, "node": "n1", "first_s": START_S, "last_s": END_S, "samples": 1800, "gpu_count": 2,
        "gpu_util_ratio": 0.9, "gpu_util_last_ratio": 0.9, "gpu_memory_peak_mib": 60_000.0, "cpu_s": 12 * RUN_S,
        "memory_peak_mib": 40_960.0, "cpu_source": "cgroup/v2",
    }  # fmt: skip
    return JobNodeUsage(**values | more)


def gpu_uses(*uses: GpuUse, **more: Any) -> JobGpuUseRow:
    values: dict[str, Any] = {"job_id": 7, "restart": 0, "node": "n1", "first_s": START_S, "last_s": END_S}
    stored = [stored_gpu_use(replace(use, index=index)) for index, use in enumerate(uses)]
    return JobGpuUseRow(**values | {"gpus": stored} | more)


def facts(**more: Any) -> StoredFacts:
    """The whole of it."""
    values: dict[str, Any] = {
        "job": job(), "runs": [run()], "usage": [usage()], "gpu_uses": [gpu_uses(BUSY, BUSY)],
        "cpus_on": {(0, "n1"): 16}, "seen_s": {"n1": END_S},
    }  # fmt: skip
    return StoredFacts(**values | more)


def progress(restart: int, iterations: float, began_iterations: float, began_s: float) -> JobProgressRow:
    return JobProgressRow(
        job_id=7, restart=restart, node="n1", first_s=START_S, began_s=began_s, began_iterations=began_iterations,
        at_s=began_s, clock_s=1.0, idle_s=0.0, iterations=iterations, total=0.0, batch=0, saved=-1.0, saves=0,
    )  # fmt: skip


def pace(restart: int, iterations: float, clock_s: float, beside: str = "") -> JobPaceRow:
    return JobPaceRow(
        job_id=7, restart=restart, first_s=START_S, co_runners=beside, mps=False, began_s=START_S, at_s=END_S,
        iterations=iterations, clock_s=clock_s,
    )  # fmt: skip


def share(guest: int, hosts: list[int], started_s: float | None, ended_s: float | None) -> ShareRow:
    return ShareRow(guest=guest, hosts=hosts, started_s=started_s, ended_s=ended_s)
