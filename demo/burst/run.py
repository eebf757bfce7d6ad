"""The burst itself: the same jobs under stock Slurm and under arrays, on one real cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slurm_soda.containers.cluster import Cluster
from slurm_soda.daemon.arrays.ordering import RESERVING_FROM
from slurm_soda.demo.burst import batch, truth
from slurm_soda.demo.burst.figures import Layout
from slurm_soda.demo.burst.mix import BurstJob
from slurm_soda.demo.burst.settings import CPU_CORES, LARGE_NODES, NODE, NODES, BurstSettings, daemon_configuration
from slurm_soda.demo.burst.truth import BurstTruth
from slurm_soda.demo.run import SODACTL, Phase, Watch, complaints, drive, set_mode, status, versions, warm_up
from slurm_soda.demo.truth import ENVIRONMENT, DemoError

APPLY = ("arrays", "apply", f"--cpu-cores={CPU_CORES}", f"--large-nodes={LARGE_NODES}")
"""Words of sodactl that put the demo's arrays in force."""

_ACCOUNTING_WITHIN_S = 60.0
_APPLY_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Burst:
    """What both runs came to."""

    stock: tuple[BurstTruth, ...]
    soda: tuple[BurstTruth, ...]
    arrays: dict[str, Any]
    """What ``sodactl arrays`` said of the arrays in force."""
    layout: Layout
    """The same, as the figures need it."""
    log: list[dict[str, Any]]
    """The store's log of each array."""
    versions: dict[str, str]


def run_twice(settings: BurstSettings, jobs: Sequence[BurstJob], watch: Watch) -> Burst:
    """Bring a cluster up, run the burst under stock Slurm and under arrays, take the arrays back and the cluster down.

    Raises:
        ClusterError: the cluster cannot be brought up, or does not take the arrays.
        DemoError: a job was refused or failed, or accounting did not hear of all of them.
    """
    cluster = Cluster.up(settings.cluster, nodes=NODES, gpus=NODE.gpus, cpus=NODE.cores, progress=watch.say)
    try:
        warm_up(cluster)
        cluster.start_daemon(daemon_configuration(settings))
        watch.say("stock: one partition for all jobs, sodad in mode observe")
        set_mode(cluster, "observe")
        stock = _run(cluster, "stock", jobs, watch)
        shown = apply_arrays(cluster)
        watch.say(f"soda: arrays {', '.join(part['name'] for part in shown['partitions'])}, sodad in mode enforce")
        set_mode(cluster, "enforce")
        soda = _run(cluster, "soda", jobs, watch)
        for line in complaints(status(cluster)):
            watch.say(f"soda: {line}")
        log = _sodactl(cluster, "arrays", "log", "--json").get("arrays", [])
        revert_arrays(cluster)
        return Burst(tuple(stock), tuple(soda), shown, layout_of(shown), log, versions(cluster))
    finally:
        if settings.keep:
            watch.say(f"the cluster stays up; remove it with: sodactl cluster down --name {settings.cluster}")
        else:
            cluster.down()


def apply_arrays(cluster: Cluster) -> dict[str, Any]:
    """Put arrays in force as an admin would; what ``sodactl arrays status`` says of them.

    Slurm's own parameters for arrays (docs/arrays.md) are set only now: stock Slurm is to run with its defaults.
    """
    for host in cluster.spec.hosts:
        text = cluster.copy_out("/etc/slurm/slurm.conf", node=host).decode()
        cluster.copy_in(with_parameters(text).encode(), "/etc/slurm/slurm.conf", node=host)
    cluster.exec("root", ("scontrol", "reconfigure")).check()
    cluster.exec("root", (SODACTL, *APPLY), timeout_s=_APPLY_WITHIN_S).check()
    return _sodactl(cluster, "arrays", "status", "--json")


def with_parameters(slurm_conf: str) -> str:
    """slurm.conf with the scheduler's parameters that arrays want."""
    wanted = f",preempt_youngest_first,bf_min_prio_reserve={RESERVING_FROM}"
    lines = [
        line + wanted if line.startswith("SchedulerParameters=") and wanted not in line else line
        for line in slurm_conf.splitlines()
    ]
    return "\n".join([*lines, ""])


def revert_arrays(cluster: Cluster) -> None:
    """Take them back."""
    cluster.exec("root", (SODACTL, "arrays", "revert", "--wait"), timeout_s=_APPLY_WITHIN_S).check()


def layout_of(shown: dict[str, Any]) -> Layout:
    """The arrays that ``sodactl arrays status`` shows; all nodes of the demo are of one class."""
    parts = shown["partitions"]
    return Layout(
        borrowing=frozenset(part["name"] for part in parts if part["borrowing"]),
        limits={part["name"]: int(part["cores_per_node"]) for part in parts},
        cpu_cores=int(shown["shares"][0]["cpu_cores"]),
    )


def _sodactl(cluster: Cluster, *words: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(cluster.exec("root", (SODACTL, *words)).check().stdout)
    return document


def _run(cluster: Cluster, phase: Phase, jobs: Sequence[BurstJob], watch: Watch) -> list[BurstTruth]:
    job_ids = drive(cluster, phase, batch.orders(jobs), watch)
    found = _wait_for_accounting(cluster, job_ids)
    if bad := [job for job in found if job.state != "COMPLETED"]:
        ended = ", ".join(f"{job.job_id} ({job.name}) {job.state}" for job in bad[:5])
        raise DemoError(
            f"{len(bad)} of {len(found)} jobs did not complete: {ended}; see: sodactl cluster logs, with --keep"
        )
    return found


def _wait_for_accounting(cluster: Cluster, job_ids: Sequence[int]) -> list[BurstTruth]:
    """Accounting hears of a job's end a moment after it."""
    deadline_s = time.monotonic() + _ACCOUNTING_WITHIN_S
    while True:
        reply = cluster.exec("root", truth.sacct_argv(job_ids), environment=ENVIRONMENT).check()
        jobs = truth.read_sacct(reply.stdout)
        if jobs is not None and len(jobs) == len(job_ids):
            return jobs
        if time.monotonic() > deadline_s:
            raise DemoError(
                f"sacct does not know the end of all jobs within {_ACCOUNTING_WITHIN_S:.0f} s; see slurmdbd's log"
            )
        time.sleep(0.5)
