"""Figures of papers and peers, side by side with ours: ``python -m benchmarks.reproduce``, ``make reproduce``."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.reproduce import (
    chapter6,
    interference,
    lower_bounds,
    mechanism,
    ojpp,
    parting,
    philly,
    pollux,
    predicted,
    preface,
    regret,
    sensitivity,
    services,
    services_pictures,
    sharing,
    soda,
    soda_on_traces,
    soda_pictures,
    speed,
    testbed,
    tiresias_simulator,
    unseen,
)
from benchmarks.reproduce.document import Section, Written
from benchmarks.reproduce.pictures import draw
from benchmarks.reproduce.simulation import Results, check_data, run_commands
from benchmarks.reproduce.single_sections import choose, printed, put_into
from benchmarks.simulate import measure_all
from slurm_soda.simulator.report.atomic_files import write_atomically
from slurm_soda.simulator.speed.small_files import read_small_file
from slurm_soda.slurm_ext.errors import SodaError

MONTHS, TESTBED, SODA, SERVICES = "philly-month", "tiresias480", "soda-month", "soda-services"
SODA_CORES = 80 * 28


def sections(*, data: bool, pairs: bool = False) -> list[Section]:
    """All sections in their order; without traces those of generated workloads; ``pairs``: the pair table is there."""
    return [
        *([tiresias_simulator.yardsticks(), tiresias_simulator.least_attained()] if data else []),
        unseen.section(data=data),
        *([pollux.section(), predicted.section()] if data else []),
        testbed.section(),
        philly.table_1(data=data),
        philly.table_5(data=data),
        sensitivity.section(),
        soda.section(),
        services.section(),
        *([sharing.section(pairs=pairs)] if data else []),
        *([mechanism.section(), regret.section(), soda_on_traces.section()] if pairs else []),
        parting.section(),
        ojpp.section(),
        chapter6.section(),
        *([lower_bounds.section()] if data else []),
    ]


def document(parts: Sequence[tuple[str, Written]], images: str) -> str:
    """The whole text; ``images`` is where pictures are, from the document."""
    lines = preface.head(parts)
    for title, written in parts:
        lines += [f"## {title}", "", *written.lines, *preface.picture(title, images)]
    return "\n".join([*lines, *preface.tail()]).rstrip() + "\n"


def draw_all(results: Results, folder: Path) -> None:
    """The pictures of the document."""
    months = philly.pictured(results)
    about = f"generated months like Philly's, {len(months[0][1])} seeds (Gandiva {len(philly.GANDIVA_SEEDS)}), 32x8"
    draw(months, about, ("jct",), folder, MONTHS)
    testbeds = testbed.pictured(results)
    draw(testbeds, f"Tiresias' testbed mix, {len(testbed.SEEDS)} seeds, 15x4, preemption at 62 s", ("jct", "utilisation"),
         folder, TESTBED)  # fmt: skip
    soda_pictures.draw(soda.pictured(results), SODA_CORES, folder, SODA)
    services_pictures.draw(results, SODA_CORES, folder, SERVICES)


def write_sections(names: Sequence[str], data: Path | None, out: Path | None, workers: int | None) -> None:
    """Only the sections that names choose: printed, or put into the document ``out``.

    Raises:
        click.UsageError: a name chooses no section, or several.
        SodaError: a trace or the document cannot be read, or a simulation cannot be run.
    """
    every = sections(data=data is not None, pairs=data is not None and (data / sharing.PAIRS).exists())
    chosen = choose(names, every)
    before = None if out is None else read_small_file(out)
    lines = [line for section in chosen for line in section.commands]
    if data is not None:
        check_data(lines, data)
        sharing.prepare(data)
    results = run_commands(lines, data, workers, _progress)
    parts = [(section.title, section.write(results)) for section in chosen]
    if out is None or before is None:
        click.echo(printed(parts), nl=False)
        return
    order = [*(section.title for section in sections(data=True, pairs=True)), interference.TITLE, preface.SPEED]
    for title, written in parts:
        before = put_into(before, order, title, written, "images/reproduction")
    write_atomically(out, before.encode())


def _progress(done: int, total: int) -> None:
    end = "\n" if done == total or not sys.stderr.isatty() else ""
    if end == "" or done == total or done % 25 == 0:
        click.echo(f"\r{done} of {total} simulations" if sys.stderr.isatty() else f"{done} of {total} simulations",
                   nl=bool(end), err=True)  # fmt: skip


@click.command()
@click.option("--data", default=Path("../shared/data"), show_default=True, type=click.Path(path_type=Path),
              help="Folder of the traces.")  # fmt: skip
@click.option("--generated", is_flag=True, help="Only what needs no traces; written to build/ unless --out says where.")
@click.option("--out", type=click.Path(path_type=Path), help="The document.  [default: docs/reproduction.md]")
@click.option("--section", "names", multiple=True, metavar="NAME",
              help="Only sections with NAME in the title: printed, or with --out put into that file.")  # fmt: skip
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: one a CPU]")
def main(data: Path, generated: bool, out: Path | None, names: tuple[str, ...], workers: int | None) -> None:
    """Figures of papers and peers, side by side with ours, as a document."""
    began_s = time.monotonic()
    if names:
        try:
            write_sections(names, None if generated else data, out, workers)
        except SodaError as error:
            raise click.ClickException(str(error)) from error
        return
    whole = sections(data=not generated, pairs=not generated and (data / sharing.PAIRS).exists())
    lines = [line for section in whole for line in section.commands]
    path = out or Path("build/reproduction.md" if generated else "docs/reproduction.md")
    try:
        if not generated:
            check_data(lines, data)
            sharing.prepare(data)
        click.echo("measuring speed first, alone", err=True)
        speeds = measure_all(None if generated else data, lambda name: click.echo(f"  {name}", err=True))
        results = run_commands(lines, None if generated else data, workers, _progress)
        parts = [(section.title, section.write(results)) for section in whole]
        if not generated:
            parts.append((interference.TITLE, interference.write(data, lambda text: click.echo(text, err=True))))
        draw_all(results, path.parent / "images/reproduction")
        write_atomically(path, document([*parts, (preface.SPEED, speed.write(speeds))], "images/reproduction").encode())
    except SodaError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{path} written in {time.monotonic() - began_s:.0f} s", err=True)


if __name__ == "__main__":
    main()
