"""The day through one real cluster, twice: the service's GPU kept all day, and placed by slurm-soda."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.container_commands import ContainerCommandResult
from slurm_soda.containers.images import find_checkout
from slurm_soda.demo import accounting, cluster_runs
from slurm_soda.demo.accounting import DemoError, MixJobRecord
from slurm_soda.demo.cluster_runs import PYTHON, DemoObserver, DemoPhase
from slurm_soda.demo.job_mix.mix_figures import StoredJobUsage
from slurm_soda.demo.services_day import day_settings
from slurm_soda.demo.services_day.day_figures import ServiceRun, read_samples, read_service_runs
from slurm_soda.demo.services_day.day_jobs import DayJob, build_orders, draw_day_jobs
from slurm_soda.demo.services_day.day_load import query_times
from slurm_soda.demo.services_day.day_settings import (
    FOLDER,
    MOST_BATCH,
    QUERY_FILE,
    SERVICE,
    SERVICE_FILE,
    TARGET_MS,
    DayRates,
    DaySettings,
    daemon_configuration,
    rates_of,
    service_file,
)
from slurm_soda.demo.services_day.owner_commands import (
    OWNER,
    owner_sodactl,
    put_file,
    queued_tasks,
    running_router,
    stop_sodad,
)
from slurm_soda.demo.sharing_mix.speed_table import GPU_TYPE
from slurm_soda.services.load.load_report import SentQuery
from slurm_soda.wire.services.service_profile import ServiceProfile

PHASES: tuple[DemoPhase, ...] = ("pinned", "placed")
_TIMES, _SAMPLES = f"{FOLDER}/times.txt", f"{FOLDER}/samples.csv"
_READY_WITHIN_S = 180.0
_PROFILE_LIMIT_S = 120.0
_JOBS_END_WITHIN_DAYS = 4.0
"""The jobs of a day take 0.85 of its GPU time; wide ones leave GPUs idle beside the service that is pinned."""
_LATE_S = 60.0
"""Beyond the day's end for the last queries."""


@dataclass(frozen=True, slots=True)
class DayPhaseResult:
    """What one day came to."""

    queries: Sequence[SentQuery]
    service_runs: Sequence[ServiceRun]
    jobs: tuple[MixJobRecord, ...]
    measured: Mapping[int, StoredJobUsage]


@dataclass(frozen=True, slots=True)
class DayResult:
    """Both."""

    rates: DayRates
    jobs: tuple[DayJob, ...]
    runs: Mapping[DemoPhase, DayPhaseResult]
    profile: Mapping[str, Any]
    """Of the service, as it was measured before."""
    versions: Mapping[str, str] = field(default_factory=dict)


def run_day_twice(settings: DaySettings, watch: DemoObserver) -> DayResult:
    """Bring a cluster up, profile the service, run the day once a phase, and take the cluster down.

    Raises:
        ClusterError: the cluster cannot be brought up.
        DemoError: a job was refused or failed, or the service did not become ready.
    """
    cluster = ContainerCluster.up(
        settings.cluster,
        nodes=day_settings.NODES,
        gpus=day_settings.GPUS_PER_NODE,
        cpus=day_settings.CORES_PER_NODE,
        slurm=settings.slurm,
        serving=True,
        progress=watch.say,
    )
    try:
        cluster_runs.warm_up_nodes(cluster)
        put_service(cluster)
        watch.say("measuring what the service answers on a core and on an emulated GPU")
        profile = measure_profile(cluster)
        rates = rates_of(capacity_qps(profile, "cpu"))
        watch.say(f"load: {rates.night_qps:.1f} queries a second at night, {rates.peak_qps:.1f} at noon")
        jobs = draw_day_jobs(settings.seed, settings.day_s)
        times = query_times(rates, settings.day_s, settings.seed)
        put_file(cluster, _TIMES, "".join(f"{one:.4f}\n" for one in times))
        runs = {phase: _run_phase(cluster, phase, settings, jobs, watch) for phase in PHASES}
        return DayResult(rates, jobs, runs, profile.to_dict(), cluster_runs.read_versions(cluster))
    finally:
        if settings.keep:
            watch.say(f"the cluster stays up; remove it with: sodactl cluster down --name {settings.cluster}")
        else:
            cluster.down()


def put_service(cluster: ContainerCluster) -> None:
    """Write the service's files into its owner's folder, which all nodes share."""
    cluster.exec(OWNER, ("mkdir", "-p", f"{FOLDER}/serving")).check()
    for path in sorted((find_checkout() / "examples" / "serving").glob("*.py")):
        put_file(cluster, f"{FOLDER}/serving/{path.name}", path.read_text())
    put_file(cluster, QUERY_FILE, json.dumps({"input": list(range(day_settings.TOKENS))}))
    put_file(cluster, SERVICE_FILE, service_file())


def measure_profile(cluster: ContainerCluster) -> ServiceProfile:
    """What the service answers on each device, by ``sodactl service profile``."""
    for device, batch in MOST_BATCH.items():
        gpu_type = ("--gpu-type", GPU_TYPE) if device == "gpu" else ()
        bounds = ("--device", device, "--most-batch", f"{batch}", "--limit-s", f"{_PROFILE_LIMIT_S / 2:g}", *gpu_type)
        owner_sodactl(cluster, "profile", SERVICE_FILE, *bounds, timeout_s=_PROFILE_LIMIT_S).check()
    content = cluster.copy_out(f"{FOLDER}/services/{SERVICE}/profile.json")
    return ServiceProfile.from_dict(json.loads(content), "profile.json")


def capacity_qps(profile: ServiceProfile, device: str) -> float:
    """Queries per second of one instance on a device, the measured error included; 0 where the target cannot be met."""
    found = (
        1000.0 * one.batch / (one.batch_ms * (1.0 + one.error_ratio))
        for one in profile.devices
        if one.device == device and one.batch
    )
    return max(found, default=0.0)


def _run_phase(
    cluster: ContainerCluster, phase: DemoPhase, settings: DaySettings, jobs: tuple[DayJob, ...], watch: DemoObserver
) -> DayPhaseResult:
    watch.say(f"{phase}: starting sodad, the service and its router")
    stop_sodad(cluster)
    cluster.start_daemon(daemon_configuration(settings.day_s, places=phase == "placed"))
    cluster.wait_until(lambda: cluster_runs.read_status(cluster).get("last_cycle") is not None, "sodad has run a cycle")
    put_file(cluster, SERVICE_FILE, service_file(cores=phase == "placed"))
    started = json.loads(owner_sodactl(cluster, "start", SERVICE_FILE, "--json").check().stdout)
    arrays = [int(array["array_job_id"]) for array in started["arrays"]]
    try:
        with running_router(cluster, SERVICE_FILE, FOLDER, day_settings.ROUTER_PORT):
            url = f"http://127.0.0.1:{day_settings.ROUTER_PORT}/predict"
            cluster.wait_until(
                lambda: _answers(cluster, url), "the service answers through its router", _READY_WITHIN_S
            )
            if phase == "placed":
                cluster.wait_until(
                    lambda: _settled(cluster, arrays), "the service is on cores at midnight", _READY_WITHIN_S
                )
            load = _Load(cluster, url, settings.day_s)
            records, measured = cluster_runs.run_orders(
                cluster, phase, build_orders(jobs), watch, _JOBS_END_WITHIN_DAYS * settings.day_s
            )
            queries = load.result()
    finally:
        cluster.exec(OWNER, ("scancel", *map(str, arrays))).check()
    cluster.wait_until(lambda: not queued_tasks(cluster, arrays), "the service's tasks have ended")
    said = cluster.exec("root", accounting.sacct_argv(arrays), environment=accounting.SACCT_ENVIRONMENT).check().stdout
    for line in cluster_runs.daemon_problems(cluster_runs.read_status(cluster)):
        watch.say(f"{phase}: {line}")
    return DayPhaseResult(queries, read_service_runs(said, load.began_s, settings.day_s), records, measured)


class _Load:
    """The load generator, beside everything else on the controller."""

    def __init__(self, cluster: ContainerCluster, url: str, day_s: float) -> None:
        argv = [PYTHON, "-m", "slurm_soda.services.load", url, "--pattern", "replay", "--times", _TIMES]
        argv += ["--body", QUERY_FILE, "--target-ms", f"{TARGET_MS:g}", "--samples", _SAMPLES, "--json"]
        self.began_s = time.time()
        self._cluster, self._replies = cluster, list[ContainerCommandResult]()
        self._thread = threading.Thread(
            target=lambda: self._replies.append(cluster.exec(OWNER, argv, timeout_s=day_s + _LATE_S)), daemon=True
        )
        self._thread.start()

    def result(self) -> list[SentQuery]:
        """What became of the queries, once all are answered or given up.

        Raises:
            DemoError: the generator did not run to its end.
        """
        self._thread.join()
        if not self._replies or self._replies[0].status != 0:
            said = " ".join(self._replies[0].stderr.split())[-300:] if self._replies else "nothing"
            raise DemoError(f"the load generator ended early and said: {said}")
        return read_samples(self._cluster.copy_out(_SAMPLES).decode())


def _answers(cluster: ContainerCluster, url: str) -> bool:
    argv = ("curl", "-sf", "-m", "5", "-H", "Content-Type: application/json", "-d", f"@{QUERY_FILE}", url)
    return cluster.exec(OWNER, argv).status == 0


def _settled(cluster: ContainerCluster, arrays: Sequence[int]) -> bool:
    """Whether the service runs on cores alone, as it shall at night."""
    running = [row for row in queued_tasks(cluster, arrays) if row.startswith(("RUNNING", "COMPLETING"))]
    return bool(running) and not any("gpu" in row for row in running)
