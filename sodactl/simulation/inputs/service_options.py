"""Options of ``simulate``, ``compare`` and ``whatif``: inference services that run beside the jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from slurm_soda.simulator.services.service_set import BY_SYSTEM, SERVING_MODES, ServingRules
from slurm_soda.simulator.services.simulate_serving import without_inference
from slurm_soda.simulator.services.site_files import SODA_TWELVE, load_services
from slurm_soda.simulator.workload import Workload

OPTIONS: Mapping[str, Any] = {
    "services": click.option(
        "--services", metavar=f"FILE|{SODA_TWELVE}",
        help="Inference services that run beside the jobs: CSV of their load, minute,service,qps, beside which each one's "
        f"NAME.toml and NAME/profile.json are; {SODA_TWELVE}: those of SODA's month."),
    "serve": click.option(
        "--serve", type=click.Choice(SERVING_MODES),
        help="With --services. placed: by load, on cores or GPUs, as slurm-soda does; peak: on GPUs for the peak, always; "
        "packed: up to four services on one GPU.  [default: as the --system does; else placed, and peak under multifactor]"),
}  # fmt: skip


def add_services_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``services`` alone, where the roles of its runs say how they are served."""
    described: Callable[..., None] = OPTIONS["services"](command)
    return described


def build_serving_rules(services: str | None, serve: str | None, seed: int | None) -> ServingRules | None:
    """How services run; None: there are none.

    Raises:
        click.UsageError: ``--serve`` without services.
        SimulatorError: a file cannot be used.
    """
    if services is None:
        if serve is not None:
            raise click.UsageError("--serve needs --services: without them nothing is served")
        return None
    return ServingRules(load_services(services, 1 if seed is None else seed), serve or BY_SYSTEM)


def replace_inference(workload: Workload, rules: ServingRules | None) -> tuple[Workload, tuple[str, ...]]:
    """The jobs that run beside services, and a note of those that these take the place of."""
    if rules is None:
        return workload, ()
    jobs, left_out = without_inference(workload)
    return jobs, tuple(_note(left_out))


def _note(left_out: int) -> Iterator[str]:
    if left_out:
        yield f"{left_out:,} jobs of the category inference are left out: --services are in their place"
