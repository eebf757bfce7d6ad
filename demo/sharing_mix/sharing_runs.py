"""The mix through one real cluster, once a phase: stock Slurm, Tiresias, and a policy that lets jobs share GPUs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.cluster_spec import DEFAULT_SLURM
from slurm_soda.containers.images import find_checkout
from slurm_soda.demo import cluster_runs
from slurm_soda.demo.accounting import MixJobRecord
from slurm_soda.demo.cluster_runs import SODACTL, DemoObserver, DemoPhase
from slurm_soda.demo.job_mix.demo_settings import GPUS_PER_NODE, NODES
from slurm_soda.demo.job_mix.mix_figures import StoredJobUsage
from slurm_soda.demo.sharing_mix.sharing_jobs import TIME_SCALE, SharingJob, build_orders, draw_sharing_mix
from slurm_soda.demo.sharing_mix.speed_table import GPU_TYPE, ModelSpeed, make_table, read_slowdowns, read_speeds

PHASES: tuple[DemoPhase, ...] = ("stock", "tiresias", "sharing")
CORES_PER_NODE = 64
MIN_RUN_S = 4.0
CHANGE_S = 1.0
"""What a preemption costs a job here, and so what a change of places costs (measured: 0.9 s)."""
QUEUE_THRESHOLD_GPU_S = 30.0
"""Border of Tiresias' two queues: between the shorter and the longer half of the jobs."""
_TABLE = "/root/speeds.json"

POLICIES: Mapping[DemoPhase, str] = {"stock": "fifo", "tiresias": "tiresias-las", "sharing": "srsf-share"}
"""Under stock Slurm sodad only observes."""
PARAMETERS: Mapping[DemoPhase, Mapping[str, float | list[float]]] = {
    "stock": {},
    "tiresias": {"thresholds_gpu_s": [QUEUE_THRESHOLD_GPU_S], "min_run_s": MIN_RUN_S},
    "sharing": {"min_run_s": MIN_RUN_S, "change_s": CHANGE_S},
}
_COMMON = """
[cycle]
interval_s = 1.0
[change_limits]
min_change_interval_s = 0.2
[cpu_fit]
rewrite = "off"
[slurm]
accounting_past_days = 0
"""
_SHARING = """
[sharing]
partitions = ["gpu"]
"""
_NODE_FILE, _NODE_SETTINGS = "/etc/slurm-soda/sharing.conf", "mps=yes\npartitions=gpu\nkill_wait_s=10\n"


@dataclass(frozen=True, slots=True)
class SharingDemoSettings:
    """One invocation."""

    seed: int = 1
    jobs: int = 24
    out: Path = Path("build/sharing")
    keep: bool = False
    """Leave the cluster up afterwards."""
    cluster: str = "demo"
    slurm: str = DEFAULT_SLURM
    phases: tuple[DemoPhase, ...] = PHASES


@dataclass(frozen=True, slots=True)
class SharingPhaseResult:
    """What one run of the mix came to."""

    jobs: tuple[MixJobRecord, ...]
    measured: Mapping[int, StoredJobUsage]
    shares: Sequence[Mapping[str, Any]] = ()
    """Guests, as ``sodactl shares`` lists them."""


@dataclass(frozen=True, slots=True)
class SharingDemoResult:
    """All runs."""

    mix: tuple[SharingJob, ...]
    table: str
    """Speeds alone and in pairs, as they were imported."""
    runs: Mapping[DemoPhase, SharingPhaseResult]
    versions: Mapping[str, str] = field(default_factory=dict)


def daemon_configuration(phase: DemoPhase) -> str:
    """The configuration file of sodad in a phase."""
    mode = "observe" if phase == "stock" else "enforce"
    parameters = "".join(f"{name} = {value}\n" for name, value in PARAMETERS[phase].items())
    policy = f'mode = "{mode}"\n[policy]\nname = "{POLICIES[phase]}"\n[policy.parameters]\n{parameters}'
    return policy + _COMMON + (_SHARING if phase == "sharing" else "")


def run_sharing_phases(settings: SharingDemoSettings, watch: DemoObserver) -> SharingDemoResult:
    """Bring a cluster up, send the mix through it once a phase, and take the cluster down.

    Raises:
        ClusterError: the cluster cannot be brought up.
        DemoError: a job was refused or failed, or accounting did not hear of all of them.
        ValueError: too few jobs.
    """
    trainer = find_checkout() / "emulation" / "trainer"
    speeds = read_speeds(trainer)
    table = make_table(speeds, read_slowdowns(trainer), TIME_SCALE)
    mix = draw_sharing_mix(settings.seed, settings.jobs, speeds)
    cluster = ContainerCluster.up(
        settings.cluster,
        nodes=NODES,
        gpus=GPUS_PER_NODE,
        cpus=CORES_PER_NODE,
        slurm=settings.slurm,
        progress=watch.say,
    )
    try:
        cluster_runs.warm_up_nodes(cluster)
        runs = {phase: _run(cluster, phase, mix, speeds, table, watch) for phase in settings.phases}
        return SharingDemoResult(mix, table, runs, cluster_runs.read_versions(cluster))
    finally:
        if settings.keep:
            watch.say(f"the cluster stays up; remove it with: sodactl cluster down --name {settings.cluster}")
        else:
            cluster.down()


def _run(  # noqa: PLR0917 - what a phase is made of
    cluster: ContainerCluster,
    phase: DemoPhase,
    mix: tuple[SharingJob, ...],
    speeds: Mapping[str, ModelSpeed],
    table: str,
    watch: DemoObserver,
) -> SharingPhaseResult:
    watch.say(f"{phase}: sodad starts with {POLICIES[phase]}")
    cluster.stop_daemon()
    if phase == "sharing":
        for node in cluster.spec.compute_hosts:
            cluster.copy_in(_NODE_SETTINGS.encode(), _NODE_FILE, node=node)
    cluster.start_daemon(daemon_configuration(phase))
    cluster.wait_until(lambda: cluster_runs.read_status(cluster).get("last_cycle") is not None, "sodad has run a cycle")
    if phase == "sharing":
        cluster.copy_in(table.encode(), _TABLE)
        cluster.exec("root", (SODACTL, "profiles", "import", _TABLE, "--gpu", GPU_TYPE)).check()
    jobs, measured = cluster_runs.run_orders(cluster, phase, build_orders(mix, speeds), watch)
    for line in cluster_runs.daemon_problems(cluster_runs.read_status(cluster)):
        watch.say(f"{phase}: {line}")
    return SharingPhaseResult(jobs, measured, _read_shares(cluster) if phase == "sharing" else ())


def _read_shares(cluster: ContainerCluster) -> list[Mapping[str, Any]]:
    said = cluster.exec("root", (SODACTL, "shares", "--json")).check()
    found: list[Mapping[str, Any]] = json.loads(said.stdout)["shares"]
    return found
