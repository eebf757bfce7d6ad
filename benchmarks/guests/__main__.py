"""Guests on real Slurm in containers, counted: ``python -m benchmarks.guests exact`` and ``… consent``.

``exact`` sends guests to GPU 2 of a node whose GPUs 0, 1 and 3 are free, by hand and without sodad. ``consent`` has an
enforcing sodad let jobs of mixed consent and of several users share. Both end with status 1 if one job was where it must not
be.
"""

from __future__ import annotations

import sys
from collections import Counter

import click

from benchmarks.guests import consent
from benchmarks.guests.exact_gpu import EXPECTED, ExactGpu
from slurm_soda.containers.cluster import ContainerCluster


def say(line: str) -> None:
    click.echo(line, err=True)


@click.group()
def main() -> None:
    """Count what guests were given, and who met whom."""


@main.command("exact")
@click.option("--repeats", default=200, show_default=True)
@click.option("--name", default="guests", show_default=True, help="Name of the cluster, which is removed in the end.")
def exact(repeats: int, name: str) -> None:
    """Guests on GPU 2 while others are free."""
    cluster = ContainerCluster.up(name, progress=say)
    found: Counter[str] = Counter()
    try:
        cluster.stop_daemon()
        for told in ExactGpu(cluster).run(repeats):
            found[told] += 1
            say(f"{found.total()}: {told}")
    finally:
        cluster.down()
    for told, count in found.most_common():
        click.echo(f"{count:6d} {told}")
    sys.exit(set(found) != {EXPECTED})


@main.command("consent")
@click.option("--jobs", default=1000, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--name", default="guests", show_default=True, help="Name of the cluster, which is removed in the end.")
def mixed(jobs: int, seed: int, name: str) -> None:
    """Random jobs of mixed consent: nobody meets anybody without the consent of both."""
    cluster = ContainerCluster.up(name, nodes=consent.NODES, gpus=consent.GPUS_OF_NODE, progress=say)
    try:
        consent.prepare(cluster)
        found = consent.run(cluster, consent.draw_jobs(jobs, seed), say)
    finally:
        cluster.down()
    for what, count in found.items():
        click.echo(f"{count:6d} {what}")
    sys.exit(any(found[what] for what in consent.MUST_BE_NONE))


if __name__ == "__main__":
    main()
