"""A Slurm as pyslurm tells it, in a file that the emulated pyslurm of a child process reads."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_soda.slurm_ext.bindings.child_process import ChildProcess
from slurm_soda.slurm_ext.bindings.pyslurm_jobs import PyslurmJobs, pyslurm_child_process
from slurm_soda.slurm_ext.read.squeue_jobs import FIELDS

EMULATION = Path(__file__).parent / "pyslurm_emulation"
CONFIG = {"SLURM_VERSION": "24.11.5", "MCSPlugin": "(null)"}


def told(number: int, **fields: Any) -> dict[str, Any]:
    """A one-GPU job of root that waits, as ``pyslurm.job().get()`` has it."""
    values: dict[str, Any] = {
        "job_id": number, "array_task_str": None, "array_task_id": None, "array_job_id": None, "het_job_id": None,
        "job_state": "PENDING", "state_reason": "Priority", "user_id": 0, "account": "acc", "partition": "main",
        "qos": "normal", "name": "train", "comment": None, "submit_time": 1795216847, "eligible_time": 1795216848,
        "start_time": 0, "end_time": 0, "time_limit": 10, "priority": 125, "nice": 0, "restart_cnt": 0,
        "tres_alloc_str": None, "tres_req_str": "cpu=2,mem=1000M,node=1,billing=2,gres/gpu=1", "tres_per_job": None,
        "tres_per_node": "gres/gpu:1", "tres_per_task": None, "cpus_per_task": 2, "num_tasks": 1, "nodes": None,
        "req_nodes": [], "requeue": True, "batch_flag": 1, "exit_code": "0:0", "derived_ec": "0:0", "dependency": None,
        "shared": "OK",
    }  # fmt: skip
    return {**values, **fields}


@dataclass
class PyslurmSite:
    """What a child with the emulated pyslurm finds."""

    folder: Path
    version: str = "24.11.0"
    library: Sequence[int] = (24, 11, 5)
    asked: list[list[int]] = field(default_factory=list)
    """Jobs that squeue was asked about."""
    squeue: dict[str, Sequence[str]] = field(default_factory=dict)
    """Its answers, by job id."""
    failures: list[str] = field(default_factory=list)
    elapsed_s: float = 0.0

    def __post_init__(self) -> None:
        self.python.write_text(
            f'#!/bin/sh\n[ "$1" = -I ] || exit 9\nshift\n'
            f'export PYTHONPATH="{EMULATION}" SODA_EMULATED_SITE="{self.path}"\nexec "{sys.executable}" "$@"\n'
        )
        self.python.chmod(0o755)
        self.tell()

    @property
    def python(self) -> Path:
        return self.folder / "python"

    @property
    def path(self) -> Path:
        return self.folder / "site.json"

    def tell(self, *jobs: dict[str, Any], sharing: Mapping[int, str] | None = None, act: str = "") -> None:
        """What pyslurm tells from now on, or does instead (``act``)."""
        words = {job["job_id"]: "OK" for job in jobs} if sharing is None else sharing
        site = {
            "version": self.version, "library": list(self.library), "act": act, "sharing": words,
            "jobs": {job["job_id"]: job for job in jobs},
        }  # fmt: skip
        self.path.write_text(json.dumps(site))

    def child(self, timeout_s: float = 30.0) -> ChildProcess:
        return pyslurm_child_process(str(self.python), timeout_s)

    def jobs(self, config: Mapping[str, str] = CONFIG, timeout_s: float = 30.0) -> PyslurmJobs:
        return PyslurmJobs(
            self.child(timeout_s),
            lambda: config,
            self._rows,
            timeout_s=timeout_s,
            on_failure=self.failures.append,
            elapsed_s=lambda: self.elapsed_s,
        )

    def _rows(self, job_ids: Sequence[int]) -> Mapping[str, Sequence[str]]:
        self.asked.append(list(job_ids))
        return self.squeue


def squeue_cells(number: int, **cells: str) -> list[str]:
    """A row of squeue for the job of :func:`told`."""
    values = {
        "JobID": str(number), "ArrayTaskID": "N/A", "ArrayJobID": str(number), "HetJobID": "N/A", "State": "PENDING",
        "Reason": "Priority", "UserName": "root", "UserID": "0", "Account": "acc", "Partition": "main", "QOS": "normal",
        "Name": "train", "Comment": "(null)", "SubmitTime": "1795216847", "EligibleTime": "1795216848",
        "StartTime": "N/A", "EndTime": "N/A", "TimeLimit": "10:00", "PriorityLong": "125", "Nice": "0",
        "RestartCnt": "0", "tres-alloc": "cpu=2,mem=1000M,node=1,billing=2,gres/gpu=1", "tres-per-job": "N/A",
        "tres-per-node": "gres/gpu:1", "tres-per-task": "N/A", "cpus-per-task": "2", "NumTasks": "1", "NodeList": "",
        "ReqNodes": "", "exit_code": "0:0", "Dependency": "(null)", "Requeue": "1", "BatchFlag": "1",
        "OverSubscribe": "OK", "Exclusive": "",
    }  # fmt: skip
    return [{**values, **cells}[name] for name in FIELDS]
