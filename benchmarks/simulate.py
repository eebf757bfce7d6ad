"""How fast ``sodactl simulate`` is, start-up and reading included: ``python -m benchmarks.simulate``.

Each run is a process of its own; what counts is the processor time that the kernel charged it, and its peak memory.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

SODACTL = Path(sys.executable).parent / "sodactl"
DATA = "$DATA"
MEMORY_MIB = 1024
"""No simulation takes more."""
MONTH_CPU_S = 20.0
"""No month of SODA's takes more."""
_SHARING = "--pair-slowdown 1.3 --mechanism slurm --consent 0.2"
_POLICIES = {"FIFO": "fifo", "SRSF": "srsf", "2D-LAS": "tiresias-las"}


@dataclass(frozen=True, slots=True)
class Target:
    """One measurement and what it shall reach."""

    name: str
    command: str
    jobs: int
    least_jobs_per_cpu_s: float | None = None
    most_cpu_s: float | None = None
    repeats: int = 3


@dataclass(frozen=True, slots=True)
class Speed:
    """What was measured: medians over repeats, memory the most."""

    target: Target
    cpu_s: float
    peak_mib: float

    @property
    def jobs_per_cpu_s(self) -> float:
        """Jobs over all processor time of the process."""
        return self.target.jobs / self.cpu_s

    @property
    def met(self) -> bool:
        """All targets are met."""
        fast = self.jobs_per_cpu_s >= (self.target.least_jobs_per_cpu_s or 0.0)
        short = self.cpu_s <= (self.target.most_cpu_s or float("inf"))
        return fast and short and self.peak_mib < MEMORY_MIB

    @property
    def wanted(self) -> str:
        """The target in words."""
        if self.target.most_cpu_s:
            return f"under {self.target.most_cpu_s:g} s"
        return f"{self.target.least_jobs_per_cpu_s or 0:,.0f} jobs/CPU s"

    def document(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "jobs_per_cpu_s": self.jobs_per_cpu_s, "met": self.met}


def targets(*, data: bool) -> list[Target]:
    """What is measured; without traces the generated month alone."""
    found = []
    for jobs, least, file in (
        (5_000, 5_000.0, "seq5000.csv"), (20_000, 4_000.0, "philly.csv --jobs 20000"),
        (50_000, 2_500.0, "philly.csv --jobs 50000"),
    ):  # fmt: skip
        for name, policy in _POLICIES.items() if data else ():
            line = f"sodactl simulate --trace {DATA}/philly/{file} --cluster 32x8 --policy {policy}"
            found.append(Target(f"{name}, {jobs:,} jobs of Philly, 256 GPUs", line, jobs, least))
    for name, policy in _POLICIES.items():
        line = f"sodactl simulate --workload soda-month --policy {policy}"
        found.append(
            Target(f"{name}, SODA's month, 400 GPUs and CPUs", line, 105_000, most_cpu_s=MONTH_CPU_S, repeats=1)
        )
    line = f"sodactl simulate --workload soda-month --policy soda {_SHARING}"
    found.append(
        Target("soda, SODA's month, one user of five shares", line, 105_000, most_cpu_s=MONTH_CPU_S, repeats=1)
    )
    return found


_PAPERS = ("--passing-limit-s", "inf")
"""As the papers have it: no wait is bounded."""


def measure(target: Target, data: Path | None) -> Speed:
    """Run it, so often.

    Raises:
        click.ClickException: it failed.
    """
    words = [str(SODACTL), *shlex.split(target.command.replace(DATA, str(data)))[1:], *_PAPERS, "--json"]
    runs = [_run(words, target) for _ in range(target.repeats)]
    return Speed(target, median(cpu_s for cpu_s, _ in runs), max(mib for _, mib in runs))


def _run(words: Sequence[str], target: Target) -> tuple[float, float]:
    """Processor seconds and peak MiB of one process."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.PIPE)
        assert process.stderr is not None
        said = process.stderr.read().decode(errors="replace").strip()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise click.ClickException(f"{target.command}: exit status {process.returncode}: {said}")
        out.seek(0)
        jobs = json.load(out)["jobs"]
    if jobs != target.jobs:
        raise click.ClickException(f"{target.command}: it has {jobs:,} jobs instead of {target.jobs:,}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def measure_all(data: Path | None, progress: Callable[[str], None]) -> list[Speed]:
    """All targets, one after the other."""
    found = []
    for target in targets(data=data is not None):
        progress(target.name)
        found.append(measure(target, data))
    return found


def machine() -> str:
    """Processor, number of CPUs and Python, in words."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    model = next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "")
    return f"{len(os.sched_getaffinity(0))} CPUs ({model or platform.machine()}), Python {platform.python_version()}"


def show(found: Sequence[Speed]) -> None:
    """A table for people."""
    table = Table(box=None, header_style="bold", title=machine(), title_justify="left")
    for title in ("", "CPU time", "jobs per CPU s", "peak memory", "target"):
        table.add_column(title, justify="left" if not title else "right", no_wrap=True)
    for each in found:
        verdict = f"{each.wanted}, {'met' if each.met else 'MISSED'}"
        per = f"{each.jobs_per_cpu_s:,.0f}"
        table.add_row(each.target.name, f"{each.cpu_s:.2f} s", per, f"{each.peak_mib:.0f} MiB", verdict)
    Console(width=120).print(table)


@click.command()
@click.option("--data", default="../shared/data", show_default=True, type=click.Path(path_type=Path), help="Traces.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def main(data: Path, as_json: bool) -> None:
    """How fast ``sodactl simulate`` is, start-up and reading included."""
    there = (data / "philly/philly.csv").exists()
    if not there:
        click.echo(f"{data}: no traces of Philly there, so only the generated month is measured; see --data", err=True)
    found = measure_all(data if there else None, lambda name: click.echo(f"measuring {name}", err=True))
    if as_json:
        click.echo(json.dumps({"machine": machine(), "speeds": [each.document() for each in found]}, indent=1))
    else:
        show(found)
    sys.exit(0 if all(each.met for each in found) else 1)


if __name__ == "__main__":
    main()
