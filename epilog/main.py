"""Closes a run's record. The job's processes are gone by now, and as a rule its cgroups too."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from slurm_soda.epilog import job_cgroups
from slurm_soda.wire import slurm_env
from slurm_soda.wire.event_delivery import deliver_event


def make_close_event(environ: Mapping[str, str], now_s: float, host: str) -> dict[str, object]:
    """The event that closes a run, from slurmd's environment; ``job_id`` is 0 where that names no job.

    The run is named by its start: SLURM_JOB_RESTART_COUNT already counts the next run when a job is requeued.
    """
    return {
        "kind": "close",
        "job_id": slurm_env.read_integer(environ, "SLURM_JOB_ID"),
        "start_s": slurm_env.read_integer(environ, "SLURM_JOB_START_TIME"),
        "restart": slurm_env.read_integer(environ, "SLURM_JOB_RESTART_COUNT"),
        "uid": slurm_env.read_integer(environ, "SLURM_JOB_UID"),
        "node": slurm_env.read_text(environ, "SLURMD_NODENAME") or host.partition(".")[0],
        "at_s": round(now_s, 3),
        "exit_code": slurm_env.read_text(environ, "SLURM_JOB_EXIT_CODE2", 16),
    }


def read_last_usage(event: dict[str, object], root: str = job_cgroups.CGROUP_ROOT) -> dict[str, object]:
    """What the job's cgroup still says: empty as a rule, but worth a look for the case that the agent is away."""
    uid, job_id = event["uid"], event["job_id"]
    group = (
        job_cgroups.find_job_cgroup(root, str(event["node"]), uid, job_id)
        if isinstance(uid, int) and isinstance(job_id, int)
        else None
    )
    cpu_s = group.cpu_s() if group else None
    if group is None or cpu_s is None:
        return {}
    return {"cpu_s": round(cpu_s, 3), "memory_mib": round(group.memory_mib() or 0.0, 3), "cpu_source": group.source}


def deliver_close_event(*places: str) -> str:
    """Hand the closing over; what went wrong is returned. ``places``: agent socket and spool, if not the usual ones."""
    event = make_close_event(os.environ, time.time(), os.uname().nodename)
    if not event["job_id"]:
        return "SLURM_JOB_ID names no job: nothing recorded"
    # Limits that slurm-soda puts on a node for a job (CPU sets, MPS, bandwidth) are undone here, before the close.
    return deliver_event({**event, **read_last_usage(event)}, *places)
