"""``sodactl cluster``: a real Slurm cluster in containers on this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import click

from slurm_soda.containers import docker_resources
from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.cluster_spec import CONTROLLER, DEFAULT_SLURM, USERS, ClusterError
from slurm_soda.containers.container_commands import home_directory
from slurm_soda.containers.docker_engine import connect_docker
from slurm_soda.containers.slurm_releases import SLURM_RELEASES
from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Column

DEFAULT_NAME = "demo"
_MODES = ("off", "observe", "advise", "enforce")

_F = TypeVar("_F", bound=Callable[..., Any])


def _print_progress(line: str) -> None:
    """Progress goes to stderr, so that ``--json`` stays one document."""
    click.echo(output.escape_unprintable(line), err=True)


def _name_option(function: _F) -> _F:
    return click.option("--name", default=DEFAULT_NAME, show_default=True, help="Which cluster.")(function)


def _json_option(function: _F) -> _F:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")(function)


@click.group()
def cluster() -> None:
    """A real Slurm cluster in containers on this machine.

    Slurm's own daemons with accounting, emulated GPUs, and slurm-soda as this checkout has it. The users alice, bob and
    carol may submit jobs. All that a cluster owns is called slurm-soda-NAME, and `down` removes it.

    \b
    Examples:
      sodactl cluster up                                    two nodes with four GPUs each
      sodactl cluster exec alice -- sbatch --gres=gpu:2 --wrap 'sleep 60'
      sodactl cluster exec root -- sodactl jobs
      sodactl cluster down
    """  # noqa: D301 - click reads the control character


@cluster.command()
@_name_option
@click.option("--nodes", default=2, show_default=True, help="Compute nodes: up to 16, or 64 with --packed.")
@click.option("--gpus", default=4, show_default=True, help="Emulated GPUs in each node, up to 16.")
@click.option("--cpus", default=28, show_default=True, help="CPUs that each node claims, whatever this machine has.")
@click.option("--memory-mib", default=64000, show_default=True, help="Memory that each node claims.")
@click.option("--packed", is_flag=True, help="All nodes in one container, without limits on jobs, hooks and agents.")
@click.option(
    "--mode", type=click.Choice(_MODES), default="observe", show_default=True, help="sodad's mode; off: not started."
)
@click.option(
    "--slurm",
    type=click.Choice(list(SLURM_RELEASES)),
    default=DEFAULT_SLURM,
    show_default=True,
    help="Release of Slurm.",
)
@click.option("--serving", is_flag=True, help="With what inference services need: HAProxy and ONNX Runtime.")
@click.option("--base", help="Image of that Slurm's Debian to build on.  [default: from a registry, else debootstrap]")
@_json_option
def up(
    *,
    name: str,
    nodes: int,
    gpus: int,
    cpus: int,
    memory_mib: int,
    packed: bool,
    mode: str,
    slurm: str,
    serving: bool,
    base: str | None,
    as_json: bool,
) -> None:
    """Bring a cluster up and wait until its nodes are idle.

    Builds the images first where they are not up to date: a minute at the first time, seconds after a change of code. An
    interrupt (Ctrl-C) removes what was begun.

    \b
    Examples:
      sodactl cluster up
      sodactl cluster up --name big --nodes 64 --packed     for tests of scale
      sodactl cluster up --mode enforce                     slurm-soda decides from the start
      sodactl cluster up --slurm 26.05                      a newer Slurm, from Debian's next release
    """  # noqa: D301 - click reads the control character
    size: dict[str, Any] = {"nodes": nodes, "gpus": gpus, "cpus": cpus, "memory_mib": memory_mib}
    made = ContainerCluster.up(
        name, **size, packed=packed, slurm=slurm, serving=serving, base=base, progress=_print_progress
    )
    try:
        if mode != "off":
            _print_progress(f"starting sodad in mode {mode}")
            made.start_daemon(f'mode = "{mode}"\n')
        if as_json:
            output.print_json({"name": name, "slurm": slurm, "sodad": mode, **size, "packed": packed})
        else:
            each = f"{output.format_count(nodes, 'node')} with {output.format_count(gpus, 'GPU')} each"
            output.print_line(f"cluster {name} is up: {each}, sodad {mode}")
            output.print_line(f"try: sodactl cluster exec --name {name} {USERS[0]} -- sinfo")
    except KeyboardInterrupt:
        made.down()
        raise


@cluster.command()
@_name_option
@_json_option
def down(name: str, as_json: bool) -> None:
    """Remove a cluster: its containers, network and volume, whatever state they are in.

    There is no way to remove all at once: others on this machine may have clusters of their own.

    \b
    Examples:
      sodactl cluster down
      sodactl cluster down --name big
    """  # noqa: D301 - click reads the control character
    count = docker_resources.remove_cluster(connect_docker(_print_progress), name)
    if as_json:
        output.print_json({"name": name, "removed": count})
    else:
        output.print_line(f"cluster {name} is gone" if count else f"there is no cluster {name}; nothing to remove")


@cluster.command()
@_name_option
@_json_option
def status(name: str, as_json: bool) -> int:
    """What runs: containers, Slurm's nodes and the controller's daemons.

    Exit status: 0 if all containers run and slurmctld answers, 1 otherwise.

    \b
    Examples:
      sodactl cluster status
      sodactl cluster status --json | jq .nodes
    """  # noqa: D301 - click reads the control character
    found = ContainerCluster.find(name).status()
    well = bool(found.nodes) and set(found.containers.values()) == {"running"}
    if as_json:
        output.print_json({**asdict(found), "well": well})
    else:
        rows = [("container", host, state) for host, state in sorted(found.containers.items())]
        rows += [("daemon", daemon, "alive" if alive else "not running") for daemon, alive in found.daemons.items()]
        rows += [("node", node, state) for node, state in found.nodes.items()]
        output.print_table([Column("What"), Column("Name"), Column("State")], rows, title=f"Cluster {name}")
        if not found.nodes:
            output.warn(f"slurmctld does not answer; see: sodactl cluster logs --name {name}")
    return 0 if well else 1


@cluster.command("exec", context_settings={"ignore_unknown_options": True})
@_name_option
@click.option("--node", default=CONTROLLER, show_default=True, help="Where: the controller, or a node such as n1.")
@click.argument("user")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(name: str, node: str, user: str, command: tuple[str, ...]) -> int:
    """Run a command in the cluster as root, slurm or one of its users, in their home directory.

    Standard input, output and error are passed through, and the exit status is the command's.

    \b
    Examples:
      sodactl cluster exec alice -- sbatch --gres=gpu:1 --wrap 'nvidia-smi'
      sodactl cluster exec bob -- sbatch --soda-model=resnet50 < job.sh
      sodactl cluster exec --node n1 root -- bash           a shell, where the docker command is installed
    """  # noqa: D301 - click reads the control character
    found = ContainerCluster.find(name)
    if sys.stdin.isatty() and sys.stdout.isatty() and shutil.which("docker"):
        home = home_directory(user)
        options = ("--interactive", "--tty", "--user", user, "--workdir", home, "--env", f"HOME={home}")
        argv = ("docker", "exec", *options, found.container_of(node), *command)
        return subprocess.run(argv, check=False).returncode
    stdin = None if sys.stdin.isatty() else sys.stdin.buffer.read()
    running = found.run(user, command, input=stdin, node=node)
    for stream, data in running:
        target = sys.stdout.buffer if stream == 1 else sys.stderr.buffer
        target.write(data)
        target.flush()
    return running.status()


@cluster.command()
@_name_option
@click.option("--lines", default=50, show_default=True, help="Of each log.")
@click.argument("daemon", required=False)
@_json_option
def logs(name: str, lines: int, daemon: str | None, as_json: bool) -> None:
    """The end of the daemons' logs, or of one DAEMON's on every host.

    \b
    Examples:
      sodactl cluster logs
      sodactl cluster logs slurmctld --lines 500
    """  # noqa: D301 - click reads the control character
    found = ContainerCluster.find(name).logs(lines)
    if daemon is not None:
        known = sorted({title.split("/")[1] for title in found})
        found = {title: text for title, text in found.items() if title.split("/")[1] == daemon}
        if not found:
            raise ClusterError(f"no daemon {daemon} has a log in cluster {name}; there are {', '.join(known)}")
    if as_json:
        output.print_json({"logs": found})
        return
    for title, text in found.items():
        output.print_line(f"==> {title}")
        for line in text.splitlines():
            output.print_line(line)
