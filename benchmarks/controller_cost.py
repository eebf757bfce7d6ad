"""What the agent's controllers of memory bandwidth and network cost: ``python -m benchmarks.controller_cost``, as root.

One real agent at a time, on a node with 16 jobs of 20 threads: twelve without GPUs, three on GPUs of this node, one on two
nodes. Slurm's groups are plain files with the ids of real threads, resctrl is the mounted stand-in, tc, nft and net_cls
are the kernel's in a network namespace of its own. The CPU jobs fill the memory, so that some are throttled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import psutil
from rich.console import Console
from rich.table import Table

from slurm_soda.wire.event_delivery import deliver_event

STAND_IN = Path(__file__).parents[1] / "emulation" / "resctrl" / "serve.py"
CPU_JOBS, GPU_JOBS, THREADS = 12, 4, 20
FIRST_JOB = 1_600_000_001
SLEEPERS = (
    "import threading, time\n"
    f"[threading.Thread(target=time.sleep, args=(9999,), daemon=True).start() for _ in range({THREADS - 1})]\n"
    "print(flush=True)\n"
    "time.sleep(9999)"
)
MEMORY = '[memory]\nenabled = true\nresctrl = "{mount}"\nnode_bandwidth_gb = 200\n'
NETWORK = '[network]\ngpu_interface = "eth0"\nlink_mbit = 1000\n'
KINDS = {"neither": "", "memory": MEMORY, "network": NETWORK, "both": MEMORY + NETWORK}
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_BYTES_PER_S = 20e9


class ResctrlStandIn:
    """The stand-in for resctrl, told of the jobs' threads."""

    def __init__(self, point: Path) -> None:
        setup = json.dumps({"rmids": 64, "closids": 16})
        pipe = subprocess.PIPE
        self._server = subprocess.Popen([sys.executable, STAND_IN, point, setup], stdin=pipe, stdout=pipe, text=True)
        said = self._line()
        if "refused" in said:
            raise click.ClickException(
                f"the resctrl stand-in needs /dev/fuse and the right to mount: {said['refused']}"
            )
        self.mount = str(said["mount"])

    def tell(self, **command: object) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(command) + "\n")
        self._server.stdin.flush()
        self._line()

    def stop(self) -> None:
        self._server.kill()
        self._server.wait()

    def _line(self) -> dict[str, object]:
        assert self._server.stdout is not None
        found: dict[str, object] = json.loads(self._server.stdout.readline()) or {}
        return found


@contextmanager
def jobs(path: Path, memory: ResctrlStandIn) -> Iterator[None]:
    """Sixteen jobs: their processes, and their groups as Slurm makes them."""
    (path / "cgroup/cpuacct/slurm_n1").mkdir(parents=True)
    processes = [subprocess.Popen([sys.executable, "-c", SLEEPERS], stdout=subprocess.PIPE) for _ in range(16)]
    try:
        for number, process in enumerate(processes):
            assert process.stdout is not None
            process.stdout.readline()
            threads = [thread.id for thread in psutil.Process(process.pid).threads()]
            group = path / f"cgroup/freezer/slurm_n1/uid_2001/job_{FIRST_JOB + number}/step_batch"
            group.mkdir(parents=True)
            (group / "tasks").write_text("".join(f"{thread}\n" for thread in threads))
            (group / "cgroup.procs").write_text(f"{process.pid}\n")
            share = _BYTES_PER_S / len(threads) if number < CPU_JOBS else 0.0
            memory.tell(run={thread: {0: share, 1: share} for thread in threads})
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def open_jobs(path: Path) -> None:
    """What the prolog of each job tells."""
    for number in range(CPU_JOBS + GPU_JOBS):
        event: dict[str, object] = {"kind": "open", "job_id": FIRST_JOB + number, "start_s": 1000, "restart": 0}
        event |= {"node": "n1", "uid": 2001, "user": "alice", "partition": "main", "at_s": 1000.0, "cpus_per_node": "4"}
        event |= {"gpus": [number - CPU_JOBS] if number >= CPU_JOBS else [], "env": {}}
        event |= {"node_names": "n[1-2]" if number == CPU_JOBS else "n1"}
        deliver_event(event, str(path / "sock"), str(path / "spool"))


def measure(path: Path, kind: str, memory: ResctrlStandIn, seconds: float) -> tuple[float, float]:
    """An agent's share of one core in percent, programs that it ran included, and its memory in MiB."""
    (path / "agent.toml").write_text(
        f'controller = "http://127.0.0.1:9"\nnode = "n1"\nsocket = "{path}/sock"\nspool = "{path}/spool-{kind}"\n'
        f'cgroup_root = "{path}/cgroup"\nstate = "{path}/state"\nretry_max_s = 3600\nlost_after_s = 86400\n'
        + KINDS[kind].format(mount=memory.mount)
    )
    script = (
        "ip link add eth0 type veth peer name peer0; ip link set eth0 up;"
        ' exec "$0" -m slurm_soda.agent.main --config "$1"'
    )
    argv = ["unshare", "--net", "--mount", "sh", "-c", script, sys.executable, str(path / "agent.toml")]
    with (path / f"{kind}.log").open("wb") as log:
        agent = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        while not (path / "sock").exists():
            time.sleep(0.1)
        open_jobs(path)
        pass_time(memory, 15.0)  # young runs are sampled more often, limits are found, programs are loaded
        before_s = cpu_s(agent.pid)
        pass_time(memory, seconds)
        used_s = cpu_s(agent.pid) - before_s
        return 100 * used_s / seconds, psutil.Process(agent.pid).memory_info().rss / (1 << 20)
    finally:
        agent.terminate()
        agent.wait()
        (path / "sock").unlink(missing_ok=True)


def pass_time(memory: ResctrlStandIn, seconds: float) -> None:
    end_s, last_s = time.monotonic() + seconds, time.monotonic()
    while last_s < end_s:
        time.sleep(0.5)
        memory.tell(advance=time.monotonic() - last_s)
        last_s = time.monotonic()


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) * _TICK_S


@click.command()
@click.option("--seconds", default=60.0, show_default=True, help="Measured for so long each.")
def main(seconds: float) -> None:
    """CPU and memory of the agent on a node with 16 jobs, without and with its controllers."""
    table = Table(box=None, header_style="bold")
    for title in ("controllers", "% of one core", "MiB"):
        table.add_column(title, justify="left" if title == "controllers" else "right")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "resctrl").mkdir()
        memory = ResctrlStandIn(path / "resctrl")
        try:
            with jobs(path, memory):
                for kind in KINDS:
                    percent, mib = measure(path, kind, memory, seconds)
                    table.add_row(kind, f"{percent:.2f}", f"{mib:.1f}")
        finally:
            memory.stop()
    Console().print(table)


if __name__ == "__main__":
    main()
