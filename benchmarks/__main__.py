"""What slurm-soda costs a job and a submission on a real cluster: ``python -m benchmarks``.

Two things are measured against a cluster on which slurm-soda's hooks are not configured at all:

- prolog and epilog: a one-step job, from srun until the job has left its node;
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
from slurm_soda.containers.cluster import Cluster

from benchmarks.pairs import Cost, measure

INSIDE = "/usr/local/share/inside.py"
CONFIG = "/etc/slurm/slurm.conf"
_HOOK_LINES = re.compile(
    r"^(Prolog|Epilog|EpilogSlurmctld|PrologFlags|PrologEpilogTimeout|JobSubmitPlugins|PlugStackConfig)=.*\n", re.M
)
_FLAGS = ("--soda-category=cv", "--soda-model=resnet50", "--soda-batch-size=64", "--soda-checkpoint=TERM")


class Site:
    """A cluster whose slurm.conf has slurm-soda's hooks or does not."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._hosts = cluster.spec.hosts
        whole = cluster.copy_out(CONFIG).decode()
        # Without the line Slurm would read the plugstack.conf beside slurm.conf all the same.
        self._texts = {True: whole, False: _HOOK_LINES.sub("", whole) + "PlugStackConfig=/dev/null\n"}
        self._hooked: bool | None = None
        cluster.copy_in(Path(__file__).with_name("inside.py").read_bytes(), INSIDE)

    def configure(self, *, hooked: bool) -> None:
        """Switch the configuration of all hosts; Slurm starts its daemons anew for it."""
        if hooked == self._hooked:
            return
        for host in self._hosts:
            self._cluster.copy_in(self._texts[hooked].encode(), CONFIG, node=host)
        self._cluster.exec("root", ("scontrol", "reconfigure")).check()
        self._cluster.wait_until(lambda: set(self._cluster.node_states().values()) == {"idle"}, "all nodes are idle")
        self._hooked = hooked

    def time(self, what: str, count: int, flags: Sequence[str]) -> list[float]:
        """Seconds of so many jobs or submissions."""
        argv = ("python3", INSIDE, what, str(count), *flags)
        reply = self._cluster.exec("alice" if what == "jobs" else "bob", argv, timeout_s=600).check()
        self._cluster.exec("root", ("scancel", "--user=bob")).check()
        return [float(value) for value in json.loads(reply.stdout)]


def hooks_of_a_job(site: Site, rounds: int, count: int) -> Cost:
    """Prolog and epilog."""

    def block(part: bool) -> list[float]:
        site.configure(hooked=part)
        return site.time("jobs", count, ("--gres=gpu:1",))

    return measure("prolog + epilog, a job", 150.0, block, rounds)


def flags_of_a_submission(site: Site, rounds: int, count: int) -> Cost:
    """SPANK plugin and lua module."""

    def block(part: bool) -> list[float]:
        site.configure(hooked=part)
        return site.time("submissions", count, _FLAGS if part else ())

    return measure("SPANK + lua, an sbatch", 3.0, block, rounds)


@click.command()
@click.option("--rounds", default=6, show_default=True, help="Blocks with and without, of each measurement.")
@click.option("--jobs", default=8, show_default=True, help="Jobs in a block.")
@click.option("--submissions", default=60, show_default=True, help="Submissions in a block.")
@click.option("--out", default="build/benchmarks.json", show_default=True, type=click.Path(path_type=Path))
@click.option("--name", default="bench", show_default=True, help="Name of the cluster.")
def main(rounds: int, jobs: int, submissions: int, out: Path, name: str) -> None:
    """What slurm-soda costs a job and a submission, measured on a real cluster."""
    cluster = Cluster.up(name, progress=lambda line: click.echo(line, err=True))
    try:
        site = Site(cluster)
        costs = [hooks_of_a_job(site, rounds, jobs), flags_of_a_submission(site, rounds, submissions)]
    finally:
        cluster.down()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps([cost.document() for cost in costs], indent=1) + "\n")
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
    Console().print(table)


if __name__ == "__main__":
    main()
