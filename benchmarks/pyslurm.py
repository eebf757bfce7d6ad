"""How long the list of jobs takes by squeue and by pyslurm: ``python -m benchmarks.pyslurm --wheel FILE``.

So many tasks of ten arrays wait: first as one record for each array, then, after a change of each task, as jobs of their
own.
The wheel is pyslurm's, built for Slurm 24.11 and the Python of Debian trixie.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.pyslurm_install import find_pyslurm, run_inside
from benchmarks.result_file import write_result
from slurm_soda.containers.cluster import ContainerCluster

ARRAYS = 10


def submit_arrays(cluster: ContainerCluster, count: int) -> list[int]:
    """So many tasks, held; gives the arrays' ids."""
    words = (
        "sbatch",
        "--parsable",
        "--hold",
        "--output=/dev/null",
        "--gres=gpu:1",
        "--time=600",
        "--soda-checkpoint=TERM",
    )
    more = (f"--array=1-{count // ARRAYS}", "--wrap=sleep 36000")
    return [int(cluster.exec("alice", (*words, *more)).check().stdout) for _ in range(ARRAYS)]


def split_arrays(cluster: ContainerCluster, arrays: Sequence[int], count: int) -> None:
    """Change each task, so that Slurm makes a job of its own of it."""
    lines = (f"update jobid={array}_{task} nice=1\n" for task in range(1, count // ARRAYS + 1) for array in arrays)
    cluster.exec("root", ("scontrol",), input="".join(lines), timeout_s=3600).check()


def measure(cluster: ContainerCluster, python: str, times: int) -> dict[str, Any]:
    """Times of both, and whether they tell the same."""
    contract = run_inside(cluster, "compare", python)
    return {**run_inside(cluster, "measure", python, str(times)), "contract": contract}


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
    cluster = ContainerCluster.up(name, nodes=1, progress=lambda line: click.echo(line, err=True))
    try:
        cluster.stop_daemon()
        arrays = submit_arrays(cluster, jobs)
        python = find_pyslurm(cluster, None if wheel is None else str(wheel))
        measured = {"tasks of 10 arrays": measure(cluster, python, times)}
        split_arrays(cluster, arrays, jobs)
        measured["jobs"] = measure(cluster, python, times)
        write_result(out, measured)
        show(measured)
    finally:
        cluster.down()


if __name__ == "__main__":
    main()
