"""``sodactl demo``: one job mix on a real Slurm cluster, under stock Slurm and under slurm-soda."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from slurm_soda.demo.driver import Event
from slurm_soda.demo.page import ROWS, TITLES, change_text, headline, value_text
from slurm_soda.demo.run import PHASES, Phase, Watch
from slurm_soda.demo.settings import DemoSettings
from slurm_soda.demo.story import PAGE, REPORT, tell
from slurm_soda.policies.registry import policy_names
from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Column

_LINE_EVERY_S = 20.0
"""Between two lines of progress where there is no terminal to draw on."""


@click.command()
@click.option("--seed", default=1, show_default=True, help="Another seed is another mix of jobs.")
@click.option("--jobs", default=30, show_default=True, type=click.IntRange(4, 500), help="Jobs in the mix.")
@click.option(
    "--time-scale", default=150.0, show_default=True, type=click.FloatRange(1.0, 10000.0),
    help="How many times faster than on the paper's testbed time passes; smaller is slower and smoother.",
)  # fmt: skip
@click.option("--policy", default="tiresias-las", show_default=True, type=click.Choice(policy_names()))
@click.option("--out", default="build/demo", show_default=True, type=click.Path(path_type=Path, file_okay=False))
@click.option("--keep", is_flag=True, help="Leave the cluster up, to look around in it.")
@click.option("--name", default="demo", show_default=True, help="Name of the cluster, so that two demos can run.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def demo(
    *, seed: int, jobs: int, time_scale: float, policy: str, out: Path, keep: bool, name: str, as_json: bool
) -> None:
    """The same jobs under stock Slurm and under slurm-soda.

    Brings a Slurm cluster of 2 nodes with 4 (emulated) GPUs each up in containers, submits one mix of jobs through sbatch
    as three users, waits until all have completed, and does the same again with slurm-soda deciding. Takes about five
    minutes, the first time longer for the images. Writes report.json, index.html, two pictures, and a dump of
    accounting from each run, which `sodactl whatif` reads.

    The mix is a scaled-down testbed workload of Tiresias (NSDI 2019): half of the jobs ask for one GPU, the others for up to
    8, a fifth are long, and they arrive faster than the cluster can serve them. Times in the report are Slurm's own
    accounting.

    \b
    Examples:
      sodactl demo                            the shipped mix
      sodactl demo --seed 7 --out build/seven another one
      sodactl demo --keep                     then: sodactl cluster exec --name demo root -- squeue
    """  # noqa: D301 - click reads the control character
    settings = DemoSettings(seed, jobs, time_scale, policy, out, keep, name)
    with _watching(jobs) as watch:
        report = tell(settings, watch)
    if as_json:
        output.print_json(report)
        return
    _draw(report["runs"])
    output.print_line()
    output.print_line(headline(report["runs"]))
    output.print_line(f"page: {out / PAGE}   report: {out / REPORT}")
    output.print_line(f"next: {report['whatif_command']}")


def _draw(runs: dict[str, Any]) -> None:
    columns = [
        Column(""),
        Column(TITLES["stock"], right=True),
        Column(TITLES["soda"], right=True),
        Column("change", right=True),
    ]
    rows = []
    for key, name, unit in ROWS:
        stock, soda = runs["stock"][key], runs["soda"][key]
        rows.append([name, value_text(stock, unit), value_text(soda, unit), change_text(stock, soda) if unit else ""])
    output.print_table(columns, rows)


@contextmanager
def _watching(jobs: int) -> Iterator[Watch]:
    """Progress on stderr: bars on a terminal, a line now and then elsewhere."""
    from rich.console import Console  # noqa: PLC0415 - slow to import, and --help does not need it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    console = Console(stderr=True)
    if not console.is_terminal:
        lines = _Lines(jobs, time.monotonic)
        yield Watch(lines.say, lines.event)
        return
    columns = (
        TextColumn("{task.description:<7}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[queue]}"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        tasks = {phase: progress.add_task(phase, total=jobs, queue="", start=False, visible=False) for phase in PHASES}

        def show(phase: Phase, event: Event) -> None:
            if not progress.tasks[tasks[phase]].started:
                progress.start_task(tasks[phase])
                progress.update(tasks[phase], visible=True)
            counts[phase].take(event)
            progress.update(tasks[phase], completed=counts[phase].completed, queue=counts[phase].text)
            if event["event"] == "done":
                progress.stop_task(tasks[phase])

        counts = {phase: _Counts() for phase in PHASES}
        yield Watch(lambda line: progress.console.print(line, style="dim", markup=False, highlight=False), show)


class _Counts:
    """Where the jobs of a phase are, from the driver's events."""

    def __init__(self) -> None:
        self.submitted = 0
        self.states: Counter[str] = Counter()

    def take(self, event: Event) -> None:
        if event["event"] == "submitted":
            self.submitted += 1
        elif event["event"] == "queue":
            self.states = Counter(event["states"].values())

    @property
    def completed(self) -> int:
        return max(0, self.submitted - self.states.total())

    @property
    def text(self) -> str:
        return f"{self.states['RUNNING']} running, {self.states['PENDING']} waiting"


class _Lines:
    """Progress as lines, for logs."""

    def __init__(self, jobs: int, now_s: Callable[[], float]) -> None:
        self._jobs, self._now_s = jobs, now_s
        self._counts = {phase: _Counts() for phase in PHASES}
        self._next_s = now_s()

    def say(self, line: str) -> None:
        click.echo(output.printable(line), err=True)

    def event(self, phase: Phase, event: Event) -> None:
        counts = self._counts[phase]
        counts.take(event)
        due = event["event"] == "queue" and event["states"] and self._now_s() >= self._next_s
        if event["event"] == "done" or due:
            self._next_s = self._now_s() + _LINE_EVERY_S
            self.say(f"{phase}: {counts.completed} of {self._jobs} jobs completed, {counts.text}")
