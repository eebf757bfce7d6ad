"""``python -m slurm_soda.services.load URL``: a load for a service, and its figures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from slurm_soda.services.load.arrivals import (
    burst_rate,
    constant_rate,
    diurnal_rate,
    even_times,
    random_times,
    read_times,
)
from slurm_soda.services.load.http_client import content_type_of
from slurm_soda.services.load.load_report import LoadReport, SentQuery, load_report
from slurm_soda.services.load.open_loop import run_load
from slurm_soda.wire.errors import SodaError

PATTERNS = ("constant", "poisson", "diurnal", "burst", "replay")
ABOVE_0 = click.FloatRange(min=0.0, min_open=True)


@click.command()
@click.argument("url")
@click.option(
    "--pattern", type=click.Choice(PATTERNS), default="poisson", show_default=True, help="When queries are sent."
)
@click.option(
    "--rate",
    type=ABOVE_0,
    default=10.0,
    show_default=True,
    help="Queries a second; of diurnal at night, of burst between bursts.",
)
@click.option("--high-rate", type=ABOVE_0, help="Of diurnal by day, of burst in a burst.  [default: 5 x rate]")
@click.option("--seconds", type=ABOVE_0, default=60.0, show_default=True, help="How long queries are sent.")
@click.option(
    "--day-s", type=ABOVE_0, help="diurnal: how long a day lasts, which begins at night.  [default: all of it]"
)
@click.option("--every-s", type=ABOVE_0, default=30.0, show_default=True, help="burst: from one burst to the next.")
@click.option("--burst-s", type=ABOVE_0, default=5.0, show_default=True, help="burst: how long one lasts.")
@click.option("--times", type=click.Path(path_type=Path), help="replay: a file with one time in seconds a line.")
@click.option(
    "--speed", type=ABOVE_0, default=1.0, show_default=True, help="replay: seconds of the file in one second."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Other random times of the same kind.")
@click.option(
    "--body", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="File that is posted; without it: GET."
)
@click.option("--content-type", help="Of the body.  [default: JSON if its name ends in .json, else octets]")
@click.option("--target-ms", type=ABOVE_0, default=200.0, show_default=True, help="Later answers are violations.")
@click.option("--timeout-s", type=ABOVE_0, default=30.0, show_default=True, help="Still later ones are errors.")
@click.option("--samples", type=click.Path(path_type=Path), help="Write each query to this CSV file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def load(url: str, as_json: bool, samples: Path | None, target_ms: float, **options: Any) -> None:
    """Send queries to URL (http://HOST:PORT/PATH) at planned times, whatever the answers do; latency counts from then."""
    try:
        body = options["body"].read_bytes() if options["body"] else None
        kind = options["content_type"] or content_type_of(str(options["body"]))
        queries = run_load(url, planned_times(options), body=body, content_type=kind, timeout_s=options["timeout_s"])
        if samples is not None:
            write_samples(samples, queries)
    except (SodaError, OSError) as error:
        raise click.ClickException(str(error)) from error
    report = load_report(queries, target_ms)
    click.echo(json.dumps(report.to_dict(), indent=2) if as_json else as_text(report))


def planned_times(options: dict[str, Any]) -> Iterable[float]:
    """When queries are due, as the options say.

    Raises:
        SodaError: the options do not go together, or the file cannot be read.
    """
    pattern, rate, seconds = options["pattern"], options["rate"], options["seconds"]
    high = options["high_rate"] or 5.0 * rate
    if pattern == "replay":
        if options["times"] is None:
            raise SodaError("--pattern replay needs --times FILE, with one time in seconds a line")
        return read_times(options["times"], options["speed"])
    if pattern == "constant":
        return even_times(rate, seconds)
    if pattern == "poisson":
        return random_times(constant_rate(rate), rate, seconds, options["seed"])
    if pattern == "diurnal":
        shape = diurnal_rate(rate, high, options["day_s"] or seconds)
    elif options["burst_s"] >= options["every_s"]:
        raise SodaError(f"--burst-s is {options['burst_s']:g}; it must be less than --every-s, {options['every_s']:g}")
    else:
        shape = burst_rate(rate, high, options["every_s"], options["burst_s"])
    return random_times(shape, max(rate, high), seconds, options["seed"])


def write_samples(path: Path, queries: Iterable[SentQuery]) -> None:
    """One line a query: when it was due, how much later it was sent, its latency in seconds, its error."""
    with path.open("w") as file:
        file.write("planned_s,late_s,latency_s,error\n")
        for query in queries:
            file.write(f"{query.planned_s:.6f},{query.late_s:.6f},{query.latency_s:.6f},{query.error}\n")


def as_text(report: LoadReport) -> str:
    """The figures for people."""
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(report.errors_by_kind.items()))
    return "\n".join(
        [
            f"queries     {report.queries} ({report.planned_qps:.1f}/s planned, {report.duration_s:.1f} s)",
            f"latency     p50 {report.p50_ms:.1f}, p95 {report.p95_ms:.1f}, p99 {report.p99_ms:.1f}, "
            f"most {report.max_ms:.1f} ms, from when a query was due",
            f"target      {report.target_ms:g} ms: {report.violations} later, "
            f"{100 * report.within_target_ratio:.2f} % within",
            f"errors      {report.errors}{f' ({kinds})' if kinds else ''}",
            f"sent late   p99 {report.p99_late_ms:.1f} ms (the generator's own delay, contained in the latency)",
        ]
    )


if __name__ == "__main__":
    load()
