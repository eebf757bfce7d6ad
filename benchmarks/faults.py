"""The demo with ``kill -9`` of sodad at random moments, and its history beside accounting: ``python -m benchmarks.faults``.

The demo runs as ``sodactl demo`` does; in its second phase, where sodad enforces, sodad is killed again and again (what
watches over it starts it anew after a second). Then the cluster is asked, before it goes: whether all jobs completed,
whether one is held, whether Slurm's requeues are those of the audit trail, whether the trail has a gap or an end left open,
and whether ``sodactl history`` has every figure of every job and agrees with sacct. Ends with status 1 if not all of it
holds. With ``--kills 0`` it is the demo alone.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.store import asked, rows
from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.demo.cluster_runs import SODACTL, DemoObserver, DemoPhase
from slurm_soda.demo.job_driver import DriverEvent
from slurm_soda.demo.job_mix.demo_settings import DemoSettings
from slurm_soda.demo.job_mix.mix_demo import run_demo
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.read.slurm_values import cpu_time_s, peak_mib

FIGURES = ("gpu_util_ratio", "gpu_memory_peak_mib", "cpu_s", "memory_peak_mib", "queue_s", "run_s")
TIMES_WITHIN_S, USE_WITHIN_RATIO = 2.0, 0.05
ACCOUNTED_WITHIN_S = 60.0
LONGEST_WAIT_S = 8.0
"""Between two kills."""

TRAIL = (
    "select count(*), coalesce(min(id), 1), coalesce(max(id), 0) from action",
    "select count(*) from action where state in ('intended', 'sent')",
    "select count(*) from preemption where phase = 'done'",
    "select count(*) from preemption where phase not in ('done', 'lost')",
)
UNACCOUNTED = "select count(*) from job where accounted = 0"


@dataclass(frozen=True, slots=True)
class FaultFinding:
    """One thing that must hold, what was found, and whether it holds."""

    what: str
    found: str
    holds: bool


class Killer:
    """Kills sodad at random moments, from the first submission of the second phase on."""

    def __init__(self, name: str, kills: int, seed: int) -> None:
        self.done = 0
        self._name, self._kills, self._random = name, kills, random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def look_on(self, phase: DemoPhase, event: DriverEvent) -> None:
        """Starts with the phase and ends with it."""
        if phase == "soda" and self._thread.ident is None:
            self._thread.start()
        if phase == "soda" and event["event"] == "done":
            self._over.set()

    def _run(self) -> None:
        cluster = ContainerCluster.find(self._name)
        while self.done < self._kills and not self._over.wait(self._random.uniform(1.0, LONGEST_WAIT_S)):
            try:
                cluster.kill("sodad")
                self.done += 1
            except SodaError:
                continue  # it was not up again


def trail(cluster: ContainerCluster, restarts: int) -> Iterator[FaultFinding]:
    """What the store's audit trail says, beside the number of requeues that Slurm tells."""
    (count, first, last), (unsettled,), (preempted,), (ongoing,) = first_rows(cluster, *TRAIL)
    yield FaultFinding("requeues in accounting, in the trail", f"{restarts}, {preempted}", restarts == preempted)
    yield FaultFinding("actions, first and last number", f"{count}, {first} to {last}", last - first + 1 == count)
    yield FaultFinding("actions left open", str(unsettled), unsettled == 0)
    yield FaultFinding("preemptions left open", str(ongoing), ongoing == 0)


def first_rows(cluster: ContainerCluster, *queries: str) -> list[list[Any]]:
    """The first row of each question to the store."""
    return [found[0] for found in rows(asked(cluster, *queries).check())]


def queue(cluster: ContainerCluster) -> FaultFinding:
    """Jobs that are still in Slurm's queue, held ones among them."""
    left = cluster.exec("root", ("squeue", "--noheader", "--format=%i %T %r")).check().stdout.strip()
    return FaultFinding("jobs left in the queue", left or "0", not left)


def history(cluster: ContainerCluster, known: Mapping[int, Mapping[str, Any]]) -> Iterator[FaultFinding]:
    """Every one of these finished jobs, with the times that the demo has from accounting, beside sacct."""
    cluster.wait_until(
        lambda: first_rows(cluster, UNACCOUNTED) == [[0]], "sodad has every job's accounting", ACCOUNTED_WITHIN_S
    )
    reply = cluster.exec("root", (SODACTL, "history", "--json")).check()
    jobs = {row["job_id"]: row for row in json.loads(reply.stdout)["jobs"] if row["job_id"] in known}
    whole = [row for row in jobs.values() if all(row[figure] is not None for figure in FIGURES)]
    counts = f"{len(known)}, {len(jobs)}, {len(whole)}"
    yield FaultFinding("jobs, in the history, with all six figures", counts, len(known) == len(jobs) == len(whole) > 0)
    for field in ("jct_s", "queue_s", "run_s"):
        worst = max(abs(row[field] - known[job][field]) for job, row in jobs.items())
        yield FaultFinding(f"largest difference of {field}", f"{worst:.1f} s", worst <= TIMES_WITHIN_S)
    used = accounting(cluster, known)
    yield FaultFinding("the same in accounting", str(len(used)), set(used) == set(known))
    for field in ("cpu_s", "memory_peak_mib"):
        told = {job: row[field] for job, row in used.items() if row[field]}
        worst = max((abs(jobs[job][field] - figure) / figure for job, figure in told.items()), default=0.0)
        yield FaultFinding(
            f"largest difference of {field}", f"{worst:.1%} of {len(told)} jobs", worst <= USE_WITHIN_RATIO
        )


def accounting(cluster: ContainerCluster, jobs: Iterable[int]) -> dict[int, dict[str, float]]:
    """CPU seconds of all runs and peak memory of the largest step, after sacct; 0 where it knows none.

    Read here and not by what sodad reads it with, which is to be checked.
    """
    argv = ("sacct", "-nPDa", f"--jobs={','.join(map(str, jobs))}", "-o", "JobIDRaw,TotalCPU,MaxRSS")
    found: dict[int, dict[str, float]] = {}
    for line in cluster.exec("root", argv).check().stdout.splitlines():
        raw, cpu, rss = line.split("|")
        job, _, step = raw.partition(".")
        used = found.setdefault(int(job), {"cpu_s": 0.0, "memory_peak_mib": 0.0})
        if not step and cpu:
            used["cpu_s"] += cpu_time_s(cpu, "sacct")
        if rss:
            used["memory_peak_mib"] = max(used["memory_peak_mib"], peak_mib(rss, "sacct"))
    return found


def measure(settings: DemoSettings, kills: int, say: Callable[[str], None]) -> list[FaultFinding]:
    """The demo with kills, and all that must hold after it."""
    killer = Killer(settings.cluster, kills, settings.seed)
    try:
        report = run_demo(settings, DemoObserver(say, killer.look_on))
        cluster = ContainerCluster.find(settings.cluster)
        soda = report["runs"]["soda"]
        states = [job["state"] for job in soda["per_job"]]
        time.sleep(2.0)  # a last cycle settles what it found
        return [
            FaultFinding("kills of sodad", str(killer.done), killer.done == kills),
            FaultFinding("jobs completed", f"{states.count('COMPLETED')} of {len(states)}", set(states) == {"COMPLETED"}),
            queue(cluster),
            *trail(cluster, soda["preemptions"]),
            *history(cluster, {job["job_id"]: job for run in report["runs"].values() for job in run["per_job"]}),
            FaultFinding("average JCT, stock and soda", f"{report['runs']['stock']['avg_jct_s']:.1f} s,"
                    f" {soda['avg_jct_s']:.1f} s", True),
        ]  # fmt: skip
    finally:
        with suppress(SodaError):  # it never came up
            ContainerCluster.find(settings.cluster).down()


def show(findings: list[FaultFinding]) -> None:
    """A table for people."""
    table = Table(box=None, header_style="bold")
    for title in ("", "found", "holds"):
        table.add_column(title)
    for finding in findings:
        table.add_row(finding.what, finding.found, "yes" if finding.holds else "NO")
    Console(width=120).print(table)


@click.command()
@click.option("--seed", default=2, show_default=True, help="Of the demo's mix, and of the moments.")
@click.option("--kills", default=10, show_default=True, type=click.IntRange(0))
@click.option("--out", default="build/faults", show_default=True, type=click.Path(path_type=Path))
@click.option("--name", default="faults", show_default=True, help="Name of the cluster.")
def main(seed: int, kills: int, out: Path, name: str) -> None:
    """The demo with kill -9 of sodad at random moments, and its history beside accounting."""
    settings = DemoSettings(seed=seed, out=out, keep=True, cluster=name)
    findings = measure(settings, kills, lambda line: click.echo(line, err=True))
    show(findings)
    raise SystemExit(0 if all(finding.holds for finding in findings) else 1)


if __name__ == "__main__":
    main()
