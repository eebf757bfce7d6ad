"""What the agent costs with the search for cores: ``python -m benchmarks.cores``.

One real node with 16 jobs, four of them emulated trainings on a GPU each. CPU is that of the agent and of what it runs,
by the kernel's count, in three states: without [cores], with it while all four are searched in steps of 60 s, and with it
when all four have settled.
"""

from __future__ import annotations

import time

import click
from rich.console import Console
from rich.table import Table

from slurm_soda.containers.cluster import ContainerCluster

NODE = "n1"
CONFIG = "/etc/slurm-soda/agent.toml"
STAND_IN = 'cgroup_root = "/run/soda-cgroup"\n'
SEARCHING = f"{STAND_IN}[cores]\nenabled = true\nwarm_up_s = 1\n"
SETTLED = f"{STAND_IN}[cores]\nenabled = true\nwarm_up_s = 1\nstep_s = 3\nsettle_s = 1\nsample_s = 0.2\n"
TRAINING = "exec soda-train --profiles /usr/local/share/soda-train/soda.tsv --model resnet50 --duration-s 1e6"


class CpuFitBench:
    """One node and its agent."""

    def __init__(self, cluster: ContainerCluster) -> None:
        self._cluster = cluster

    def submit(self, script: str, *options: str) -> int:
        argv = (
            "sbatch",
            "--parsable",
            "--chdir=/tmp",
            "--output=/dev/null",
            f"--nodelist={NODE}",
            "--mem=1G",
            *options,
        )
        return int(self._cluster.exec("alice", argv, input=f"#!/bin/bash\n{script}\n").check().stdout)

    def configure(self, text: str) -> None:
        self._cluster.stop("soda-agent", node=NODE)
        self.run("mkdir -p /etc/slurm-soda; rm -f /var/lib/slurm-soda-agent/tuning.json")
        self._cluster.copy_in(text.encode(), CONFIG, node=NODE)
        self._cluster.start("soda-agent", node=NODE)

    def run(self, script: str) -> str:
        return self._cluster.exec("root", ("sh", "-c", script), node=NODE).stdout

    def measure(self, seconds: float) -> tuple[float, float]:
        """Percent of one core, and MiB."""
        before_s, begun_s = self._cpu_s(), time.monotonic()
        time.sleep(seconds)
        used_s, took_s = self._cpu_s() - before_s, time.monotonic() - begun_s
        kib = int(self.run("grep VmRSS /proc/$(cat /run/cluster/soda-agent.pid)/status").split()[1])
        return 100 * used_s / took_s, kib / 1024

    def _cpu_s(self) -> float:
        fields = self.run("cat /proc/$(cat /run/cluster/soda-agent.pid)/stat").rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / int(self.run("getconf CLK_TCK"))

    def wait_settled(self, jobs: int) -> None:
        def settled() -> bool:
            return self.run("cat /var/lib/slurm-soda-agent/tuning.json").count('"settled":"best_fit"') == jobs

        self._cluster.wait_until(settled, "all searches end", 300)


@click.command()
@click.option("--name", default="corebench", show_default=True, help="Name of the cluster.")
@click.option("--seconds", default=60.0, show_default=True, help="Measured for so long each.")
def main(name: str, seconds: float) -> None:
    """CPU and memory of the agent on a node with 16 jobs, without and with the search for cores."""
    table = Table(box=None, header_style="bold")
    for title in ("cores of running jobs", "% of one core", "MiB"):
        table.add_column(title)
    cluster = ContainerCluster.up(name, progress=lambda line: click.echo(line, err=True))
    try:
        cluster.start_daemon()
        cluster.start("soda-cpusets", node=NODE)
        bench = CpuFitBench(cluster)
        for _ in range(4):
            bench.submit(TRAINING, "--gres=gpu:1", "--cpus-per-task=4")
        for _ in range(12):
            bench.submit("sleep 3600", "--cpus-per-task=1")
        time.sleep(15.0)  # young runs are sampled more often
        for state, text in (("off", STAND_IN), ("searched, steps of 60 s", SEARCHING), ("settled", SETTLED)):
            bench.configure(text)
            time.sleep(10.0)
            if state == "settled":
                bench.wait_settled(4)
                time.sleep(5.0)
            percent, mib = bench.measure(seconds)
            table.add_row(state, f"{percent:.2f}", f"{mib:.1f}")
    finally:
        cluster.down()
    Console().print(table)


if __name__ == "__main__":
    main()
