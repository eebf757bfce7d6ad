"""Options of ``simulate``, ``compare`` and ``whatif``: what the site's Slurm knows of users, QOS and partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from slurm_soda.policies.bands.bands import BANDS
from slurm_soda.simulator.site.description import Qos, SiteDescription, format_site, load_site


def _print_site(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(format_site(), nl=False)
        context.exit()


OPTIONS: Mapping[str, Any] = {
    "site": click.option(
        "--site", type=click.Path(path_type=Path), metavar="FILE",
        help="TOML file: users' shares, QOS with limits, partition tiers and the weights of Slurm's priority. --print-site "
        "prints one with every key at its default.  [default: equal shares, one QOS, no limits]"),
    "bands": click.option(
        "--bands", type=click.Choice(BANDS),
        help="Classes of Slurm's priority that every policy keeps to: a job delays none of a better class. qos: partition "
        "tier and QOS; fairshare: these and levels of fair share and age.  [default: as --site says; else off]"),
    "max_gpus_per_user": click.option(
        "--max-gpus-per-user", type=click.IntRange(min=1), metavar="N",
        help="A user's running jobs of one QOS hold at most so many GPUs; a job beyond that waits and blocks nobody "
        "(MaxTRESPerUser=gres/gpu).  [default: as --site says; else no limit]"),
}  # fmt: skip

PRINT_SITE = click.option(
    "--print-site", is_flag=True, is_eager=True, expose_value=False, callback=_print_site,
    help="Print a file for --site with every key, its default and its meaning, and exit.")  # fmt: skip


def add_slurm_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``site``, what prints one, and ``max_gpus_per_user``, but no bands."""
    described: Callable[..., None] = OPTIONS["site"](PRINT_SITE(OPTIONS["max_gpus_per_user"](command)))
    return described


def build_site(path: Path | None, bands: str | None, max_gpus_per_user: int | None) -> SiteDescription:
    """The site as it is described; the other options take the place of what the file says.

    Raises:
        SimulatorError: the file cannot be used.
    """
    site = SiteDescription() if path is None else load_site(path)
    if bands is not None:
        site = replace(site, bands=bands)
    if max_gpus_per_user is not None:
        limit = Qos(max_gpus_per_user=float(max_gpus_per_user))
        limited = {name: replace(limit, priority=one.priority) for name, one in site.qos.items()}
        site = replace(site, qos=limited, other_qos=limit)
    return site
