"""Records for tests, with only the fields that matter spelled out."""

from __future__ import annotations

from typing import Any

from slurm_soda.slurm_ext.client import SlurmJob, SlurmNode

NAN = float("nan")


def job(job_id: int, **fields: Any) -> SlurmJob:
    """A one-GPU job of alice that waits for its turn."""
    values: dict[str, Any] = {
        "array_job_id": job_id, "array_task": "", "state": "PENDING", "reason": "Priority", "user": "alice", "uid": 1001,
        "account": "acc", "partition": "main", "qos": "normal", "name": "train", "comment": "", "submit_s": 100.0,
        "eligible_s": 100.0, "start_s": NAN, "end_s": NAN, "time_limit_s": 3600.0, "priority": 10, "nice": 0,
        "restarts": 0, "nodes": 1, "cpus": 1, "memory_mib": 1000, "gpus": 1, "gpus_per_node": 1, "gpu_type": "",
        "node_names": "", "exit_code": "0:0", "dependency": "",
    }  # fmt: skip
    return SlurmJob(job_id=job_id, **{**values, **fields})


def running(job_id: int, node_names: str, start_s: float = 200.0, **fields: Any) -> SlurmJob:
    """A job that runs."""
    return job(job_id, state="RUNNING", reason="None", node_names=node_names, start_s=start_s, **fields)


def node(name: str, **fields: Any) -> SlurmNode:
    """An idle node with four GPUs."""
    values: dict[str, Any] = {
        "state": "IDLE", "usable": True, "cpus": 28, "cpus_allocated": 0, "memory_mib": 64_000,
        "memory_allocated_mib": 0, "gpus": 4, "gpus_allocated": 0, "gpu_type": "a100", "partitions": ("main",),
    }  # fmt: skip
    return SlurmNode(name=name, **{**values, **fields})
