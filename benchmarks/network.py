"""What a GPU job on two nodes gets of the link beside a CPU job: ``python -m benchmarks.network``.

Real Slurm jobs with iperf3 on a cluster in containers, with and without slurm-soda sharing the link out. A virtual link has
no speed of its own, so a narrow qdisc stands for it where slurm-soda does not shape it: on the sending node for what goes
out, on the other node, in the place of the switch's port, for what comes in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from slurm_soda.containers.cluster import ContainerCluster

_FILE = "/etc/slurm-soda/agent.toml"
_STEADY_S = 10
_WARM_S = 5


class NetworkBenchCluster:
    """A cluster whose links have this speed."""

    def __init__(self, cluster: ContainerCluster, mbit: int) -> None:
        self._cluster = cluster
        self._mbit = mbit
        cluster.create_net_cls()
        for port in ("5201", "5202"):
            cluster.exec("root", ("iperf3", "--server", "--daemon", "--port", port), node="n2").check()

    def configure(self, *, shared_out: bool) -> None:
        text = f'[network]\ngpu_interface = "eth0"\nlink_mbit = {self._mbit}\n' if shared_out else ""
        self._cluster.exec("root", ("mkdir", "-p", "/etc/slurm-soda"), node="n1").check()
        self._cluster.copy_in(text.encode(), _FILE, node="n1")
        self._cluster.stop("soda-agent", node="n1")
        self._cluster.start("soda-agent", node="n1")

    @contextmanager
    def narrow(self, node: str | None) -> Iterator[None]:
        """A FIFO of the link's speed on a node's interface, or on none."""
        if node is None:
            yield
            return
        rate = ("rate", f"{self._mbit}mbit", "burst", "64k", "limit", "400k")
        argv = ("tc", "qdisc", "add", "dev", "eth0", "root", "handle", "7:", "tbf", *rate)
        self._cluster.exec("root", argv, node=node).check()
        try:
            yield
        finally:
            self._cluster.exec("root", ("tc", "qdisc", "del", "dev", "eth0", "root"), node=node).check()

    def measure(self, connections: int, *options: str) -> tuple[float, float]:
        """Mbit/s of the GPU job and of the CPU job in their median seconds, side by side."""
        rest = " ".join((*options, "--format m --interval 1 --forceflush"))
        cpu = self._submit(f"iperf3 -c n2 -p 5202 -t 120 -P {connections} {rest} >cpu", "--nodelist=n1")
        gpu = f"sleep 4; iperf3 -c n2 -p 5201 -t {_STEADY_S} -O {_WARM_S} {rest} >gpu; pkill -KILL -x iperf3"
        jobs = cpu, self._submit(gpu, "--nodes=2", "--ntasks-per-node=1", "--gres=gpu:1")
        argv = ("squeue", "--noheader", f"--jobs={jobs[0]},{jobs[1]}", "--states=PENDING,RUNNING,COMPLETING")
        self._cluster.wait_until(
            lambda: not self._cluster.exec("root", argv).stdout, "the jobs have ended", within_s=120
        )
        gpu_seconds, cpu_seconds = self._seconds("gpu"), self._seconds("cpu")
        return median(gpu_seconds), median(cpu_seconds[-_STEADY_S:])

    def _submit(self, script: str, *options: str) -> str:
        argv = ("sbatch", "--parsable", "--output=/dev/null", "--time=5", *options)
        return self._cluster.exec("alice", argv, input=f"#!/bin/bash\n{script}\n").check().stdout.strip()

    def _seconds(self, file: str) -> list[float]:
        """Mbit/s second by second; iperf3 may have been killed."""
        lines = self._cluster.exec("alice", ("cat", file)).check().stdout.splitlines()
        seconds = [
            line
            for line in lines
            if "Mbits/sec" in line and not line.rstrip().endswith(("omitted)", "sender", "receiver"))
        ]
        together = [line for line in seconds if line.startswith("[SUM]")] or seconds
        return [float(line.partition(" Mbits/sec")[0].split()[-1]) for line in together]


@click.command()
@click.option("--mbit", default=500, show_default=True, help="Speed of the links.")
@click.option("--name", default="netbench", show_default=True, help="Name of the cluster.")
def main(mbit: int, name: str) -> None:
    """A GPU job on two nodes beside a CPU job that sends, or receives, at full speed."""
    table = Table(box=None, header_style="bold")
    for title in ("direction", "CPU job's connections", "shared out", "GPU job", "CPU job", "GPU job's part"):
        table.add_column(title, justify="left" if title == "direction" else "right")
    cluster = ContainerCluster.up(name, progress=lambda line: click.echo(line, err=True))
    try:
        site = NetworkBenchCluster(cluster, mbit)
        for shared_out in (False, True):
            site.configure(shared_out=shared_out)
            for direction, options in (("out", ()), ("in", ("--reverse",))):
                node = "n2" if options else (None if shared_out else "n1")
                for connections in (1, 4):
                    with site.narrow(node):
                        gpu, cpu = site.measure(connections, *options)
                    figures = (f"{gpu:.0f} Mbit/s", f"{cpu:.0f} Mbit/s", f"{100 * gpu / (gpu + cpu):.0f} %")
                    table.add_row(direction, str(connections), "yes" if shared_out else "no", *figures)
    finally:
        cluster.down()
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
