"""Runs on a cluster's controller for the soda-agents of its nodes, which share one container and have none:
``queue_agents.py TURNS``. Reports go sodad's own way in: HTTP, sealed with MUNGE, one for each node twice a minute.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from slurm_soda.agent.reporting.upload import HttpUploader, UploadError
from slurm_soda.wire.hook_settings import HookSettings
from slurm_soda.wire.munge import Munge
from slurm_soda.wire.records import JobUsage, NodeReport, ReportedProgress
from slurm_soda.wire.walls import NodeWalls

PERIOD_S = 30.0
ITERATION_S = 0.5
"""Of each job, alone or not: what a pair is expected to lose is within the bounds of all."""
_RUNNING = ("squeue", "--noheader", "--states=running", "--format=%A %S %b %N")


class Run(NamedTuple):
    """One that Slurm shows."""

    job_id: int
    first_s: float
    is_guest: bool


def running() -> dict[str, list[Run]]:
    """By node; each job has one."""
    environment = {"PATH": "/usr/bin:/bin", "SLURM_TIME_FORMAT": "%s"}
    said = subprocess.run(_RUNNING, capture_output=True, text=True, check=True, env=environment)
    found = defaultdict[str, list[Run]](list)
    for job_id, first_s, gres, node in map(str.split, said.stdout.splitlines()):
        found[node].append(Run(int(job_id), float(first_s), "sharedgpu" in gres))
    return found


def usage(run: Run, node: str, now_s: float) -> JobUsage:
    """As of a training that keeps its GPU half busy."""
    ran_s = now_s - run.first_s
    return JobUsage(
        run.job_id, 0, node, run.first_s, now_s, samples=int(ran_s / 10) + 1, gpu_util_ratio=0.5, gpu_util_last_ratio=0.5,
        gpu_memory_peak_mib=4000.0, gpu_count=1, cpu_s=ran_s, memory_peak_mib=900.0, cpu_source="process tree",
    )  # fmt: skip


def progress(run: Run, node: str, now_s: float) -> ReportedProgress:
    """As far as it is at full speed."""
    clock_s, done = now_s - run.first_s, (now_s - run.first_s) / ITERATION_S
    return ReportedProgress(run.job_id, 0, node, run.first_s, now_s, clock_s, 0.0, done, batch=64)


def reports(seq: int) -> Iterator[NodeReport]:
    """One a node with jobs; half of these tell their progress."""
    now_s = time.time()
    for node, runs in sorted(running().items()):
        yield NodeReport(
            node, "0", seq, now_s, gpu_count=4, hooks=(HookSettings(),),
            usage=tuple(usage(run, node, now_s) for run in runs),
            progress=tuple(progress(run, node, now_s) for run in runs if run.job_id % 4 < 2),
            walls=(NodeWalls(recorded=tuple(run.job_id for run in runs if not run.is_guest)),),
        )  # fmt: skip


async def main() -> None:
    """Until the time is over; a report that is not taken is sent again the next time."""
    uploader, first = HttpUploader("http://127.0.0.1:6830", Munge(), 10.0), int(time.time())
    for turn in range(int(sys.argv[1])):
        began_s = time.monotonic()
        for report in reports(first + turn):
            with suppress(UploadError):
                await uploader.send(report)
        await asyncio.sleep(max(PERIOD_S - (time.monotonic() - began_s), 0.0))


if __name__ == "__main__":
    asyncio.run(main())
