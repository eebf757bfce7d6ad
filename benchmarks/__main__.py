"""What slurm-soda costs a job and a submission on a real cluster: ``python -m benchmarks``.

Each part is measured against a cluster on which it is not configured at all:

- prolog and epilog: a one-step job, from srun until the job has left its node. A tenth of a second of it is srun's own,
  whatever a prolog does: with ``PrologFlags=Alloc`` it sleeps so long before it asks again whether the prolog is done;
- the same with /bin/true in both places: what Slurm itself takes for running any prolog and epilog;
- EpilogSlurmctld: the same job;
- SPANK plugin and lua module: one sbatch with flags (against one without them, which then mean nothing).

The configuration is switched between blocks of measurements, and neighbouring blocks are paired.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.pairs import Cost, measure
from benchmarks.result_file import write_result
from slurm_soda.containers.cluster import ContainerCluster

INSIDE = "/usr/local/share/inside.py"
CONFIG = "/etc/slurm/slurm.conf"
_PARTS = {
    "prolog": r"^(Prolog|Epilog|PrologFlags|PrologEpilogTimeout)=.*\n",
    "epilogctld": r"^EpilogSlurmctld=.*\n",
    "flags": r"^(JobSubmitPlugins|PlugStackConfig)=.*\n",
}
_FLAGS = ("--soda-category=cv", "--soda-model=resnet50", "--soda-batch-size=64", "--soda-checkpoint=TERM")


BARE_PROLOG = "prolog, bare"
"""Prolog and epilog that do nothing: what Slurm itself takes for having any."""


class BenchCluster:
    """A cluster whose slurm.conf has one part of slurm-soda or none."""

    def __init__(self, cluster: ContainerCluster) -> None:
        self._cluster = cluster
        self._hosts = cluster.spec.hosts
        self._whole = cluster.copy_out(CONFIG).decode()
        self._part: str | None = None
        cluster.copy_in(Path(__file__).with_name("inside.py").read_bytes(), INSIDE)

    def configure(self, part: str) -> None:
        """Switch the configuration of all hosts to this part alone, or to none (empty)."""
        if part == self._part:
            return
        text = self._whole
        for name, lines in _PARTS.items():
            text = text if part.startswith(name) else re.sub(lines, "", text, flags=re.M)
        if part == BARE_PROLOG:
            text = re.sub(r"^(Prolog|Epilog)=.*$", r"\1=/bin/true", text, flags=re.M)
        if part != "flags":  # without the line Slurm would read the plugstack.conf beside slurm.conf all the same
            text += "PlugStackConfig=/dev/null\n"
        for host in self._hosts:
            self._cluster.copy_in(text.encode(), CONFIG, node=host)
        self._cluster.exec("root", ("scontrol", "reconfigure")).check()
        self._cluster.wait_until(lambda: set(self._cluster.node_states().values()) == {"idle"}, "all nodes are idle")
        self._part = part

    def time(self, what: str, count: int, flags: Sequence[str]) -> list[float]:
        """Seconds of so many jobs or submissions."""
        argv = ("python3", INSIDE, what, str(count), *flags)
        reply = self._cluster.exec("alice" if what == "jobs" else "bob", argv, timeout_s=600).check()
        self._cluster.exec("root", ("scancel", "--user=bob")).check()
        return [float(value) for value in json.loads(reply.stdout)]


def of_a_job(site: BenchCluster, part: str, name: str, rounds: int, count: int) -> Cost:
    """What one part costs a job."""

    def block(present: bool) -> list[float]:
        site.configure(part if present else "")
        return site.time("jobs", count, ("--gres=gpu:1",))

    return measure(name, 150.0, block, rounds)


def of_a_submission(site: BenchCluster, rounds: int, count: int) -> Cost:
    """What SPANK plugin and lua module cost an sbatch."""

    def block(present: bool) -> list[float]:
        site.configure("flags" if present else "")
        return site.time("submissions", count, _FLAGS if present else ())

    return measure("SPANK + lua, an sbatch", 3.0, block, rounds)


@click.command()
@click.option("--rounds", default=6, show_default=True, help="Blocks with and without, of each measurement.")
@click.option("--jobs", default=8, show_default=True, help="Jobs in a block.")
@click.option("--submissions", default=60, show_default=True, help="Submissions in a block.")
@click.option("--out", default="build/benchmarks.json", show_default=True, type=click.Path(path_type=Path))
@click.option("--name", default="bench", show_default=True, help="Name of the cluster.")
def main(rounds: int, jobs: int, submissions: int, out: Path, name: str) -> None:
    """What slurm-soda costs a job and a submission, measured on a real cluster."""
    cluster = ContainerCluster.up(name, progress=lambda line: click.echo(line, err=True))
    try:
        site = BenchCluster(cluster)
        costs = [
            of_a_job(site, "prolog", "prolog + epilog, a job", rounds, jobs),
            of_a_job(site, BARE_PROLOG, "… of which Slurm's own", rounds, jobs),
            of_a_job(site, "epilogctld", "EpilogSlurmctld, a job", rounds, jobs),
            of_a_submission(site, rounds, submissions),
        ]
    finally:
        cluster.down()
    write_result(out, [cost.document() for cost in costs])
    show(costs)
    sys.exit(0 if all(cost.met for cost in costs) else 1)


def show(costs: Sequence[Cost]) -> None:
    """A table for people."""
    table = Table(box=None, header_style="bold", expand=False)
    for title in ("", "without", "costs (median)", "95 % bounds", "target", "pairs"):
        table.add_column(title, justify="left" if not title else "right", no_wrap=True)
    for cost in costs:
        verdict = "met" if cost.met else "MISSED"
        bounds = f"{cost.low_ms:.2f} to {cost.high_ms:.2f} ms"
        target = f"{cost.target_ms:g} ms, {verdict}"
        table.add_row(
            cost.name, f"{cost.without_ms:.1f} ms", f"{cost.median_ms:.2f} ms", bounds, target, str(cost.pairs)
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
