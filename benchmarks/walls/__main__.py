"""The walls on the nodes, case by case: ``python -m benchmarks.walls --repeats 300 --seed 1 --waiting 500``.

Pairs of a host and a guest on a cluster in containers, without sodad and without agents, while jobs that did not consent
wait for their GPUs. The host ends in one of several ways; each repeat says when the next job started on a GPU of the guest,
and how often a process of the guest was still there then. Ends with status 1 if one was.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from benchmarks.walls.bench_cluster import CASES, WallsRepeat, prepared, run
from slurm_soda.containers.cluster import ContainerCluster


def table(repeats: Sequence[WallsRepeat]) -> Table:
    """One line a case."""
    made = Table(box=None, header_style="bold")
    for title in ("case", "repeats", "overlaps", "no next start in 5 min", "no pair", "median", "longest"):
        made.add_column(title, justify="left" if title == "case" else "right")
    for case in dict.fromkeys(one.case for one in repeats):
        ours = [one for one in repeats if one.case == case]
        pairs = [one for one in ours if not one.error]
        after_s = [one.after_s for one in pairs if one.after_s >= 0]
        times = [f"{median(after_s):.1f} s", f"{max(after_s):.1f} s"] if after_s else ["", ""]
        counts = (len(pairs), sum(one.overlaps for one in ours), len(pairs) - len(after_s), len(ours) - len(pairs))
        made.add_row(case, *map(str, counts), *times)
    return made


@click.command()
@click.option("--repeats", default=30, show_default=True, help="Pairs of each case.")
@click.option("--seed", default=1, show_default=True)
@click.option("--waiting", default=500, show_default=True, help="Jobs that wait all the time.")
@click.option("--case", "cases", multiple=True, type=click.Choice(CASES), help="Only these; all if none is given.")
@click.option("--name", default="walls-bench", show_default=True, help="Name of the cluster.")
def main(repeats: int, seed: int, waiting: int, cases: tuple[str, ...], name: str) -> None:
    """Count overlaps on a guest's GPUs, and time the next start there."""
    show = Console(stderr=True).print
    cluster = ContainerCluster.up(name, progress=show)
    found: list[WallsRepeat] = []
    try:
        for node in ("n1", "n2"):
            cluster.stop("soda-agent", node=node)
        with prepared(cluster):
            for one in run(cluster, cases or CASES, repeats, seed, waiting):
                show(one)
                found.append(one)
    finally:
        Console(width=120).print(table(found))
        cluster.down()
    sys.exit(1 if any(one.overlaps for one in found) else 0)


if __name__ == "__main__":
    main()
