"""The burst itself: the same jobs under stock Slurm and under pools, on one real cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.demo.accounting import SACCT_ENVIRONMENT, DemoError, sacct_argv
from slurm_soda.demo.cluster_runs import (
    SODACTL,
    DemoObserver,
    DemoPhase,
    daemon_problems,
    read_status,
    read_versions,
    run_driver,
    set_mode,
    warm_up_nodes,
)
from slurm_soda.demo.cpu_burst import burst_accounting, sbatch
from slurm_soda.demo.cpu_burst.burst_accounting import BurstJobRecord
from slurm_soda.demo.cpu_burst.burst_figures import PoolLayout
from slurm_soda.demo.cpu_burst.burst_jobs import BurstJob
from slurm_soda.demo.cpu_burst.burst_settings import (
    CPU_CORES,
    LARGE_NODES,
    NODE,
    NODES,
    BurstSettings,
    daemon_configuration,
)

APPLY_COMMAND = ("pools", "apply", f"--cpu-cores={CPU_CORES}", f"--large-nodes={LARGE_NODES}")
"""Words of sodactl that put the demo's pools in force."""

_ACCOUNTING_WITHIN_S = 60.0
_APPLY_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class BurstResult:
    """What both runs came to."""

    stock: tuple[BurstJobRecord, ...]
    soda: tuple[BurstJobRecord, ...]
    pools: dict[str, Any]
    """What ``sodactl pools`` said of the pools in force."""
    layout: PoolLayout
    """The pools in force, as the figures need them."""
    log: list[dict[str, Any]]
    """The store's log of each pool."""
    versions: dict[str, str]


def run_burst_twice(settings: BurstSettings, jobs: Sequence[BurstJob], watch: DemoObserver) -> BurstResult:
    """Bring a cluster up, run the burst under stock Slurm and under pools, take the pools back and the cluster down.

    Raises:
        ClusterError: the cluster cannot be brought up, or does not take the pools.
        DemoError: a job was refused or failed, or accounting did not hear of all of them.
    """
    cluster = ContainerCluster.up(settings.cluster, nodes=NODES, gpus=NODE.gpus, cpus=NODE.cores, progress=watch.say)
    try:
        warm_up_nodes(cluster)
        cluster.start_daemon(daemon_configuration(settings))
        watch.say("stock: one partition for all jobs, sodad in mode observe")
        set_mode(cluster, "observe")
        stock = _run(cluster, "stock", jobs, watch)
        shown = apply_pools(cluster)
        watch.say(f"soda: pools {', '.join(part['name'] for part in shown['partitions'])}, sodad in mode enforce")
        set_mode(cluster, "enforce")
        soda = _run(cluster, "soda", jobs, watch)
        for line in daemon_problems(read_status(cluster)):
            watch.say(f"soda: {line}")
        log = _sodactl(cluster, "pools", "log", "--json").get("pools", [])
        revert_pools(cluster)
        return BurstResult(tuple(stock), tuple(soda), shown, read_layout(shown), log, read_versions(cluster))
    finally:
        if settings.keep:
            watch.say(f"the cluster stays up; remove it with: sodactl cluster down --name {settings.cluster}")
        else:
            cluster.down()


def apply_pools(cluster: ContainerCluster) -> dict[str, Any]:
    """Put pools in force as an admin would; what ``sodactl pools status`` says of them.

    Slurm's own parameters for pools (docs/pools.md) are set only now: stock Slurm is to run with its defaults.
    """
    for host in cluster.spec.hosts:
        text = cluster.copy_out("/etc/slurm/slurm.conf", node=host).decode()
        cluster.copy_in(add_scheduler_parameters(text).encode(), "/etc/slurm/slurm.conf", node=host)
    cluster.exec("root", ("scontrol", "reconfigure")).check()
    cluster.exec("root", (SODACTL, *APPLY_COMMAND), timeout_s=_APPLY_WITHIN_S).check()
    return _sodactl(cluster, "pools", "status", "--json")


def add_scheduler_parameters(slurm_conf: str) -> str:
    """slurm.conf with the scheduler's parameters that pools want."""
    wanted = ",preempt_youngest_first,bf_min_age_reserve=600"
    lines = [
        line + wanted if line.startswith("SchedulerParameters=") and wanted not in line else line
        for line in slurm_conf.splitlines()
    ]
    return "\n".join([*lines, ""])


def revert_pools(cluster: ContainerCluster) -> None:
    """Take them back."""
    cluster.exec("root", (SODACTL, "pools", "revert", "--wait"), timeout_s=_APPLY_WITHIN_S).check()


def read_layout(shown: dict[str, Any]) -> PoolLayout:
    """The pools that ``sodactl pools status`` shows; all nodes of the demo are of one class."""
    parts = shown["partitions"]
    return PoolLayout(
        borrowing=frozenset(part["name"] for part in parts if part["borrowing"]),
        limits={part["name"]: int(part["cores_per_node"]) for part in parts},
        cpu_cores=int(shown["shares"][0]["cpu_cores"]),
    )


def _sodactl(cluster: ContainerCluster, *words: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(cluster.exec("root", (SODACTL, *words)).check().stdout)
    return document


def _run(
    cluster: ContainerCluster, phase: DemoPhase, jobs: Sequence[BurstJob], watch: DemoObserver
) -> list[BurstJobRecord]:
    job_ids = run_driver(cluster, phase, sbatch.build_orders(jobs), watch)
    found = _wait_for_accounting(cluster, job_ids)
    if bad := [job for job in found if job.state != "COMPLETED"]:
        ended = ", ".join(f"{job.job_id} ({job.name}) {job.state}" for job in bad[:5])
        raise DemoError(
            f"{len(bad)} of {len(found)} jobs did not complete: {ended}; see: sodactl cluster logs, with --keep"
        )
    return found


def _wait_for_accounting(cluster: ContainerCluster, job_ids: Sequence[int]) -> list[BurstJobRecord]:
    """Accounting hears of a job's end a moment after it."""
    deadline_s = time.monotonic() + _ACCOUNTING_WITHIN_S
    while True:
        reply = cluster.exec(
            "root", sacct_argv(job_ids, burst_accounting.SACCT_FIELDS), environment=SACCT_ENVIRONMENT
        ).check()
        jobs = burst_accounting.parse_sacct(reply.stdout)
        if jobs is not None and len(jobs) == len(job_ids):
            return jobs
        if time.monotonic() > deadline_s:
            raise DemoError(
                f"sacct does not know the end of all jobs within {_ACCOUNTING_WITHIN_S:.0f} s; see slurmdbd's log"
            )
        time.sleep(0.5)
