"""Job records for tests, from the few fields that matter."""

from __future__ import annotations

from typing import Any

from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.hints.flags import Hints

NAN = float("nan")


def record(job_id: int = 1, state: str = "PENDING", **more: Any) -> SlurmJob:
    values: dict[str, Any] = {
        "array_job_id": 0, "array_task": "", "reason": "Priority", "user": "alice", "uid": 1000, "account": "acc",
        "partition": "main", "qos": "normal", "name": "job", "comment": "", "submit_s": 1000.0, "eligible_s": 1000.0,
        "start_s": NAN, "end_s": NAN, "time_limit_s": 3600.0, "priority": 1, "nice": 0, "restarts": 0, "nodes": 1,
        "cpus": 1, "memory_mib": 0, "gpus": 2, "gpus_per_node": 0, "gpu_type": "",
        "node_names": "" if state == "PENDING" else "n1", "exit_code": "0:0", "dependency": "",
        "hints": Hints(checkpoint_signal="TERM"),
    }  # fmt: skip
    return SlurmJob(job_id=job_id, state=state, **(values | more))
