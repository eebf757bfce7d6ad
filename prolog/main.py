"""Opens a run's record: what the job was given on this node and what it said about itself."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from slurm_soda.wire import slurm_env
from slurm_soda.wire.event_delivery import deliver_event


def make_open_event(environ: Mapping[str, str], now_s: float, host: str) -> dict[str, object]:
    """The event that opens a run, from slurmd's environment; ``job_id`` is 0 where that names no job.

    ``cpus_per_node``, ``node_names`` and ``env`` are as Slurm gives them: the agent reads and validates them, so that
    the job need not wait for it. The first two are empty where they are too long; ``nodes`` is 0 where it is not known.
    """
    return {
        "kind": "open",
        "job_id": slurm_env.read_integer(environ, "SLURM_JOB_ID"),
        # Before Slurm 23.02 nobody tells the start; the epilog then closes the job's only open run.
        "start_s": slurm_env.read_integer(environ, "SLURM_JOB_START_TIME") or int(now_s),
        "restart": slurm_env.read_integer(environ, "SLURM_JOB_RESTART_COUNT"),
        "node": slurm_env.read_text(environ, "SLURMD_NODENAME") or host.partition(".")[0],
        "uid": slurm_env.read_integer(environ, "SLURM_JOB_UID"),
        "user": slurm_env.read_text(environ, "SLURM_JOB_USER", 64),
        "partition": slurm_env.read_text(environ, "SLURM_JOB_PARTITION"),
        "at_s": round(now_s, 3),
        "gpus": slurm_env.read_gpu_indices(environ),
        "cpus_per_node": slurm_env.read_whole_text(environ, "SLURM_JOB_CPUS_PER_NODE", 4096),
        "node_names": slurm_env.read_whole_text(environ, "SLURM_JOB_NODELIST", 8192)
        or slurm_env.read_whole_text(environ, "SLURM_NODELIST", 8192),  # before Slurm 23.02
        "nodes": slurm_env.read_integer(environ, "SLURM_JOB_NUM_NODES", highest=1_000_000),
        "env": slurm_env.read_hints(environ),
    }


def deliver_open_event(*places: str) -> str:
    """Hand the opening over; what went wrong is returned. ``places``: agent socket and spool, if not the usual ones."""
    event = make_open_event(os.environ, time.time(), os.uname().nodename)
    if not event["job_id"]:
        return "SLURM_JOB_ID names no job: nothing recorded"
    return deliver_event(event, *places)
