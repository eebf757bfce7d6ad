"""One measurement, in a process of its own: ``…measurement JOBS SEED LONGEST DIRECTORY``.

Prints JSON: the judgement of every GPU, and how many bytes the reports and the store took.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqlalchemy import String, cast, func, select, text

from benchmarks.report_accuracy.emulated_node import GPUS, NODE, EmulatedNode
from benchmarks.report_accuracy.judging import judge
from benchmarks.report_accuracy.patterns import MadeJob, make_jobs
from slurm_soda.daemon.job_reports.build import read_job_report
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.tables.job_reports import JobGpuUseRow
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun


def measure(count: int, seed: int, longest_s: float, path: Path) -> dict[str, Any]:
    """Run made-up jobs and judge their reports, each as ``sodactl report`` would show it after the job's end."""
    jobs = make_jobs(count, seed, longest_s=longest_s)
    store = open_store(f"sqlite:///{path}/soda.db")
    try:
        node = EmulatedNode(store, path, seed)
        times = node.run(jobs)
        _record_jobs(store, jobs, times)
        return {
            "jobs": [_judged(store, job, *times[job.job_id]) for job in jobs],
            "emulated_s": sum(job.run_s for job in jobs),
            "report_bytes": node.uploader.bytes,
            **_store_bytes(store),
        }
    finally:
        store.close()


def _record_jobs(store: Store, jobs: Sequence[MadeJob], times: dict[int, tuple[float, float]]) -> None:
    """What sodad writes of what Slurm shows: there is no Slurm here."""
    with store.write() as session:
        for job in jobs:
            began_s, ended_s = times[job.job_id]
            row = Job(
                job_id=job.job_id, submit_s=began_s - 130, user="alice", name="train", partition="gpu", state="COMPLETED",
                exit_code="0:0", gpus=len(job.gpus), cpus=8, memory_mib=65_536, time_limit_s=14_400.0, first_start_s=began_s,
                end_s=ended_s, waits={"spent_s": {"Priority": 20.0, "Resources": 110.0}, "reason": "", "since_s": 0.0},
            )  # fmt: skip
            session.add(row)
            session.flush()
            session.add(
                JobRun(job_pk=row.id, restart=0, start_s=began_s, end_s=ended_s, node_names=NODE, gpus=len(job.gpus))
            )


def _judged(store: Store, job: MadeJob, began_s: float, ended_s: float) -> dict[str, Any]:
    with store.read() as session:
        row = session.scalars(select(Job).where(Job.job_id == job.job_id)).one()
        report = read_job_report(session, row, ended_s + 60)
    used = report.used.gpu_util_ratio or 0.0
    true = sum(pattern.mean_ratio for pattern in job.gpus) / len(job.gpus)
    return {
        "job_id": job.job_id,
        "run_s": job.run_s,
        "util_off": 100 * (used - true),
        "gpus": [asdict(one) for one in judge(job, report, began_s)],
        "missing": list(report.missing),
    }


def _store_bytes(store: Store) -> dict[str, Any]:
    """Of the JSON of the rows, and of the table's and its indices' pages, by GPU."""
    with store.read() as session:
        rows = session.scalars(select(JobGpuUseRow)).all()
        gpus = sum(len(row.gpus) for row in rows)
        json_bytes = session.scalar(select(func.sum(func.length(cast(JobGpuUseRow.gpus, String)))))
        pages = session.execute(text("SELECT sum(pgsize) FROM dbstat WHERE name LIKE '%job_gpu_use%'")).scalar()
    return {"rows": len(rows), "gpus": gpus, "json_bytes": json_bytes, "page_bytes": pages, "node_gpus": GPUS}


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))))
