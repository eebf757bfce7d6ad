"""Progress of a demo's two phases, on standard error."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

from slurm_soda.demo.cluster_runs import PHASES, DemoObserver, DemoPhase
from slurm_soda.demo.job_driver import DriverEvent
from slurm_soda.sodactl import output

_LINE_EVERY_S = 20.0
"""Between two lines of progress where there is no terminal to draw on."""


@contextmanager
def show_demo_progress(jobs: int, phases: Sequence[DemoPhase] = PHASES) -> Iterator[DemoObserver]:
    """Progress on stderr: bars on a terminal, a line now and then elsewhere."""
    from rich.console import Console  # noqa: PLC0415 - slow to import, and --help does not need it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    console = Console(stderr=True)
    if not console.is_terminal:
        lines = _ProgressLines(jobs, time.monotonic, phases)
        yield DemoObserver(lines.say, lines.event)
        return
    columns = (
        TextColumn("{task.description:<7}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[queue]}"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        tasks = {phase: progress.add_task(phase, total=jobs, queue="", start=False, visible=False) for phase in phases}

        def show(phase: DemoPhase, event: DriverEvent) -> None:
            if not progress.tasks[tasks[phase]].started:
                progress.start_task(tasks[phase])
                progress.update(tasks[phase], visible=True)
            counts[phase].take(event)
            progress.update(tasks[phase], completed=counts[phase].completed, queue=counts[phase].text)
            if event["event"] == "done":
                progress.stop_task(tasks[phase])

        counts = {phase: _JobCounts() for phase in phases}
        yield DemoObserver(lambda line: progress.console.print(line, style="dim", markup=False, highlight=False), show)


class _JobCounts:
    """Where the jobs of a phase are, from the driver's events."""

    def __init__(self) -> None:
        self.submitted = 0
        self.states: Counter[str] = Counter()

    def take(self, event: DriverEvent) -> None:
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


class _ProgressLines:
    """Progress as lines, for logs."""

    def __init__(self, jobs: int, now_s: Callable[[], float], phases: Sequence[DemoPhase] = PHASES) -> None:
        self._jobs, self._now_s = jobs, now_s
        self._counts = {phase: _JobCounts() for phase in phases}
        self._next_s = now_s()

    def say(self, line: str) -> None:
        click.echo(output.escape_unprintable(line), err=True)

    def event(self, phase: DemoPhase, event: DriverEvent) -> None:
        counts = self._counts[phase]
        counts.take(event)
        due = event["event"] == "queue" and event["states"] and self._now_s() >= self._next_s
        if event["event"] == "done" or due:
            self._next_s = self._now_s() + _LINE_EVERY_S
            self.say(f"{phase}: {counts.completed} of {self._jobs} jobs completed, {counts.text}")
