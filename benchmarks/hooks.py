"""What prolog and epilog take by themselves: ``python -m benchmarks.hooks``.

The scripts that a site installs, with the environment that slurmd gives, against the agent's own socket. By the short
way (``soda-deliver-event``), by Python's (without that program), and with no agent, where the event goes into the spool; the
same beside processes that keep the machine busy. What Slurm adds is in ``python -m benchmarks``.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from slurm_soda.agent.job_events.event_socket import EventSocket
from slurm_soda.agent.job_events.hook_variables import event_line_from_variables
from slurm_soda.agent.job_events.run_event import parse_run_event

TOP = Path(__file__).parents[1]
ENVIRON = {
    "SLURM_JOB_ID": "10", "SLURM_JOB_START_TIME": "1795214838", "SLURM_JOB_RESTART_COUNT": "0", "SLURMD_NODENAME": "n1",
    "SLURM_JOB_UID": "1000", "SLURM_JOB_USER": "alice", "SLURM_JOB_PARTITION": "main", "SLURM_JOB_GPUS": "0,1",
    "SLURM_JOB_CPUS_PER_NODE": "2", "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_EXIT_CODE2": "0:0",
    "SPANK_SODA_MODEL": "resnet50", "SPANK_SODA_BATCH_SIZE": "64",
}  # fmt: skip
WAYS = ("the program", "Python", "both, no agent")


def install(prefix: Path) -> None:
    """The layout of ``make install``, as far as the hooks need it."""
    environment = prefix / "lib" / "slurm-soda" / "current"
    packages = environment / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for folder in (environment / "bin", prefix / "libexec", packages):
        folder.mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    (packages / "slurm_soda").symlink_to(TOP / ".import" / "slurm_soda")
    for hook in ("prolog", "epilog"):
        for source in (TOP / hook / hook, *(TOP / hook).glob("share-*")):
            shutil.copy(source, prefix / "libexec")
    places = (f"BUILD={prefix}/build", f"LIBEXECDIR={prefix}/libexec")
    subprocess.run(["make", "-s", "-C", str(TOP / "wire"), "install", *places], check=True)


def serve(socket: str) -> None:
    """The agent's socket server, for as long as this program runs; it reads events and keeps nothing."""

    def take(line: bytes) -> str:
        parse_run_event(event_line_from_variables(line))
        return ""

    loop = asyncio.new_event_loop()
    loop.run_until_complete(EventSocket(socket, take, lambda: None).start())
    threading.Thread(target=loop.run_forever, daemon=True).start()


def took_ms(hook: Path, places: tuple[str, str], count: int) -> float:
    """Median of so many runs."""
    found = []
    for _ in range(count):
        begun_s = time.perf_counter()
        subprocess.run([hook, *places], env=ENVIRON, cwd="/", check=True, stderr=subprocess.DEVNULL)
        found.append(time.perf_counter() - begun_s)
    return statistics.median(found) * 1e3


@click.command()
@click.option("--runs", default=200, show_default=True, help="Runs of each hook, each way.")
@click.option("--busy", default=4, show_default=True, help="Processes that keep the machine busy in the second half.")
def main(runs: int, busy: int) -> None:
    """What prolog and epilog take by themselves."""
    table = Table(box=None, header_style="bold")
    for title in ("", "way", "idle", f"beside {busy} busy processes"):
        table.add_column(title, justify="left" if title in {"", "way"} else "right")
    with tempfile.TemporaryDirectory() as folder:
        prefix, socket = Path(folder) / "opt", f"{folder}/agent.sock"
        install(prefix)
        serve(socket)
        program = prefix / "libexec" / "soda-deliver-event"
        figures: dict[tuple[str, str], list[float]] = {}
        for half in range(2):
            others = [subprocess.Popen([sys.executable, "-c", "while 1: pass"]) for _ in range(busy * half)]
            try:
                for way in WAYS:
                    program.chmod(0o644 if way == WAYS[1] else 0o755)
                    places = (f"{folder}/none" if way == WAYS[2] else socket, f"{folder}/spool")
                    for hook in ("prolog", "epilog"):
                        took = took_ms(prefix / "libexec" / hook, places, runs)
                        figures.setdefault((hook, way), []).append(took)
            finally:
                for other in others:
                    other.kill()
                    other.wait()
    for (hook, way), medians in figures.items():
        table.add_row(hook, way, *(f"{median:.1f} ms" for median in medians))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
