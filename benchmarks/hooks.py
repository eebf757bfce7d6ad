"""What prolog and epilog take by themselves: ``python -m benchmarks.hooks`` (as root, as slurmd runs them).

The scripts that a site installs, with the environment that slurmd gives, against the agent's own socket. By the short
way (``soda-deliver-event``), by Python's (without that program), and with no agent, where the event goes into the spool; the
same beside processes that keep the machine busy. What Slurm adds is in ``python -m benchmarks``.

``--tree DIR`` measures the hooks of that work tree too, in turn with this one's: what a change of them costs.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
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
WITHOUT_GPUS = {name: value for name, value in ENVIRON.items() if name != "SLURM_JOB_GPUS"}
NO_GPUS, NO_AGENT = "the program, a job without GPUs", "both, no agent"
WAYS = ("the program", NO_GPUS, "Python", NO_AGENT)
RECORDS = Path("/run/slurm-soda-node/shares")
OTHERS = {"gpus.4294960001": "2", "gpus.4294960002": "3", "gpus.4294960003": "4-5"}
"""Records of other jobs with GPUs on this node, none of which shares."""


def install(prefix: Path, tree: Path) -> None:
    """The layout of ``make install``, as far as the hooks need it."""
    environment = prefix / "lib" / "slurm-soda" / "current"
    packages = environment / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for folder in (environment / "bin", prefix / "libexec", packages):
        folder.mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    (packages / "slurm_soda").symlink_to(tree / "src" / "slurm_soda")
    for hook in ("prolog", "epilog"):
        for source in (tree / hook / hook, *(tree / hook).glob("share-*"), *(tree / hook).glob("mps-*")):
            shutil.copy(source, prefix / "libexec")
    places = (f"BUILD={prefix}/build", f"LIBEXECDIR={prefix}/libexec")
    subprocess.run(["make", "-s", "-C", str(tree / "wire"), "install", *places], check=True)


class Served:
    """The agent's socket server, for as long as this program runs; it reads events, counts them and keeps nothing."""

    def __init__(self, socket: str) -> None:
        self.by_program = self.by_python = 0
        loop = asyncio.new_event_loop()
        loop.run_until_complete(EventSocket(socket, self._take, lambda: None).start())
        threading.Thread(target=loop.run_forever, daemon=True).start()

    def _take(self, line: bytes) -> str:
        event = event_line_from_variables(line)
        parse_run_event(event)
        if event is line:
            self.by_python += 1
        else:
            self.by_program += 1
        return ""


@contextmanager
def beside(others: int) -> Iterator[None]:
    """So many processes keep the machine busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while 1: pass"]) for _ in range(others)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


@contextmanager
def other_jobs() -> Iterator[None]:
    """Records of the other jobs on this node, as their prologs leave them."""
    RECORDS.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, gpus in OTHERS.items():
        (RECORDS / name).write_text(f"{gpus}\n1001\n")
    try:
        yield
    finally:
        for name in (*OTHERS, f"gpus.{ENVIRON['SLURM_JOB_ID']}"):
            (RECORDS / name).unlink(missing_ok=True)


class Hooks:
    """The hooks of one tree, installed in a folder of their own."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.folder, self.socket = folder, f"{folder}/agent.sock"
        install(folder / "opt", tree)
        self._served = Served(self.socket)
        self.took_ms: dict[tuple[str, str, bool], list[float]] = {}
        """By hook, way and whether the machine is kept busy."""

    def arrived(self, way: str) -> int:
        """Events that came to the agent in this way."""
        return self._served.by_python if way == "Python" else self._served.by_program

    def run(self, way: str, *, busy: bool) -> None:
        """One job: its prolog and its epilog."""
        libexec = self.folder / "opt" / "libexec"
        (libexec / "soda-deliver-event").chmod(0o644 if way == "Python" else 0o755)
        places = (f"{self.folder}/none" if way == NO_AGENT else self.socket, f"{self.folder}/spool")
        environ = WITHOUT_GPUS if way == NO_GPUS else ENVIRON
        for hook in ("prolog", "epilog"):
            begun_s = time.perf_counter()
            subprocess.run([libexec / hook, *places], env=environ, cwd="/", check=True, stderr=subprocess.DEVNULL)
            self.took_ms.setdefault((hook, way, busy), []).append((time.perf_counter() - begun_s) * 1e3)


def measure(measured: Sequence[Hooks], way: str, runs: int, *, busy: bool) -> None:
    """So many jobs of each tree in turn.

    Raises:
        RuntimeError: events did not arrive in that way, so something else was measured.
    """
    before = [one.arrived(way) for one in measured]
    for _ in range(runs):
        for one in measured:
            one.run(way, busy=busy)
    for one, count in zip(measured, before, strict=True):
        arrived = one.arrived(way) - count
        if way != NO_AGENT and arrived < runs:  # on a busy machine the program may miss its time limit now and then
            raise RuntimeError(f"of {2 * runs} events {arrived} came by {way}: {one.folder} is not as on a node")


def fastest_tenth(took: Sequence[float]) -> float:
    """Its median: what an idle machine takes, even if this one is not."""
    return statistics.median(sorted(took)[: max(1, len(took) // 10)])


def table(measured: dict[str, Hooks], busy: int) -> Table:
    """One line for each hook, way and tree."""
    made = Table(box=None, header_style="bold")
    titles = ("", "way", "tree", "median", "fastest tenth", f"beside {busy} busy processes", "fastest tenth")
    for title in titles if busy else titles[:5]:
        made.add_column(title, justify="left" if title in titles[:3] else "right")
    for hook, way in product(("prolog", "epilog"), WAYS):
        for name, one in measured.items():
            found = [one.took_ms.get((hook, way, loaded), ()) for loaded in (False, True)]
            figures = [of(took) for took in found if took for of in (statistics.median, fastest_tenth)]
            if figures:
                made.add_row(hook, way, name, *(f"{figure:.2f} ms" for figure in figures))
    return made


@click.command()
@click.option("--runs", default=200, show_default=True, help="Runs of each hook, each way, in each round.")
@click.option("--rounds", default=1, show_default=True, help="How often all of it is done.")
@click.option("--busy", default=4, show_default=True, help="Processes that keep the machine busy in the second half.")
@click.option("--tree", "trees", multiple=True, type=click.Path(exists=True, path_type=Path), help="Another work tree.")
@click.option("--way", "ways", multiple=True, type=click.Choice(WAYS), help="Only these; all if none is given.")
def main(runs: int, rounds: int, busy: int, trees: tuple[Path, ...], ways: tuple[str, ...]) -> None:
    """What prolog and epilog take by themselves."""
    if os.geteuid():
        raise click.UsageError("the hooks keep records that only root can write: run it as root")
    with tempfile.TemporaryDirectory() as folder, other_jobs():
        measured = {}
        for tree in (TOP, *trees):
            place = Path(folder) / str(len(measured))
            place.mkdir()
            measured[tree.resolve().name] = Hooks(tree.resolve(), place)
        for _ in range(rounds):
            for others in (0, busy) if busy else (0,):
                with beside(others):
                    for way in ways or WAYS:
                        measure(list(measured.values()), way, runs, busy=others > 0)
    Console(width=120).print(table(measured, busy))


if __name__ == "__main__":
    main()
