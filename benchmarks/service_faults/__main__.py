"""Faults of a service on a real Slurm: ``python -m benchmarks.service_faults [SCENARIO...]``.

A cluster in containers with sodad, a service of two arrays and its router with HAProxy, and from this machine an open load:
queries at the times of a Poisson process, whatever the answers do; latency counts from when one was due. Instances are
``slurm_soda_serve.py`` with a server that takes a stated time for a batch. Nobody says in sodad's place who starts and
leaves. Ends with status 1 if something that must hold does not.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import click

from benchmarks.faults import show
from benchmarks.service_faults.findings import findings_of
from benchmarks.service_faults.scenarios import SCENARIOS, ScenarioPlan
from benchmarks.service_faults.service_cluster import ServiceCluster, service_cluster
from slurm_soda.slurm_ext.errors import SodaError


def _say(line: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {line}", err=True)


def _help_of_scenarios() -> str:
    lines = (f"  {name:<10} {one.what}; {one.usual_times} times" for name, one in SCENARIOS.items())
    return "\b\nScenarios, all by default:\n" + "\n".join(lines)


@click.command(epilog=_help_of_scenarios())
@click.argument("names", nargs=-1, metavar="[SCENARIO]...", type=click.Choice(list(SCENARIOS)))
@click.option("--times", type=click.IntRange(1, 1000), help="How often, in place of the usual numbers.")
@click.option("--seed", default=1, show_default=True, help="Of the queries' times, of victims and of moments.")
@click.option("--target-ms", default=1000.0, show_default=True, type=click.FloatRange(150.0), help="Of the service.")
@click.option("--name", default="service-faults", show_default=True, help="Name of the cluster.")
@click.option("--keep", is_flag=True, help="Leave the cluster up; the next run with its name takes it.")
@click.option("--json", "as_json", is_flag=True, help="Print every figure as JSON, without the table.")
def main(
    names: tuple[str, ...], *, times: int | None, seed: int, target_ms: float, name: str, keep: bool, as_json: bool
) -> None:
    """Hand-overs, kills, bursts and a dead sodad under an open load, on a real Slurm in containers.

    All of it takes half an hour on a machine that does nothing else, each scenario some minutes. What must hold is in the
    table, with what was found.

    \b
    Examples:
      python -m benchmarks.service_faults
      python -m benchmarks.service_faults load --times 4
      python -m benchmarks.service_faults nodes burst --json > faults.json
    """
    began_s, load_before = time.monotonic(), os.getloadavg()
    found: dict[str, dict[str, Any]] = {}
    try:
        with service_cluster(name, target_ms, _say, keep=keep) as site:
            for one in dict.fromkeys(names or SCENARIOS):
                plan = ScenarioPlan(times or SCENARIOS[one].usual_times, seed, target_ms)
                found[one] = _run(one, site, plan)
                _say(f"{one}: {json.dumps(found[one])}")
    except SodaError as error:
        raise click.ClickException(str(error)) from error
    findings = [finding for one, figures in found.items() for finding in findings_of(one, figures, target_ms)]
    if as_json:
        machine = {"cores": os.cpu_count(), "load_average_before": load_before, "took_s": time.monotonic() - began_s}
        click.echo(json.dumps({"seed": seed, "target_ms": target_ms, **machine, "scenarios": found}))
    else:
        show(findings)
        averages = ", ".join(f"{one} {figures['load_average'][1]:.1f}" for one, figures in found.items())
        click.echo(f"load average of five minutes on {os.cpu_count()} cores, at the end of each: {averages}")
    raise SystemExit(0 if all(finding.holds for finding in findings) else 1)


def _run(name: str, site: ServiceCluster, plan: ScenarioPlan) -> dict[str, Any]:
    """The figures of one scenario; of one that failed, why."""
    try:
        found = SCENARIOS[name].run(site, plan)
    except SodaError as error:
        found = {"failed": str(error)}
    return {**found, "load_average": os.getloadavg()}


if __name__ == "__main__":
    main()
