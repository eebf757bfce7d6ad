"""What a scrape of sodad costs at a large site, and how many series there are: ``python -m benchmarks.metrics``.

The picture is that of one cycle over 1000 nodes of 8 GPUs, 10 partitions and 10 000 jobs, with agents that report from each
node; series are counted with a tenth of the jobs too, because their number must not depend on it. What a cycle pays for its
figures is measured beside it.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import process_time
from typing import Any

import click
from prometheus_client.exposition import generate_latest
from rich.console import Console
from rich.table import Table

from slurm_soda.daemon.clock import Instant, SystemClock
from slurm_soda.daemon.metrics.cycle_figures import StartedWaits, cluster_figures
from slurm_soda.daemon.metrics.cycle_meter import CycleMeter
from slurm_soda.daemon.metrics.node_board import NodeBoard
from slurm_soda.daemon.metrics.node_text import node_text
from slurm_soda.daemon.metrics.site_collector import SiteCollector
from slurm_soda.daemon.services.service_board import ServiceBoard
from slurm_soda.daemon.sharing.co_runners import GuestsByNode
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.slurm_ext.client import SlurmJob, SlurmNode
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.read.snapshot import build_snapshot
from slurm_soda.wire.node_use import COUNTS, HeldGpu, NodeUse
from slurm_soda.wire.records import NodeReport

NOW_S = 1_800_000_000.0


@dataclass(frozen=True)
class Site:
    """How large it is."""

    nodes: int = 1000
    gpus: int = 8
    partitions: int = 10
    jobs: int = 10_000

    def snapshot(self) -> tuple[ClusterSnapshot, list[SlurmNode]]:
        """One picture: as many one-GPU jobs run as there are GPUs, the others wait, every tenth in two partitions."""
        names = [f"part{number}" for number in range(self.partitions)]
        nodes = [self._node(number, names) for number in range(self.nodes)]
        jobs = [self._job(number, names) for number in range(self.jobs)]
        return build_snapshot(NOW_S, jobs, nodes, {}, {}, {}), nodes

    def report(self, node: int) -> NodeReport:
        """What an agent says of a node whose GPUs are all held."""
        gpus = tuple(HeldGpu(index, 0.5, 40_000.0) for index in range(self.gpus))
        use = NodeUse(gpus, dict.fromkeys(COUNTS, 1), 12.5, 40_000_000)
        return NodeReport(f"n{node}", "a", 1, NOW_S, gpu_count=self.gpus, use=(use,))

    def _node(self, number: int, names: list[str]) -> SlurmNode:
        of = (names[number % len(names)],)
        return SlurmNode(f"n{number}", "MIXED", True, 128, 64, 500_000, 0, self.gpus, self.gpus // 2, "h100", of)

    def _job(self, number: int, names: list[str]) -> SlurmJob:
        runs = number < self.nodes * self.gpus // 2
        partition = names[number % len(names)]
        if not runs and number % 10 == 0:
            partition = f"{partition},{names[(number + 1) % len(names)]}"
        values: dict[str, Any] = {
            "array_job_id": 0, "array_task": "", "state": "RUNNING" if runs else "PENDING", "reason": "Resources",
            "user": f"user{number % 50}", "uid": 1000, "account": "a", "partition": partition, "qos": "normal",
            "name": "job", "comment": "", "submit_s": NOW_S - 3600, "eligible_s": NOW_S - 3600,
            "start_s": NOW_S - 60 if runs else math.nan, "end_s": math.nan, "time_limit_s": 7200.0, "priority": number,
            "nice": 0, "restarts": 0, "nodes": 1, "cpus": 8, "memory_mib": 1000, "gpus": 1, "gpus_per_node": 0,
            "gpu_type": "", "node_names": f"n{number % self.nodes}" if runs else "", "exit_code": "0:0", "dependency": "",
            "hints": Hints(),
        }  # fmt: skip
        return SlurmJob(job_id=number + 1, **values)


@dataclass(frozen=True, slots=True)
class Measured:
    """Milliseconds are of CPU time, the least of some attempts: what else the machine did is no cost of ours."""

    site_series: int
    node_series: int
    site_ms: float
    site_kb: float
    nodes_ms: float
    nodes_kb: float
    cycle_ms: float
    """What a cycle pays."""


def measure(site: Site, store: Store, repeats: int = 5) -> Measured:
    """Fill everything that is shown, and show it; ``store`` is only looked at."""
    clock, board = SystemClock(), NodeBoard()
    at = Instant.read(clock)
    for node in range(site.nodes):
        board.note(site.report(node), at)
    meter = CycleMeter(GuestsByNode(), board)
    snapshot, nodes = site.snapshot()

    def figure() -> None:
        meter.figures = replace(
            meter.figures, mode="enforce", policy="soda", last_s=NOW_S, success_s=NOW_S, interval_s=10.0,
            cluster=cluster_figures(snapshot, nodes, {}),
        )  # fmt: skip
        StartedWaits().take(snapshot)

    cycle_ms, _ = _least_ms(figure, repeats)
    for name in meter.figures.cluster.jobs_in:
        meter._wait_times.labels(name).observe(60.0)
    meter.registry.register(SiteCollector(meter, board, ServiceBoard(), store, clock))
    site_ms, shown = _least_ms(lambda: generate_latest(meter.registry), repeats)
    by_node_ms, by_node = _least_ms(
        lambda: node_text(meter.figures.cluster.gpus_on, board.signs(), clock.elapsed_s()), repeats
    )
    return Measured(
        count_series(shown), count_series(by_node), site_ms, len(shown) / 1e3, by_node_ms, len(by_node) / 1e3, cycle_ms
    )


def count_series(text: bytes) -> int:
    """Samples of an exposition."""
    return sum(not line.startswith(b"#") for line in text.splitlines())


def _least_ms(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    taken, result = [], None
    for _ in range(repeats):
        began_s = process_time()
        result = work()
        taken.append((process_time() - began_s) * 1e3)
    return min(taken), result


@click.command()
@click.option("--nodes", default=Site.nodes, show_default=True, type=click.IntRange(1))
@click.option("--gpus", default=Site.gpus, show_default=True, type=click.IntRange(1, 256), help="GPUs of a node.")
@click.option("--partitions", default=Site.partitions, show_default=True, type=click.IntRange(1))
@click.option("--jobs", default=Site.jobs, show_default=True, type=click.IntRange(10))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(nodes: int, gpus: int, partitions: int, jobs: int, *, as_json: bool) -> None:
    """Series, size and time of /metrics and /metrics/nodes at a site of this size."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{Path(folder) / 'soda.db'}")
        sites = {count: measure(Site(nodes, gpus, partitions, count), store) for count in (jobs // 10, jobs)}
        store.close()
    if as_json:
        click.echo(json.dumps({str(count): asdict(one) for count, one in sites.items()}, indent=2))
        return
    table = Table(title=f"{nodes} nodes of {gpus} GPUs, {partitions} partitions")
    for heading in ("jobs", "path", "series", "kB", "CPU ms", "CPU ms of a cycle"):
        table.add_column(heading, justify="left" if heading == "path" else "right")
    for count, one in sites.items():
        table.add_row(
            str(count),
            "/metrics",
            str(one.site_series),
            f"{one.site_kb:.0f}",
            f"{one.site_ms:.1f}",
            f"{one.cycle_ms:.1f}",
        )
        table.add_row("", "/metrics/nodes", str(one.node_series), f"{one.nodes_kb:.0f}", f"{one.nodes_ms:.1f}", "")
    Console().print(table)


if __name__ == "__main__":
    main()
