"""What queries bear: ``python -m benchmarks.handovers [handovers|kill|burst]``.

``handovers``: a new instance, and once it is ready the old one drains and ends, a hundred times under load. ``kill``: one of
two instances is killed under load with its server, as when its node dies. ``burst``: ten times the load for one second.
Router, HAProxy and instances are the real ones, as processes of this machine; sodad's part, who drains, is the benchmark's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import click

from benchmarks.service_queries import answered_after_s, in_flight, lost_between, query_figures, recovered_after_s
from benchmarks.service_site import TARGET_MS, RunningInstance, ServiceSite, SteadyLoad, service_site
from slurm_soda.services.percentile import percentile


def hand_over_often(site: ServiceSite, times: int, qps: float) -> dict[str, Any]:
    """A hundred hand-overs; the queries of all."""
    now = site.start_instance(1)
    site.wait_ready(now)
    load = SteadyLoad(site.url, qps)
    took_s = []
    for turn in range(times):
        began_s = time.monotonic()
        fresh = site.start_instance(2 + turn)
        site.wait_ready(fresh)
        site.hand_over(now, fresh)
        now = fresh
        took_s.append(time.monotonic() - began_s)
    time.sleep(3.0)
    return {"handovers": times, "handover_s": percentile(took_s, 0.5), **query_figures(load.end(), TARGET_MS)}


def kill_one(site: ServiceSite, times: int, qps: float) -> dict[str, Any]:
    """One of two instances dies, so many times; a third one takes its place before the next."""
    alive: list[RunningInstance] = [site.start_instance(1), site.start_instance(2)]
    for instance in alive:
        site.wait_ready(instance)
    load = SteadyLoad(site.url, qps)
    time.sleep(5.0)
    killed_s = []
    for turn in range(times):
        alive[0].kill()
        killed_s.append(load.now_s())
        time.sleep(10.0)
        alive = [alive[1], site.start_instance(3 + turn)]
        site.wait_ready(alive[1])
        time.sleep(2.0)
    queries = load.end()
    return {
        "kills": times,
        "in_flight_at_kills": [in_flight(queries, at_s) for at_s in killed_s],
        "lost_after_kills": [lost_between(queries, at_s, at_s + 10.0) for at_s in killed_s],
        "within_target_after_s": recovered_after_s(queries, killed_s, TARGET_MS),
        **query_figures(queries, TARGET_MS),
    }


def burst(site: ServiceSite, times: int, qps: float) -> dict[str, Any]:
    """Ten times the load for one second, so many times, on one instance."""
    site.wait_ready(site.start_instance(1))
    load = SteadyLoad(site.url, qps)
    time.sleep(5.0)
    began_s = []
    for _ in range(times):
        began_s.append(load.now_s())
        load.change(10 * qps)
        time.sleep(1.0)
        load.change(qps)
        time.sleep(15.0)
    queries = load.end()
    return {
        "bursts": times,
        "all_answered_after_s": [answered_after_s(queries, at_s, 1.2) for at_s in began_s],
        "within_target_after_s": recovered_after_s(queries, began_s, TARGET_MS),
        **query_figures(queries, TARGET_MS),
    }


SCENARIOS: Mapping[str, Any] = {"handovers": hand_over_often, "kill": kill_one, "burst": burst}
USUAL = {"handovers": 100, "kill": 5, "burst": 3}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(SCENARIOS)))
@click.option("--times", type=click.IntRange(1, 10_000), help="How often.  [default: 100, 5, 3]")
@click.option("--qps", default=40.0, show_default=True, help="Load.")
def main(names: tuple[str, ...], times: int | None, qps: float) -> None:
    """Run scenarios and print their figures as JSON, a line each."""
    for name in names or tuple(SCENARIOS):
        with service_site() as site:
            found = SCENARIOS[name](site, times or USUAL[name], qps)
        click.echo(json.dumps({"scenario": name, "qps": qps, "target_ms": TARGET_MS, **found}))


if __name__ == "__main__":
    main()
