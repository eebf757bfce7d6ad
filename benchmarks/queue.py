"""How long a cycle takes over a long queue on real Slurm: ``python -m benchmarks.queue``.

64 nodes with 4 GPUs each in one container, so many jobs that nearly all of them wait, and sodad enforcing. Three kinds of
cycle are told apart: the first ordering, cycles in which nothing changed, and the cycle after a few submissions. Jobs may be
preempted, so that sodad asks Slurm all that it ever asks in a cycle. The default policy is ``smallest`` with jobs of 4, 2
and 1 GPUs submitted in this order: the worst case, since Slurm's own order is the reverse of the one wanted and every place
must be written.

With ``--sharing`` each policy is measured twice on the same queue (:mod:`benchmarks.queue_sharing`), first without sharing,
then with pairs that run, jobs of half the queue that consent, and agents that report.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks import queue_sharing
from benchmarks.result_file import write_result
from benchmarks.store import asked, rows
from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.cluster_spec import ClusterError

NODES, GPUS = 64, 4
UNCHANGED_CYCLES = 10
MOST_SETTLING_CYCLES = 30
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
SUBMIT = """
for g in 4 2 1; do
  for i in $(seq $(($1 / 6))); do
    sbatch --quiet --output=/dev/null --gres=gpu:$g --time=600 --soda-checkpoint=TERM --wrap='sleep 36000'
  done
done
"""


FEW = "sbatch --quiet --output=/dev/null --gres=gpu:1 --wrap='sleep 36000'"


def configuration(policy: str, depth: int, mode: str = "enforce", *, sharing: bool = False) -> str:
    """sodad's configuration file."""
    return f"""mode = "{mode}"
[policy]
name = "{policy}"
[cycle]
interval_s = 2.0
order_depth = {depth}
[change_limits]
max_changes_per_cycle = 100000
{queue_sharing.CONFIGURATION if sharing else ""}"""


class Queue:
    """A packed cluster with a long queue."""

    def __init__(self, cluster: ContainerCluster, jobs: int, *, shares: bool) -> None:
        self._cluster, self.jobs = cluster, jobs
        self._submit, self._few = (queue_sharing.SUBMIT, queue_sharing.FEW) if shares else (SUBMIT, FEW)
        self._since = 0

    def submit(self) -> None:
        """Two submitters at once, as fast as Slurm takes them."""
        script = f"submit() {{ {self._submit} }}\nsubmit {self.jobs} & submit {self.jobs} & wait"
        self._cluster.exec("alice", ("bash", "-c", script), timeout_s=1200).check()

    def submit_few(self, count: int) -> None:
        """A small change."""
        self._cluster.exec(
            "bob", ("bash", "-c", f"for i in $(seq {count}); do {self._few}; done"), timeout_s=60
        ).check()

    def restart_daemon(self, configuration: str) -> None:
        """Only cycles from now on count."""
        self.stop_daemon()
        self._since = max((cycle["id"] for cycle in self.cycles()), default=self._since)
        self._cluster.start_daemon(configuration)

    def stop_daemon(self) -> None:
        """sodad ends the cycle that is under way, for which its service gives it longer than a cluster waits."""

        def stopped() -> bool:
            try:
                self._cluster.stop_daemon()
            except ClusterError:
                return False
            return True

        self._cluster.wait_until(stopped, "sodad has ended", within_s=90)

    def cycles(self) -> list[dict[str, Any]]:
        """The cycles so far that took place without error, oldest first, as the store has them."""
        query = "select id, pending, planned, sent, timings_s from cycle where error = x'' and id > {} order by id"
        answer = asked(self._cluster, query.format(self._since))
        if answer.status != 0:
            return []  # sodad is only making its store
        cycles = [
            {"id": number, "pending": pending, "planned": planned, "sent": sent, "timings_s": json.loads(timings)}
            for number, pending, planned, sent, timings in rows(answer)[0]
        ]
        return [cycle for cycle in cycles if cycle["timings_s"].get("record") is not None]

    def wait_for(self, count: int) -> list[dict[str, Any]]:
        """Wait until there are so many cycles."""
        self._cluster.wait_until(lambda: len(self.cycles()) >= count, f"sodad has run {count} cycles", within_s=600)
        return self.cycles()

    def wait_settled(self) -> int:
        """Wait until nothing was sent in three cycles, or for some time; gives the number of cycles."""
        count = 3
        while count < MOST_SETTLING_CYCLES and any(cycle["sent"] for cycle in self.wait_for(count)[-3:]):
            count = len(self.cycles()) + 1
        return len(self.cycles())

    def daemon_cpu_s(self) -> float:
        """CPU seconds of sodad and of the commands that it has run."""
        script = "cat /proc/$(cat /run/cluster/sodad.pid)/stat"
        fields = self._cluster.exec("root", ("sh", "-c", script)).check().stdout.rpartition(")")[2].split()
        return sum(int(field) for field in fields[11:15]) * _TICK_S


def whole_s(cycle: dict[str, Any]) -> float:
    """Read, decide, write and record; parts with a dot lie within others."""
    return sum(seconds for part, seconds in cycle["timings_s"].items() if "." not in part)


def measure(queue: Queue, policy: str, depth: int, *, sharing: bool) -> dict[str, Any]:
    """Start sodad, and tell its cycles apart."""
    queue.restart_daemon(configuration(policy, depth, sharing=sharing))
    settled = queue.wait_settled()
    cpu_s, before = queue.daemon_cpu_s(), len(queue.cycles())
    later = queue.wait_for(settled + UNCHANGED_CYCLES)
    cpu_s = (queue.daemon_cpu_s() - cpu_s) / (len(later) - before)
    queue.submit_few(20)
    last = queue.wait_for(len(later) + 3)[len(later) :]
    return {
        "jobs": queue.jobs,
        "policy": policy,
        "sharing": sharing,
        "order_depth": depth,
        "settling": later[:settled],
        "unchanged": [cycle for cycle in later[settled:] if cycle["sent"] == 0],
        "cpu_s": cpu_s,
        "changed": [cycle for cycle in last if cycle["planned"] or cycle["pending"] > later[-1]["pending"]],
    }


def measure_all(
    cluster: ContainerCluster, jobs: int, policies: Sequence[str], depth: int, *, sharing: bool
) -> list[dict[str, Any]]:
    """Fill the queue, then each policy; with ``sharing`` each without and with it."""
    queue = Queue(cluster, jobs, shares=sharing)
    if sharing:
        queue_sharing.set_up(cluster)
    queue.submit()
    if not sharing:
        return [measure(queue, policy, depth, sharing=False) for policy in policies]
    queue.restart_daemon(configuration("fifo", depth, "observe"))
    queue.wait_for(1)
    queue_sharing.learn_kinds(cluster)
    queue_sharing.begin_reports(cluster)
    found = []
    for shares in (False, True):
        for policy in policies:
            if guests := queue_sharing.guests(cluster):
                queue.stop_daemon()
                cluster.exec("root", ("scancel", *guests)).check()
            found.append(measure(queue, policy, depth, sharing=shares))
            found[-1]["guests"] = len(queue_sharing.guests(cluster))
    return found


def show(measured: Sequence[dict[str, Any]]) -> None:
    """A table for people."""
    table = Table(box=None, header_style="bold")
    titles = ("policy", "sharing", "cycle", "pending", "changes sent", "observe", "decide", "act", "record", "whole")
    for title in titles:
        table.add_column(title, justify="left" if title in titles[:3] else "right", no_wrap=True)
    for found in measured:
        shares = f"{found['guests']} guests" if found["sharing"] else "no"
        for name, cycle in chosen_cycles(found):
            parts = [f"{cycle['timings_s'].get(part, 0.0):.2f} s" for part in ("observe", "decide", "act", "record")]
            cells = (str(cycle["pending"]), str(cycle["sent"]), *parts, f"{whole_s(cycle):.2f} s")
            table.add_row(found["policy"], shares, name, *cells)
        table.add_row(found["policy"], shares, "CPU time of each", "", "", "", "", "", "", f"{found['cpu_s']:.2f} s")
    Console(width=140).print(table)


def chosen_cycles(found: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Those that are shown."""
    first, *settling = found["settling"]
    unchanged = sorted(found["unchanged"], key=whole_s)
    chosen = [
        ("first", first),
        ("most changes after it", max(settling, key=lambda cycle: (cycle["sent"], whole_s(cycle)))),
    ]
    if unchanged:
        chosen += [
            ("nothing changed, least", unchanged[0]),
            ("nothing changed, median", unchanged[len(unchanged) // 2]),
            ("nothing changed, most", unchanged[-1]),
        ]
    return [*chosen, *(("after 20 submissions", cycle) for cycle in found["changed"][:1])]


@click.command()
@click.option("--jobs", default=10_256, show_default=True, help="Jobs to queue; 256 GPUs are there to run some.")
@click.option(
    "--policy", "policies", multiple=True, default=["smallest"], show_default=True, help="Several: one by one."
)
@click.option("--sharing", is_flag=True, help="Each without and with sharing, on a queue whose jobs may share.")
@click.option("--depth", default=1000, show_default=True, help="order_depth; 0: every job's place is written.")
@click.option("--out", default="build/queue.json", show_default=True, type=click.Path(path_type=Path))
@click.option("--name", default="queue", show_default=True, help="Name of the cluster.")
def main(*, jobs: int, policies: tuple[str, ...], sharing: bool, depth: int, out: Path, name: str) -> None:
    """How long a cycle of sodad takes over a long queue on real Slurm."""
    cluster = ContainerCluster.up(
        name, nodes=NODES, gpus=GPUS, packed=True, progress=lambda line: click.echo(line, err=True)
    )
    try:
        measured = measure_all(cluster, jobs, policies, depth, sharing=sharing)
        write_result(out, measured)
        show(measured)
    finally:
        cluster.down()


if __name__ == "__main__":
    main()
