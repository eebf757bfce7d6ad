"""What queries bear: ``python -m benchmarks.handovers [handovers|kill|burst]``.

``handovers``: a new instance, and once it is ready the old one drains and ends, a hundred times under load. ``kill``: one of
two instances is killed under load with its server, as when its node dies. ``burst``: ten times the load for one second.
Router, HAProxy and instances are the real ones, as processes of this machine; sodad's part, who drains, is the benchmark's.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from benchmarks.service_site import TARGET_MS, RunningInstance, ServiceSite, SteadyLoad, service_site
from slurm_soda.services.load.load_report import SentQuery, load_report
from slurm_soda.services.percentile import percentile

WINDOW_S = 5.0
"""Queries of so long make a p99 while a service recovers."""


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
    return {"handovers": times, "handover_s": percentile(took_s, 0.5), **_figures(load.end())}


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
        "in_flight_at_kills": [_in_flight(queries, at_s) for at_s in killed_s],
        "lost_after_kills": [_lost(queries, at_s) for at_s in killed_s],
        "within_target_after_s": recovered_after_s(queries, killed_s),
        **_figures(queries),
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
        "all_answered_after_s": [_answered_after_s(queries, at_s) for at_s in began_s],
        "within_target_after_s": recovered_after_s(queries, began_s),
        **_figures(queries),
    }


def recovered_after_s(queries: Sequence[SentQuery], events_s: Sequence[float]) -> list[float]:
    """After each event, the time from which p99 was within the target until the next one; a failure counts as late.

    In whole windows of :data:`WINDOW_S`: 0 if p99 of the first one is within the target already. A query that was in flight
    at an event is one of those after it.
    """
    found = []
    for at_s, next_s in zip(events_s, [*events_s[1:], math.inf], strict=True):
        windows: dict[int, list[float]] = {}
        for query in queries:
            if at_s <= query.planned_s + query.latency_s < next_s:
                latency_ms = math.inf if query.error else 1000 * query.latency_s
                windows.setdefault(int(max(0.0, query.planned_s - at_s) / WINDOW_S), []).append(latency_ms)
        late = [at for at, here in windows.items() if percentile(here, 0.99) > TARGET_MS]
        found.append((max(late) + 1) * WINDOW_S if late else 0.0)
    return found


def _in_flight(queries: Sequence[SentQuery], at_s: float) -> int:
    return sum(query.planned_s <= at_s < query.planned_s + query.latency_s for query in queries)


def _lost(queries: Sequence[SentQuery], at_s: float) -> int:
    return sum(bool(query.error) and at_s - 1 <= query.planned_s < at_s + 9 for query in queries)


def _answered_after_s(queries: Sequence[SentQuery], at_s: float) -> float:
    sent = [query.planned_s + query.latency_s for query in queries if at_s <= query.planned_s < at_s + 1.2]
    return round(max(sent, default=at_s) - at_s, 2)


def _figures(queries: Sequence[SentQuery]) -> dict[str, Any]:
    report = load_report(queries, TARGET_MS).to_dict()
    kept = ("queries", "errors", "violations", "p50_ms", "p95_ms", "p99_ms", "max_ms", "p99_late_ms", "errors_by_kind")
    return {key: round(report[key], 1) if isinstance(report[key], float) else report[key] for key in kept}


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
