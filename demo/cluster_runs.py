"""The demo itself: one mix, twice through one real cluster, and what accounting says of it."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.container_commands import ContainerCommandResult
from slurm_soda.demo import accounting
from slurm_soda.demo.accounting import DemoError, MixJobRecord
from slurm_soda.demo.job_driver import DriverEvent
from slurm_soda.demo.job_mix import sbatch
from slurm_soda.demo.job_mix.demo_settings import GPUS_PER_NODE, NODES, DemoSettings, daemon_configuration
from slurm_soda.demo.job_mix.mix_figures import StoredJobUsage
from slurm_soda.demo.job_mix.mix_jobs import JobMix
from slurm_soda.demo.job_mix.sacct_dump import write_dump

PYTHON = "/opt/slurm-soda/bin/python"
SODACTL = "/opt/slurm-soda/bin/sodactl"

DemoPhase = Literal["stock", "soda", "tiresias", "sharing", "pinned", "placed"]
PHASES: tuple[DemoPhase, ...] = ("stock", "soda")
MODES = {"stock": "observe", "soda": "enforce"}

_POLL_S = 1.0
_PHASE_LIMIT_S = 900.0
_ACCOUNTING_WITHIN_S = 60.0
_STORE_WITHIN_S = 8.0
_STDOUT = 1


@dataclass(frozen=True, slots=True)
class DemoObserver:
    """Output while it runs: lines for people, and the driver's events of a phase."""

    say: Callable[[str], None]
    event: Callable[[DemoPhase, DriverEvent], None]


@dataclass(frozen=True, slots=True)
class DemoPhaseResult:
    """What one run of the mix came to."""

    jobs: tuple[MixJobRecord, ...]
    measured: dict[int, StoredJobUsage]
    """The store's word, by job id."""


def run_mix_twice(
    settings: DemoSettings, mix: JobMix, watch: DemoObserver
) -> tuple[dict[DemoPhase, DemoPhaseResult], dict[str, str]]:
    """Bring a cluster up, run the mix under slurm-soda and under stock Slurm, take the cluster down.

    Returns the result of each phase, and the versions of everything that took part. Writes a dump of accounting after
    each phase.

    Raises:
        ClusterError: the cluster cannot be brought up.
        DemoError: a job was refused or failed, or accounting did not hear of all of them.
    """
    cluster = ContainerCluster.up(
        settings.cluster, nodes=NODES, gpus=GPUS_PER_NODE, slurm=settings.slurm, progress=watch.say
    )
    try:
        warm_up_nodes(cluster)
        cluster.start_daemon(daemon_configuration(settings, mix))
        results: dict[DemoPhase, DemoPhaseResult] = {}
        # Stock Slurm comes second: before, sodad would learn from it how long these very jobs run.
        for phase in reversed(PHASES):
            watch.say(f"{phase}: sodad in mode {MODES[phase]}")
            set_mode(cluster, MODES[phase])
            results[phase] = run_phase(cluster, phase, mix, watch)
            write_dump(cluster, phase, results[phase].jobs, settings.out)
            for line in daemon_problems(read_status(cluster)):
                watch.say(f"{phase}: {line}")
        return {phase: results[phase] for phase in PHASES}, read_versions(cluster)
    finally:
        if settings.keep:
            watch.say(f"the cluster stays up; remove it with: sodactl cluster down --name {settings.cluster}")
        else:
            cluster.down()


def warm_up_nodes(cluster: ContainerCluster) -> None:
    """One step on every node: the first job after a start of slurmctld waits some seconds, which nobody shall count."""
    cluster.exec("alice", ("srun", f"--nodes={NODES}", f"--ntasks={NODES}", "true")).check()


def set_mode(cluster: ContainerCluster, mode: str) -> None:
    """Put sodad into a mode and wait for its first cycle in it.

    Raises:
        ClusterError: it does not come to that within a minute.
    """
    cluster.wait_until(lambda: read_status(cluster).get("last_cycle") is not None, "sodad has run a cycle")
    cluster.exec("root", (SODACTL, "mode", mode)).check()
    cluster.wait_until(
        lambda: (read_status(cluster).get("last_cycle") or {}).get("mode") == mode, f"sodad is in {mode}"
    )


def read_status(cluster: ContainerCluster) -> dict[str, Any]:
    """What ``sodactl status`` says; empty while the daemon is only starting."""
    return _document(cluster.exec("root", (SODACTL, "status", "--json")))


def daemon_problems(status: dict[str, Any]) -> list[str]:
    """What was wrong with the daemon, from ``sodactl status``: figures of a run in which it stood still say nothing."""
    error, breaker = status.get("last_error") or {}, status.get("breaker") or {}
    lines = [f"a cycle of sodad failed: {error['error']}"] if error.get("error") else []
    if breaker.get("state", "closed") != "closed":
        lines.append(f"sodad's breaker is {breaker['state']}: it only observed for a while")
    return lines


def _document(reply: ContainerCommandResult) -> dict[str, Any]:
    """JSON that a command printed; empty if it printed none (the daemon is only starting)."""
    try:
        document = json.loads(reply.stdout)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def run_phase(cluster: ContainerCluster, phase: DemoPhase, mix: JobMix, watch: DemoObserver) -> DemoPhaseResult:
    """Submit the mix, watch it to its end, and ask accounting and the store about it."""
    return DemoPhaseResult(*run_orders(cluster, phase, sbatch.build_orders(mix), watch))


def run_orders(
    cluster: ContainerCluster,
    phase: DemoPhase,
    orders: Sequence[Mapping[str, Any]],
    watch: DemoObserver,
    limit_s: float = _PHASE_LIMIT_S,
) -> tuple[tuple[MixJobRecord, ...], dict[int, StoredJobUsage]]:
    """Submit jobs, watch them to their end, for so many seconds at most, and ask accounting and the store about them.

    Raises:
        DemoError: a job was refused or failed, or accounting did not hear of all of them.
    """
    job_ids = run_driver(cluster, phase, orders, watch, limit_s)
    jobs = _wait_for_accounting(cluster, job_ids)
    if bad := accounting.find_incomplete_jobs(jobs):
        ended = ", ".join(f"{job.job_id} ({job.name}) {job.state}" for job in bad[:5])
        raise DemoError(
            f"{len(bad)} of {len(jobs)} jobs did not complete: {ended}; see: sodactl cluster logs, with --keep"
        )
    return tuple(jobs), _wait_for_store(cluster, job_ids)


def run_driver(
    cluster: ContainerCluster,
    phase: DemoPhase,
    orders: Sequence[Mapping[str, Any]],
    watch: DemoObserver,
    limit_s: float = _PHASE_LIMIT_S,
) -> list[int]:
    """Submit jobs by the clock, watch them to their end, for so many seconds at most; their ids in the order of submission.

    Raises:
        DemoError: a job was refused, or they do not end.
    """
    task = {"orders": list(orders), "poll_s": _POLL_S, "limit_s": limit_s}
    running = cluster.run("root", (PYTHON, "-m", "slurm_soda.demo.job_driver"), input=json.dumps(task).encode())
    job_ids: list[int] = []
    said: list[str] = []
    for event in parse_driver_events(running, said):
        watch.event(phase, event)
        match event["event"]:
            case "submitted":
                job_ids.append(int(event["job_id"]))
            case "refused":
                order = orders[int(event["index"])]
                raise DemoError(f"sbatch refused job {event['index'] + 1} of {order['user']}: {event['error']}")
            case "timeout":
                raise DemoError(f"{phase}: jobs were left after {limit_s:.0f} s; look with --keep and squeue")
    if (status := running.status()) != 0 or len(job_ids) != len(orders):
        raise DemoError(
            f"{phase}: the driver submitted {len(job_ids)} of {len(orders)} jobs and ended with status {status}:"
            f" {' '.join(said)[-300:]}"
        )
    return job_ids


def parse_driver_events(chunks: Iterable[tuple[int, bytes]], said: list[str]) -> Iterator[DriverEvent]:
    """Events of a driver's output, which comes in pieces that do not end where lines end; standard error is kept."""
    buffer = b""
    for stream, data in chunks:
        if stream != _STDOUT:
            said.append(data.decode(errors="replace"))
            continue
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            yield json.loads(line)


def _wait_for_accounting(cluster: ContainerCluster, job_ids: Sequence[int]) -> list[MixJobRecord]:
    """Accounting hears of a job's end a moment after it."""
    deadline_s = time.monotonic() + _ACCOUNTING_WITHIN_S
    while True:
        reply = cluster.exec("root", accounting.sacct_argv(job_ids), environment=accounting.SACCT_ENVIRONMENT).check()
        jobs = accounting.parse_sacct(reply.stdout)
        if jobs is not None and len(jobs) == len(job_ids):
            return jobs
        if time.monotonic() > deadline_s:
            raise DemoError(
                f"sacct does not know the end of all jobs within {_ACCOUNTING_WITHIN_S:.0f} s; see slurmdbd's log"
            )
        time.sleep(0.5)


def _wait_for_store(cluster: ContainerCluster, job_ids: Sequence[int]) -> dict[int, StoredJobUsage]:
    """What the store says, once it knows every job's end and use; what it has by then if that does not come."""
    deadline_s = time.monotonic() + _STORE_WITHIN_S
    while True:
        rows = _document(cluster.exec("root", (SODACTL, "history", "--json"))).get("jobs", [])
        found = {
            row["job_id"]: StoredJobUsage(row["jct_s"], row["gpu_util_ratio"])
            for row in rows
            if row["job_id"] in job_ids
        }
        whole = len(found) == len(job_ids) and all(m.gpu_util_ratio is not None for m in found.values())
        if whole or time.monotonic() > deadline_s:
            return found
        time.sleep(1.0)


def read_versions(cluster: ContainerCluster) -> dict[str, str]:
    """Versions of everything that took part."""
    return {
        "slurm-soda": version("slurm-soda"),
        "slurm": cluster.exec("root", ("sinfo", "--version")).check().stdout.split()[-1],
        "python": platform.python_version(),
        "kernel": platform.release(),
    }
