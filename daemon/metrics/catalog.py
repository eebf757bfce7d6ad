"""Every metric that sodad shows, with its labels and its meaning; docs/metrics.md has the same table.

Names go with those of Slurm's own plugin ``metrics/openmetrics`` (Slurm 25.11 and later): what both count has the same name
after ``slurm_`` or ``soda_``, and the labels ``node`` and ``partition`` are Slurm's, so that one query can join both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MetricKind = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One name, and the series that it stands for."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    meaning: str


def _rows(kind: MetricKind, labels: str, **meanings: str) -> tuple[Metric, ...]:
    return tuple(Metric(f"soda_{name}", kind, tuple(labels.split()), text) for name, text in meanings.items())


SITE: tuple[Metric, ...] = (
    *_rows("gauge", "version", build_info="1; the version of slurm-soda that runs"),
    *_rows("gauge", "mode", mode="1 for the mode in force: observe, advise or enforce"),
    *_rows("gauge", "policy", policy_info="1; the policy that decides"),
    *_rows("counter", "result", cycles_total="Cycles that were done or failed"),
    *_rows("histogram", "", cycle_duration_seconds="Time that a cycle took, of those that were done"),
    *_rows("counter", "part", cycle_part_seconds_total="Time in a part of the cycles: observe, decide, act, record"),
    *_rows(
        "gauge",
        "",
        cycle_last_timestamp_seconds="When the last cycle began",
        cycle_last_success_timestamp_seconds="When the last cycle that was done began",
        cycle_interval_seconds="Longest time between two cycles as configured (cycle.interval_s)",
        breaker_open="1 while the circuit breaker is open, so that sodad only observes",
        breaker_failures="Failing cycles in a row, as the circuit breaker counts them",
    ),
    *_rows("counter", "kind result", changes_total="Changes that cycles sent: done, failed, or sent without an answer"),
    *_rows("gauge", "", changes_deferred="Changes of the last cycle that the change limits put off"),
    *_rows("counter", "", preemptions_total="Preemptions that were begun"),
    *_rows(
        "gauge",
        "",
        preemptions_active="Preemptions that are not over",
        jobs_pending="Jobs that wait",
        jobs_eligible="Of the jobs that wait, those that only wait for resources or their turn",
        jobs_running="Jobs that run",
        jobs_gpus_pending="GPUs that eligible jobs ask for",
        jobs_gpus_alloc="GPUs that running jobs hold, those of guests counted again",
    ),
    *_rows(
        "gauge",
        "scope state",
        scope_jobs="Jobs that wait (pending) and run (running), in and out of [scope]; without one all are in",
    ),
    *_rows(
        "gauge",
        "partition",
        partition_jobs_pending="Jobs that wait in the partition; one that names several counts in each",
        partition_jobs_eligible="Of them, those that only wait for resources or their turn",
        partition_jobs_running="Jobs that run in the partition",
        partition_jobs_gpus_pending="GPUs that eligible jobs ask for",
        partition_jobs_gpus_alloc="GPUs that running jobs hold, those of guests counted again",
        partition_gpus="GPUs of the partition's nodes; nodes of several partitions count in each",
        partition_gpus_idle="Of them, those that no job holds, on nodes that can be used",
    ),
    *_rows(
        "gauge",
        "",
        gpus="GPUs of the cluster",
        gpus_alloc="GPUs that jobs hold",
        gpus_idle="GPUs that no job holds, on nodes that can be used",
        gpus_shared="GPUs on which a guest runs beside a host",
        guests="Jobs that run as guests",
    ),
    *_rows("gauge", "phase", shares="Shares of GPUs that are not over, by phase"),
    *_rows("counter", "", shares_begun_total="Shares that were begun: Slurm took the guest's new request"),
    *_rows("counter", "end", shares_ended_total="Shares that are over, by how they ended"),
    *_rows("histogram", "partition", job_wait_seconds="How long jobs that started had waited for resources"),
    *_rows("gauge", "outcome", start_forecasts="The newest forecasts of starts: held, earlier or later"),
    *_rows("gauge", "", store_size_bytes="Size of the store with its log, where it is a file"),
    *_rows("gauge", "state", agents="Nodes by agent: reporting, silent (60 s), never heard of; unusable nodes without one"),
    *_rows("counter", "", agent_reports_total="Reports of agents that were taken"),
    *_rows(
        "gauge",
        "",
        services="Inference services whose routers report",
        services_silent="Services whose router has been silent for services.silent_after_s",
        services_late="Services whose 99th percentile of latency was above their target at the last report",
        services_queries_per_second="Load of all services that are not silent",
        services_worst_latency_ratio="Largest 99th percentile of latency over its service's target, at the last reports",
    ),
    *_rows("counter", "result", services_queries_total="Queries: in_time, late (after the target), failed"),
    *_rows("gauge", "device state", services_instances="Instances by device, and state as routers see it"),
    *_rows("gauge", "device", services_instances_wanted="Instances that shall run"),
    *_rows("gauge", "section", metrics_section_failed="1 for a section that could not be made; the log says why"),
)  # fmt: skip
"""At ``/metrics``."""

PROCESS = (
    "process_virtual_memory_bytes",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
)
"""Of sodad itself, by the Prometheus client library, at ``/metrics``."""

NODES: tuple[Metric, ...] = (
    *_rows(
        "gauge",
        "node",
        node_gpus="GPUs of the node",
        node_gpus_alloc="GPUs that jobs hold",
        node_gpus_shared="GPUs on which a guest runs beside a host",
        node_usable="1 if jobs can start on the node: not down, draining, reserved or silent to Slurm",
    ),
    *_rows(
        "gauge",
        "node gpu",
        node_gpu_util_ratio="Utilisation of a GPU that some job holds, by NVML",
        node_gpu_memory_used_bytes="Memory in use on such a GPU, by NVML",
    ),
    *_rows(
        "gauge", "node by", node_jobs_limited="Jobs that the agent limits now: by cores, memory_bandwidth or network"
    ),
    *_rows(
        "gauge",
        "node",
        node_cores_taken="Cores that jobs on the node lack of what Slurm gave them",
        node_mps_daemons="Control daemons of NVIDIA MPS",
        node_mps_jobs="Jobs under NVIDIA MPS",
        agent_last_report_timestamp_seconds="When the agent's last report came",
        agent_faults="Different faults that the agent told of in the last hour",
        agent_resident_memory_bytes="Memory of the agent",
    ),
    *_rows("counter", "node", agent_cpu_seconds_total="CPU time of the agent and of the programs that it ran"),
)
"""At ``/metrics/nodes``."""

BY_NAME = {metric.name: metric for metric in (*SITE, *NODES)}
