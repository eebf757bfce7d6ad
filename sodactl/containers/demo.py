"""``sodactl demo``: one job mix on a real Slurm cluster, under stock Slurm and under slurm-soda."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from slurm_soda.demo.cpu_burst.burst_settings import BurstSettings
from slurm_soda.demo.job_mix.demo_settings import DemoSettings
from slurm_soda.demo.job_mix.mix_demo import run_demo
from slurm_soda.demo.job_mix.report_page import ROWS, TITLES, format_change, format_value, headline_text, price
from slurm_soda.demo.report_files import PAGE, REPORT
from slurm_soda.demo.services_day.day_settings import DaySettings
from slurm_soda.demo.sharing_mix.sharing_runs import SharingDemoSettings
from slurm_soda.policies.policy import DEFAULT_POLICY
from slurm_soda.sodactl import output
from slurm_soda.sodactl.containers.demo_progress import show_demo_progress
from slurm_soda.sodactl.containers.pools_demo import run_pools_demo
from slurm_soda.sodactl.containers.services_demo import show_services_demo
from slurm_soda.sodactl.containers.sharing_demo import show_sharing_demo
from slurm_soda.sodactl.output import Column
from slurm_soda.sodactl.simulation.inputs.parameter_types import POLICY


@click.command()
@click.option("--seed", default=1, show_default=True, help="Another seed is another mix of jobs.")
@click.option("--jobs", default=30, show_default=True, type=click.IntRange(4, 500), help="Jobs in the mix.")
@click.option(
    "--time-scale", default=150.0, show_default=True, type=click.FloatRange(1.0, 10000.0),
    help="How many times faster time passes than on the paper's testbed; smaller is slower and smoother.",
)  # fmt: skip
@click.option("--policy", default=DEFAULT_POLICY, show_default=True, type=POLICY, metavar="NAME")
@click.option("--out", default="build/demo", show_default=True, type=click.Path(path_type=Path, file_okay=False))
@click.option("--keep", is_flag=True, help="Keep the cluster running, for inspection.")
@click.option("--name", default="demo", show_default=True, help="Name of the cluster, so that two demos can run.")
@click.option("--pools", is_flag=True, help="Instead: a burst of CPU jobs, without and with pools.")
@click.option("--sharing", is_flag=True, help="Instead: jobs that share GPUs, against Tiresias and stock Slurm.")
@click.option("--services", is_flag=True, help="Instead: a day of an inference service, on a GPU all day and placed.")
@click.option(
    "--minutes",
    default=10.0,
    show_default=True,
    type=click.FloatRange(2.0, 240.0),
    help="With --services: how long a day is.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def demo(
    context: click.Context,
    *,
    seed: int,
    jobs: int,
    time_scale: float,
    policy: str,
    out: Path,
    keep: bool,
    name: str,
    pools: bool,
    sharing: bool,
    services: bool,
    minutes: float,
    as_json: bool,
) -> int:
    """The same jobs under stock Slurm and under slurm-soda.

    Brings a Slurm cluster of 2 nodes with 4 (emulated) GPUs each up in containers, submits one mix of jobs through sbatch
    as three users with slurm-soda deciding, waits until all have completed, and does the same again without. Takes five
    minutes, the first time longer for the images. Writes report.json, index.html, two pictures, and a dump of
    accounting from each run, which `sodactl whatif` reads.

    The mix is a scaled-down testbed workload of Tiresias (NSDI 2019): half of the jobs ask for one GPU, the others for up to
    8, a fifth are long, and they arrive faster than the cluster can serve them. Times in the report are Slurm's own
    accounting.

    With --pools it is a burst of CPU jobs amid training jobs (SODA, 2023): one partition against pools that lend each
    other idle cores; exit status 1 if a promise of that page does not hold. With --sharing it is a mix of light models, most
    of which cannot save their state: stock Slurm, Tiresias, and jobs that share GPUs; it takes 15 minutes. With --services
    it is a day of one inference service amid training jobs: on a GPU all day, and placed on a GPU or a core by its load;
    it takes three times --minutes, and exit status 1 tells that a figure is not as wanted. Ctrl-C and kill take the cluster
    down.

    \b
    Examples:
      sodactl demo                            the shipped mix
      sodactl demo --seed 7 --out build/seven another one
      sodactl demo --keep                     then: sodactl cluster exec --name demo root -- squeue
      sodactl demo --pools                   CPU jobs storm the cluster
      sodactl demo --sharing                 two jobs on one GPU
      sodactl demo --services                an inference service leaves its GPU at night
    """  # noqa: D301 - click reads the control character
    if services:
        _refuse_with("--services", ("jobs", "time_scale", "policy", "sharing", "pools"), context)
        return show_services_demo(DaySettings(seed, minutes, out, keep, name), as_json=as_json)
    if pools:
        _refuse_with("--pools", ("jobs", "time_scale", "policy", "sharing"), context)
        return run_pools_demo(BurstSettings(seed=seed, out=out, keep=keep, cluster=name), as_json=as_json)
    if sharing:
        _refuse_with("--sharing", ("time_scale", "policy"), context)
        usual = context.get_parameter_source("jobs") is ParameterSource.DEFAULT
        wanted = SharingDemoSettings(seed=seed, out=out, keep=keep, cluster=name)
        return show_sharing_demo(wanted if usual else replace(wanted, jobs=jobs), as_json=as_json)
    settings = DemoSettings(seed, jobs, time_scale, policy, out, keep, name)
    with show_demo_progress(jobs) as watch:
        report = run_demo(settings, watch)
    if as_json:
        output.print_json(report)
        return 0
    _draw(report["runs"])
    output.print_line()
    output.print_line(headline_text(report["runs"]))
    output.print_line(price(report["runs"]))
    output.print_line(f"page: {out / PAGE}   report: {out / REPORT}")
    output.print_line(f"next: {report['whatif_command']}")
    return 0


def _refuse_with(chosen: str, others: tuple[str, ...], context: click.Context) -> None:
    given = [name for name in others if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if given:
        option = given[0].replace("_", "-")
        raise click.UsageError(f"--{option} cannot be combined with {chosen}; leave it out")


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
        rows.append(
            [name, format_value(stock, unit), format_value(soda, unit), format_change(stock, soda) if unit else ""]
        )
    output.print_table(columns, rows)
