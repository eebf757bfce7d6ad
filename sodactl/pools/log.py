"""``sodactl pools log``: what each pool did lately, from sodad's store."""

from __future__ import annotations

from dataclasses import asdict

import click

from slurm_soda.daemon.store.jobs.pool_runs import PoolLog, pool_logs
from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Column
from slurm_soda.sodactl.simulation.inputs.parameter_types import FiniteRange
from slurm_soda.sodactl.site_access import SiteAccess, on_site


@click.command()
@click.option("--hours", default=24.0, show_default=True, type=FiniteRange(min=0, min_open=True), help="How far back.")
@on_site
def log(site: SiteAccess, *, as_json: bool, hours: float) -> None:
    """Queue times, borrowed time and aborts of each pool.

    Core and GPU time of runs counts as far as it lies within the hours. An abort is a run that Slurm ended because it had
    borrowed what a job of another pool needed.

    \b
    Examples:
      sodactl pools log
      sodactl pools log --hours 168 --json | jq '.pools[] | {kind, aborts}'
    """  # noqa: D301 - click reads the control character
    now_s = site.now_s()
    with site.store() as store, store.read() as session:
        found = pool_logs(session, since_s=now_s - hours * 3600, now_s=now_s)
    if as_json:
        output.print_json({"now_s": now_s, "hours": hours, "pools": [asdict(entry) for entry in found]})
    elif found:
        _draw(found)
    else:
        output.print_line(f"no job ran in a pool within {hours:g} hours; `sodactl pools status` shows what is in force")


def _draw(found: list[PoolLog]) -> None:
    columns = [
        Column("partition"),
        Column("pool"),
        Column("starts", right=True),
        Column("running", right=True),
        Column("queued, mean", right=True),
        Column("p95", right=True),
        Column("core h", right=True),
        Column("borrowed", right=True),
        Column("GPU h", right=True),
        Column("borrowed", right=True),
        Column("aborts", right=True),
        Column("most of a job", right=True),
    ]
    output.print_table(
        columns,
        [
            (
                entry.base,
                entry.kind,
                str(entry.runs),
                str(entry.running),
                _seconds(entry.queue_mean_s),
                _seconds(entry.queue_p95_s),
                _hours(entry.core_s),
                _hours(entry.borrowed_core_s),
                _hours(entry.gpu_s),
                _hours(entry.borrowed_gpu_s),
                str(entry.aborts),
                str(entry.most_aborts),
            )
            for entry in found
        ],
    )


def _seconds(value_s: float | None) -> str:
    return "" if value_s is None else f"{value_s:.0f} s"


def _hours(value_s: float) -> str:
    return f"{value_s / 3600:.1f}"
