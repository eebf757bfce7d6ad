"""What placing inference services costs, and how well their load is forecast: ``python -m benchmarks.services``.

- A decision over 500 services on 2 000 GPUs and 4 000 other jobs, and a loop of additions before and after it, by which
  machines can be compared.
- The forecast on generated days: each held-back day is forecast from what was known at its midnight and, minute by minute,
  from what was seen since. `last` is what is known without any forecast: the highest load of the last minutes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from time import process_time

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from slurm_soda.policies.engine.allocations import find_allocation_entries
from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.pipeline.stages import empty_plan
from slurm_soda.policies.services.forecast import (
    DAY,
    METHODS,
    FloatColumn,
    LoadHistory,
    LoadModel,
    MethodError,
    forecast_load,
    learn_load,
)
from slurm_soda.policies.services.place_services import PlaceServices
from slurm_soda.policies.services.service import Device, DeviceProfile, Service, ServiceTable
from slurm_soda.policies.services.settings import ServiceSettings
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, NodeTable

NOW_S = 1e9
HORIZON = 10
"""Minutes."""
HELD_BACK, KNOWN_DAYS, EVERY = 7, (0, 1, 3, 7, 14, 28), 5
FIRST_JOB = 1_000_000
"""Instances have ids from here on."""


def profile(device: Device, qps: float, cores: int, gpu_type: str = "") -> DeviceProfile:
    return DeviceProfile(device, 10, 10_000.0 / qps, 0.05, cores, gpu_type, 5.0 if device is Device.CPU else math.nan)


def busy_site(services: int, nodes: int, jobs: int, seed: int) -> ClusterSnapshot:
    """Services of all sizes, of which a part is overloaded, on nodes of 8 GPUs that other jobs fill; more of these wait."""
    rng = np.random.default_rng(seed)
    table = _services(rng, services)
    free = [[8, 64] for _ in range(nodes)]
    rows = [_running(FIRST_JOB + at, device, rng, free) for at, device in enumerate(table.device.tolist())]
    for at in range(1, jobs + 1):
        gpus, submit_s = int(rng.choice([0, 1, 2, 4, 8])), float(rng.uniform(0, NOW_S))
        row = {"job_id": at, "gpus": gpus, "cpus": max(gpus, 1) * 4, "submit_s": submit_s, "preemptible": at % 2 == 0}
        node = int(rng.integers(nodes))
        if at <= jobs // 2 and free[node][0] >= gpus and free[node][1] >= row["cpus"]:
            row |= {"state": JobState.RUNNING, "start_s": NOW_S - 1e4, "alloc": _take(free, node, gpus, row["cpus"])}
        rows.append(row)
    types = NodeTable.uniform(nodes, 8, cpus=64, memory_mib=10**6)
    types = replace(types, gpu_type=np.arange(nodes) % 2, gpu_types=("a100", "h100"))
    job_table = build_job_table([{"partition": "main", **row} for row in rows])
    _, entry = find_allocation_entries(job_table, np.arange(len(job_table)))
    gpus_free, cpus_free = types.gpus.copy(), types.cpus.copy()
    np.subtract.at(gpus_free, job_table.alloc_node[entry], job_table.alloc_gpus[entry])
    np.subtract.at(cpus_free, job_table.alloc_node[entry], job_table.alloc_cpus[entry])
    table = replace(table, free_bandwidth_gb_s=rng.uniform(0, 60, nodes))
    return ClusterSnapshot(
        NOW_S, job_table, replace(types, gpus_free=gpus_free, cpus_free=cpus_free), services=table
    )  # fmt: skip


def _services(rng: np.random.Generator, count: int) -> ServiceTable:
    known = tuple(
        Service(
            f"user{at % 50}", f"service{at}", most=16,
            cpu=profile(Device.CPU, float(rng.uniform(60, 90)), 4),
            gpu=tuple(profile(Device.GPU, float(rng.uniform(300, 900)), 2, name) for name in ("a100", "h100")),
        )
        for at in range(count)
    )  # fmt: skip
    of = np.repeat(np.arange(count), rng.integers(0, 5, count))
    device = rng.integers(0, 2, len(of))
    return ServiceTable(
        services=known,
        load_qps=rng.lognormal(4.5, 1.5, count),
        forecast_qps=rng.lognormal(4.5, 1.5, count),
        low_since_s=np.where(rng.random(count) < 0.3, NOW_S - 1000.0, np.nan),
        waiting=np.full((count, 2), 16, dtype=np.int64),
        job_id=FIRST_JOB + np.arange(len(of)),
        service=of,
        device=device,
        state=rng.choice([0, 1, 1, 1, 1, 1, 2, 3], len(of)),
        since_s=np.full(len(of), NOW_S - 100.0),
        settings=ServiceSettings(first_everywhere=True),
    )


def _running(job_id: int, device: int, rng: np.random.Generator, free: list[list[int]]) -> dict[str, object]:
    gpus, cpus = (1, 2) if device == Device.GPU else (0, 4)
    fitting = [at for at in rng.integers(0, len(free), 50).tolist() if free[at][0] >= gpus and free[at][1] >= cpus]
    return {
        "job_id": job_id, "state": JobState.RUNNING, "gpus": gpus, "cpus": cpus, "start_s": NOW_S - 1e3,
        "alloc": _take(free, fitting[0], gpus, cpus),
    }  # fmt: skip


def _take(free: list[list[int]], node: int, gpus: int, cpus: int) -> list[tuple[int, int, int]]:
    free[node][0] -= gpus
    free[node][1] -= cpus
    return [(node, gpus, cpus)]


def reference_s() -> float:
    """Seconds of three million additions."""
    begin_s, total = process_time(), 0
    for number in range(3_000_000):
        total += number
    assert total
    return process_time() - begin_s


def steady(rng: np.random.Generator, days: int) -> FloatColumn:
    """Equal days of one wave, and noise of 5 %."""
    at = np.arange(days * DAY)
    return (110 - 90 * np.cos(2 * np.pi * at / DAY)) * rng.lognormal(0, 0.05, len(at))


def weekly(rng: np.random.Generator, days: int) -> FloatColumn:
    """Two peaks on weekdays, a fifth of it on weekends, days that differ by 10 %, and noise of 5 %."""
    at = np.arange(days * DAY)
    hour = at % DAY / 60
    day = 15 + 120 * np.exp(-((hour - 10.5) ** 2) / 6) + 150 * np.exp(-((hour - 15.5) ** 2) / 8)
    weekend = np.where(at // DAY % 7 >= 5, 0.2, 1.0)
    return day * weekend * np.repeat(rng.lognormal(0, 0.1, days), DAY) * rng.lognormal(0, 0.05, len(at))


def bursty(rng: np.random.Generator, days: int) -> FloatColumn:
    """The wave, and eight bursts a day of four times the load, for 20 minutes each, at any time."""
    load = steady(rng, days)
    for begin in rng.integers(0, len(load), 8 * days).tolist():
        load[begin : begin + 20] *= 4
    return load


def growing(rng: np.random.Generator, days: int) -> FloatColumn:
    """The week, 5 % higher each day."""
    return weekly(rng, days) * 1.05 ** (np.arange(days * DAY) / DAY)


def with_gaps(rng: np.random.Generator, days: int) -> FloatColumn:
    """The week, with gaps of up to six hours in half of the days and one minute of ten lost."""
    load = weekly(rng, days)
    for begin in rng.integers(0, len(load), days // 2).tolist():
        load[begin : begin + int(rng.integers(10, 360))] = np.nan
    load[rng.random(len(load)) < 0.1] = np.nan
    return load


def timetable(rng: np.random.Generator, days: int) -> FloatColumn:
    """The week at a fifth, and four times as much at once from 8:00 to 18:00 and for the first quarter of each hour."""
    load, at = weekly(rng, days) * 0.2, np.arange(days * DAY) % DAY
    times = np.where((at >= 8 * 60) & (at < 18 * 60), 4.0, 1.0) * np.where(at % 60 < 15, 4.0, 1.0)
    return (load + 10.0) * times


DAYS: dict[str, Callable[[np.random.Generator, int], FloatColumn]] = {
    "steady": steady, "weekly": weekly, "bursty": bursty, "growing": growing, "gaps": with_gaps,
    "timetable": timetable,
}  # fmt: skip


@dataclass(frozen=True)
class ForecastError:
    """How the held-back days of one kind were forecast."""

    kind: str
    known_days: int
    error: float
    """Mean absolute error of the highest load within the horizon, over its mean."""
    last_error: float
    """The same of the highest load of the last minutes."""
    own_error: float
    """What the forecast said of itself, on average."""
    above_most: float
    """Part of the minutes after which the load exceeded what was told as the most."""
    low: float
    """Part of them after which it exceeded 1 / 0.8 of what was expected: more than instances have in hand."""
    low_last: float
    """The same of the highest load of the last minutes."""


def forecast_error(kind: str, known_days: int, seed: int) -> ForecastError:
    """The next held-back days, each learnt from once it has ended; a first day, with nothing known before, hour by hour."""
    load = DAYS[kind](np.random.default_rng(seed), known_days + HELD_BACK)
    last_only = LoadModel(HORIZON, (MethodError(METHODS[0], math.inf),), 0.0)
    rows = []
    for day in range(known_days, known_days + HELD_BACK):
        model = learn_load(LoadHistory(0, load[: day * DAY]), HORIZON)
        for at in range(day * DAY + EVERY, min((day + 1) * DAY, len(load) - HORIZON), EVERY):
            if not day and at % 60 == 0:
                model = learn_load(LoadHistory(0, load[:at]), HORIZON)
            window = load[at : at + HORIZON]
            if not np.isnan(window).all():
                known = LoadHistory(0, load[:at])
                told, last = forecast_load(known, model, at), forecast_load(known, last_only, at)
                rows.append((np.nanmax(window), told.expected_qps, told.most_qps, told.error_ratio, last.expected_qps))
        if not known_days:
            break  # of the first day alone
    found, told_, most, own, last_ = np.array([row for row in rows if not np.isnan(row).any()]).T
    scale = found.mean()
    return ForecastError(
        kind,
        known_days,
        error=float(np.abs(told_ - found).mean() / scale),
        last_error=float(np.abs(last_ - found).mean() / scale),
        own_error=float(own[np.isfinite(own)].mean()) if np.isfinite(own).any() else math.nan,
        above_most=float((found > most).mean()),
        low=float((found > told_ / 0.8).mean()),
        low_last=float((found > last_ / 0.8).mean()),
    )


@click.command()
@click.option("--services", default=500, show_default=True)
@click.option("--nodes", default=250, show_default=True, help="Of 8 GPUs each.")
@click.option("--jobs", default=4000, show_default=True, help="Other jobs, half of which run as far as they fit.")
@click.option("--seed", default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(services: int, nodes: int, jobs: int, seed: int, as_json: bool) -> None:
    """How long placing services takes, and how well their load is forecast."""
    site = busy_site(services, nodes, jobs, seed)
    before_s, took_s = reference_s(), []
    for _ in range(9):
        begin_s = process_time()
        plan = PlaceServices().apply(site, empty_plan())
        took_s.append(process_time() - begin_s)
    loop_s = (before_s + reference_s()) / 2
    history = LoadHistory(0, weekly(np.random.default_rng(seed), 28))
    begin_s = process_time()
    model = learn_load(history, HORIZON)
    learn_s, begin_s = process_time() - begin_s, process_time()
    for _ in range(1000):
        forecast_load(history, model, history.end)
    forecast_s = (process_time() - begin_s) / 1000
    errors = [forecast_error(kind, known, seed) for kind in DAYS for known in KNOWN_DAYS]
    figures = {
        "services": services, "gpus": 8 * nodes, "instances": len(site.services.job_id), "actions": len(plan.actions),
        "preempts": len(plan.preempts), "median_s": float(np.median(took_s)), "slowest_s": max(took_s),
        "reference_loop_s": loop_s, "learn_28_days_s": learn_s, "forecast_s": forecast_s,
    }  # fmt: skip
    if as_json:
        click.echo(json.dumps({**figures, "forecast": [asdict(one) for one in errors]}))
        return
    click.echo(
        f"{services} services with {figures['instances']} instances on {8 * nodes} GPUs: {figures['median_s'] * 1e3:.0f} ms "
        f"(slowest {figures['slowest_s'] * 1e3:.0f} ms), {figures['actions']} actions, {figures['preempts']} give way\n"
        f"reference loop of 3 million additions: {loop_s * 1e3:.0f} ms\n"
        f"forecast of one service: {learn_s * 1e3:.0f} ms to judge 28 days, then {forecast_s * 1e6:.0f} µs each"
    )
    show(errors)


def show(errors: list[ForecastError]) -> None:
    """The forecast's table for people."""
    table = Table(box=None, header_style="bold")
    for title in ("days", "known", "error", "of last", "its own word", "above most", "25 % too low", "of last "):
        table.add_column(title, justify="left" if title == "days" else "right", no_wrap=True)
    for one in errors:
        parts = (one.error, one.last_error, one.own_error, one.above_most, one.low, one.low_last)
        table.add_row(one.kind, str(one.known_days), *("-" if math.isnan(part) else f"{part:.1%}" for part in parts))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
