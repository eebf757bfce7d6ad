"""``sodactl cluster``: a real Slurm cluster in containers on this machine."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click
from slurm_soda.containers.cluster import Cluster, remove
from slurm_soda.containers.engine import connect


def _say(line: str) -> None:
    click.echo(line, err=True)


@click.group()
def cluster() -> None:
    """A real Slurm cluster in containers on this machine."""


@cluster.command()
@click.option("--name", default="demo", show_default=True)
@click.option("--nodes", default=2, show_default=True)
@click.option("--gpus", default=4, show_default=True)
@click.option("--packed", is_flag=True)
def up(name: str, nodes: int, gpus: int, packed: bool) -> None:
    """Bring a cluster up."""
    Cluster.up(name, nodes=nodes, gpus=gpus, packed=packed, progress=_say)


@cluster.command()
@click.option("--name", default="demo", show_default=True)
def down(name: str) -> None:
    """Remove a cluster."""
    remove(connect(_say), name)


@cluster.command()
@click.option("--name", default="demo", show_default=True)
def status(name: str) -> None:
    """What runs."""
    click.echo(json.dumps(asdict(Cluster.find(name).status()), indent=1))


@cluster.command("exec")
@click.option("--name", default="demo", show_default=True)
@click.argument("user")
@click.argument("argv", nargs=-1)
def exec_(name: str, user: str, argv: tuple[str, ...]) -> None:
    """Run a command on the controller."""
    running = Cluster.find(name).run(user, argv)
    for stream, data in running:
        (sys.stdout if stream == 1 else sys.stderr).buffer.write(data)
    sys.stdout.flush()
    sys.exit(running.status())


@cluster.command()
@click.option("--name", default="demo", show_default=True)
def logs(name: str) -> None:
    """The daemons' logs."""
    for title, text in Cluster.find(name).logs().items():
        click.echo(f"==> {title}\n{text}")


if __name__ == "__main__":
    cluster()
