"""How long a cycle takes over a long queue on real Slurm: ``python -m benchmarks.queue``.

64 nodes with 4 GPUs each in one container, so many jobs that nearly all of them wait, and sodad enforcing. Three kinds of
cycle are told apart: the first ordering, cycles in which nothing changed, and the cycle after a few submissions. Jobs may be
preempted, so that sodad asks Slurm all that it ever asks in a cycle. The default policy is ``smallest`` with jobs of 4, 2
and 1 GPUs submitted in this order: the worst case, since Slurm's own order is the reverse of the one wanted and every place
must be written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.store import asked, rows
from slurm_soda.containers.cluster import ContainerCluster

NODES, GPUS = 64, 4
UNCHANGED_CYCLES = 10
SUBMIT = """
for g in 4 2 1; do
  for i in $(seq $(($1 / 6))); do
    sbatch --quiet --output=/dev/null --gres=gpu:$g --time=600 --soda-checkpoint=TERM --wrap='sleep 36000'
  done
done
"""


def configuration(policy: str, depth: int) -> str:
    """sodad's configuration file."""
    return f"""mode = "enforce"
[policy]
name = "{policy}"
[cycle]
interval_s = 2.0
order_depth = {depth}
[change_limits]
max_changes_per_cycle = 100000
"""


class Queue:
    """A packed cluster with a long queue."""

    def __init__(self, cluster: ContainerCluster, jobs: int) -> None:
        self._cluster, self.jobs = cluster, jobs

    def submit(self) -> None:
        """Two submitters at once, as fast as Slurm takes them."""
        script = f"submit() {{ {SUBMIT} }}\nsubmit {self.jobs} & submit {self.jobs} & wait"
        self._cluster.exec("alice", ("bash", "-c", script), timeout_s=1200).check()

    def submit_few(self, count: int) -> None:
        """A small change."""
        one = "sbatch --quiet --output=/dev/null --gres=gpu:1 --wrap='sleep 36000'"
        self._cluster.exec("bob", ("bash", "-c", f"for i in $(seq {count}); do {one}; done"), timeout_s=60).check()

    def cycles(self) -> list[dict[str, Any]]:
        """The cycles so far that took place without error, oldest first, as the store has them."""
        answer = asked(
            self._cluster, "select pending, planned, sent, timings_s from cycle where error = x'' order by id"
        )
        if answer.status != 0:
            return []  # sodad is only making its store
        cycles = [
            {"pending": pending, "planned": planned, "sent": sent, "timings_s": json.loads(timings)}
            for pending, planned, sent, timings in rows(answer)[0]
        ]
        return [cycle for cycle in cycles if cycle["timings_s"].get("record") is not None]

    def wait_for(self, count: int) -> list[dict[str, Any]]:
        """Wait until there are so many cycles."""
        self._cluster.wait_until(lambda: len(self.cycles()) >= count, f"sodad has run {count} cycles", within_s=180)
        return self.cycles()


def whole_s(cycle: dict[str, Any]) -> float:
    """Read, decide, write and record; parts with a dot lie within others."""
    return sum(seconds for part, seconds in cycle["timings_s"].items() if "." not in part)


def measure(cluster: ContainerCluster, jobs: int, policy: str, depth: int) -> dict[str, Any]:
    """Fill the queue, start sodad, and tell its cycles apart."""
    queue = Queue(cluster, jobs)
    queue.submit()
    cluster.start_daemon(configuration(policy, depth))
    first = queue.wait_for(1)[0]
    settled = len(queue.wait_for(3))
    unchanged = [c for c in queue.wait_for(settled + UNCHANGED_CYCLES)[settled:] if c["sent"] == 0]
    before = len(queue.cycles())
    queue.submit_few(20)
    changed = [c for c in queue.wait_for(before + 3)[before:] if c["planned"] or c["pending"] > first["pending"]]
    return {
        "jobs": jobs,
        "policy": policy,
        "order_depth": depth,
        "first": first,
        "unchanged": unchanged,
        "changed": changed,
    }


def show(found: dict[str, Any]) -> None:
    """A table for people."""
    table = Table(box=None, header_style="bold")
    for title in ("cycle", "pending", "changes sent", "observe", "decide", "act", "record", "whole"):
        table.add_column(title, justify="left" if title == "cycle" else "right", no_wrap=True)
    unchanged = sorted(found["unchanged"], key=whole_s)
    chosen = [("first ordering", found["first"])]
    if unchanged:
        chosen += [
            ("nothing changed, median", unchanged[len(unchanged) // 2]),
            ("nothing changed, most", unchanged[-1]),
        ]
    chosen += [("after 20 submissions", cycle) for cycle in found["changed"][:1]]
    for name, cycle in chosen:
        parts = [f"{cycle['timings_s'].get(part, 0.0):.2f} s" for part in ("observe", "decide", "act", "record")]
        table.add_row(name, str(cycle["pending"]), str(cycle["sent"]), *parts, f"{whole_s(cycle):.2f} s")
    Console(width=120).print(table)


@click.command()
@click.option("--jobs", default=10_256, show_default=True, help="Jobs to queue; 256 GPUs are there to run some.")
@click.option("--policy", default="smallest", show_default=True)
@click.option("--depth", default=1000, show_default=True, help="order_depth; 0: every job's place is written.")
@click.option("--out", default="build/queue.json", show_default=True, type=click.Path(path_type=Path))
@click.option("--name", default="queue", show_default=True, help="Name of the cluster.")
def main(jobs: int, policy: str, depth: int, out: Path, name: str) -> None:
    """How long a cycle of sodad takes over a long queue on real Slurm."""
    cluster = ContainerCluster.up(
        name, nodes=NODES, gpus=GPUS, packed=True, progress=lambda line: click.echo(line, err=True)
    )
    try:
        found = measure(cluster, jobs, policy, depth)
    finally:
        cluster.down()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")
    show(found)


if __name__ == "__main__":
    main()
