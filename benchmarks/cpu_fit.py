"""CPU time that fitting CPUs takes of a cycle in which nothing changed: ``python -m benchmarks.cpu_fit``.

The parts of sodad's cycle alone, in this process and without Slurm: read the requests, judge them, compare with what was
concluded before, and make the changes. Jobs are of 64 users, three categories and twelve models; of those that are held
back, sodad wants a change in each cycle that the change limits do not admit.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from time import process_time

import click

from slurm_soda.daemon.cpu_fit.reader import CpuRequestReader
from slurm_soda.daemon.cpu_fit.recorder import CpuFitRecorder
from slurm_soda.daemon.cycle.slurm_state import SlurmState
from slurm_soda.daemon.settings.scheduling import CpuFitSettings
from slurm_soda.daemon.store.engine import open_store
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.policies.cpu_fit.limits import AccountingLimits
from slurm_soda.policies.cpu_fit.stage import CpuFit
from slurm_soda.policies.cpu_fit.start_cores import DEFAULT_CORES
from slurm_soda.policies.pipeline.stages import empty_plan
from slurm_soda.policies.snapshot import ClusterSnapshot, JobTable, NodeTable
from slurm_soda.slurm_ext.client import SlurmJob, SlurmNode
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.read.job_request import JobRequest, PartitionLimits
from slurm_soda.slurm_ext.write.job_changes import request_changes

NODES, NODE_CPUS, NODE_GPUS = 64, 32, 4


def waiting_job(job_id: int, *, right: bool) -> SlurmJob:
    """A hinted job that asks for as many CPUs as it needs, or for one more."""
    category = tuple(DEFAULT_CORES)[job_id % 3]
    gpus = 2 ** (job_id // 3 % 3)
    cpus = DEFAULT_CORES[category] * gpus + (not right)
    return SlurmJob(
        job_id,
        0,
        "",
        "PENDING",
        "Priority",
        f"user{job_id % 64}",
        1000,
        "account",
        "main",
        "normal",
        "job",
        "",
        submit_s=float(job_id),
        eligible_s=float(job_id),
        start_s=math.nan,
        end_s=math.nan,
        time_limit_s=3600.0,
        priority=job_id * 7919 % 10_007,
        nice=0,
        restarts=0,
        nodes=1,
        cpus=cpus,
        cpus_per_task=cpus,
        memory_mib=cpus * 1000,
        gpus=gpus,
        gpus_per_node=gpus,
        gpu_type="",
        node_names="",
        exit_code="0:0",
        dependency="",
        hints=Hints(category=category, model=f"model{job_id % 12}"),
    )


class Requests:
    """The part of a Slurm client that is asked here."""

    def __init__(self, jobs: dict[int, SlurmJob]) -> None:
        self._jobs = jobs

    def request(self, job_id: int) -> JobRequest:
        """One task with all CPUs of the job."""
        cpus = self._jobs[job_id].cpus
        return JobRequest(job_id, 1, 1, 1, 0, cpus, cpus, cpus, memory_per_cpu_mib=1000)

    def partition_tiers(self) -> dict[str, int]:
        return {}

    def partition_limits(self) -> dict[str, PartitionLimits]:
        """None."""
        return {"main": PartitionLimits("main")}


class NoLimits:
    """A site that enforces none."""

    def current(self, _steady_s: float) -> AccountingLimits:
        """At once."""
        return AccountingLimits()


def steady_cycle(state_dir: str, jobs: int, held: int) -> Callable[[], int]:
    """One cycle's part, to be called again and again; gives the number of changes that it wants."""
    listed = {n: waiting_job(n, right=n * held // jobs == (n - 1) * held // jobs) for n in range(1, jobs + 1)}
    nodes = [
        SlurmNode(f"n{n}", "MIXED", True, NODE_CPUS, 0, 256_000, 0, NODE_GPUS, NODE_GPUS, "", ("main",))
        for n in range(NODES)
    ]
    store = open_store(f"sqlite:///{state_dir}/soda.db")
    state, cache = SlurmState(float(jobs), float(jobs), listed, nodes, {}, {}), JobCache(store)
    cache.observe(list(listed.values()), state.now_s)
    requests = CpuRequestReader(CpuFitSettings(), store, Requests(listed), NoLimits())  # type: ignore[arg-type]
    recorder, rest = CpuFitRecorder(store), ClusterSnapshot(0.0, JobTable.empty(), NodeTable.uniform(1, 1))

    def cycle() -> int:
        snapshot = replace(rest, cpu_requests=requests.read(state, cache, acts=True))
        plan = CpuFit().apply(snapshot, empty_plan())
        recorder.conclude(plan, state, cache)
        return len(request_changes(plan, snapshot))

    return cycle


@click.command()
@click.option("--jobs", default=10_000, show_default=True, help="Waiting jobs.")
@click.option("--held", default=3000, show_default=True, help="Those whose change is held back.")
@click.option("--cycles", default=30, show_default=True, help="Measured cycles.")
def main(jobs: int, held: int, cycles: int) -> None:
    """How long fitting CPUs takes in a cycle in which nothing changed."""
    for count in dict.fromkeys((0, held)):
        with tempfile.TemporaryDirectory() as state_dir:
            cycle, took_s = steady_cycle(state_dir, jobs, count), []
            while cycle() < count:
                pass  # a few details a cycle are asked for
            for _ in range(cycles):
                begin_s = process_time()
                cycle()
                took_s.append(process_time() - begin_s)
        middle_s = sorted(took_s)[cycles // 2]
        click.echo(
            f"{jobs} waiting, {count} held back: median {middle_s * 1e3:.0f} ms, least {min(took_s) * 1e3:.0f} ms"
        )


if __name__ == "__main__":
    main()
