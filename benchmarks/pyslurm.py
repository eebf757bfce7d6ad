"""How long the list of jobs takes by squeue and by pyslurm: ``python -m benchmarks.pyslurm --wheel FILE``.

64 nodes in one container, and so many waiting jobs, twice: as tasks of ten arrays, then as jobs of their own.
The wheel is pyslurm's, built for Slurm 24.11 and the Python of Debian trixie.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.pyslurm_install import find_pyslurm, run_inside
from slurm_soda.containers.cluster import ContainerCluster

ARRAYS = 10
_SUBMIT = """
submit() {
  for i in $(seq $1); do
    sbatch --quiet --hold --output=/dev/null --gres=gpu:1 --time=600 --soda-checkpoint=TERM --wrap='sleep 36000'
  done
}
submit $(($1 / 2)) & submit $(($1 - $1 / 2)) & wait
"""


def submit_jobs(cluster: ContainerCluster, count: int) -> None:
    """Jobs of their own."""
    cluster.exec("alice", ("bash", "-c", _SUBMIT, "submit", str(count)), timeout_s=3600).check()


def submit_arrays(cluster: ContainerCluster, count: int) -> None:
    """The same number of tasks."""
    for _ in range(ARRAYS):
        words = (
            "sbatch",
            "--hold",
            "--output=/dev/null",
            f"--array=1-{count // ARRAYS}",
            "--gres=gpu:1",
            "--wrap=true",
        )
        cluster.exec("alice", words).check()


def show(measured: dict[str, dict[str, Any]]) -> None:
    """A table for people."""
    table = Table(box=None, header_style="bold")
    for title in ("waiting", "by", "elapsed", "CPU of sodad", "CPU of the others", "records"):
        table.add_column(title, justify="left" if title in {"waiting", "by"} else "right", no_wrap=True)
    for what, found in measured.items():
        for by in ("commands", "pyslurm"):
            times = [f"{found[by][part] * 1000:.0f} ms" for part in ("wall_s", "own_cpu_s", "other_cpu_s")]
            table.add_row(what, by, *times, str(found["jobs"]))
    Console(width=120).print(table)


@click.command()
@click.option("--wheel", type=click.Path(exists=True, path_type=Path), help="Of pyslurm; else as it is installed.")
@click.option("--jobs", default=10_000, show_default=True, help="Waiting jobs.")
@click.option("--times", default=5, show_default=True, help="Readings by each, of which medians are shown.")
@click.option("--out", default="build/pyslurm.json", show_default=True, type=click.Path(path_type=Path))
@click.option("--name", default="pyslurm", show_default=True, help="Name of the cluster.")
def main(*, wheel: Path | None, jobs: int, times: int, out: Path, name: str) -> None:
    """How long the list of jobs takes by squeue and by pyslurm."""
    cluster = ContainerCluster.up(name, nodes=64, packed=True, progress=lambda line: click.echo(line, err=True))
    try:
        python = find_pyslurm(cluster, None if wheel is None else str(wheel))
        measured: dict[str, dict[str, Any]] = {}
        for what, submit in (("tasks of arrays", submit_arrays), ("jobs", submit_jobs)):
            submit(cluster, jobs)
            measured[what] = run_inside(cluster, "measure", python, str(times))
            measured[what]["contract"] = run_inside(cluster, "compare", python)
            cluster.exec("root", ("scancel", "--user=alice"), timeout_s=600).check()
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(measured, indent=1) + "\n")
        show(measured)
    finally:
        cluster.down()


if __name__ == "__main__":
    main()
