"""An owner's edits of a job against the rewrite that makes it a guest: ``python -m benchmarks.consent --races 1000``.

Each race is a waiting job on a real Slurm in containers. Root sends it to GPU 0 of n1, as sodad does; its owner changes it
at the same time by all that Slurm lets him say, alone and beside a field that Slurm refuses. Whoever comes first, a job that
asks for the second GRES in the end must be bound to that node, with its record: else it could start beside somebody who
never agreed. And what Slurm accepted from its owner before must not be lost: then the rewrite is refused. Slurm keeps the
job held, so that the state is what is judged, not luck with free nodes; only of a job whose number of nodes Slurm computes
from its tasks, whatever it is bound to, is seen where it starts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from benchmarks import consent_races
from slurm_soda.containers.cluster import ContainerCluster

HARMLESS = {"guest", "plain"}


def count_outcomes(cluster: ContainerCluster, races: int, seed: int) -> Mapping[str, int]:
    """So many races on a cluster that is up: how many ended how."""
    ids = [cluster.exec("alice", ("id", option)).check().stdout.strip() for option in ("-u", "-g")]
    python = ("/opt/slurm-soda/bin/python", "-", str(races), str(seed), *ids)
    program = Path(consent_races.__file__).read_bytes()
    told = cluster.exec("root", python, input=program, timeout_s=60.0 + races).check().stdout
    return dict(json.loads(told))


@click.command()
@click.option("--races", default=1000, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--name", default="consent-races", show_default=True, help="Name of the cluster, which is removed in the end."
)
def main(races: int, seed: int, name: str) -> None:
    """Start a cluster, run the races, print how they ended; status 1 if a guest could start elsewhere or an edit is lost."""
    cluster = ContainerCluster.up(name, progress=lambda line: click.echo(line, err=True))
    try:
        counts = count_outcomes(cluster, races, seed)
    finally:
        cluster.down()
    for outcome, count in sorted(counts.items()):
        click.echo(f"{count:6d} {outcome}")
    sys.exit(not set(counts) <= HARMLESS)


if __name__ == "__main__":
    main()
