"""The day's figures: what became of each query, where the service ran, and how long the training jobs took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from slurm_soda.demo import accounting
from slurm_soda.demo.accounting import DemoError
from slurm_soda.services.load.load_report import SentQuery, load_report
from slurm_soda.services.percentile import percentile

PARTS = 48
"""Stretches of the day that the charts have a point for: half an hour of a day of 24."""
CPU, GPU = "cpu", "gpu"


@dataclass(frozen=True, slots=True)
class ServiceRun:
    """One task of the service, from its start to its end or requeue, in seconds of the day."""

    device: str
    start_s: float
    end_s: float
    node: str
    gpus: int


def read_samples(text: str) -> list[SentQuery]:
    """The queries that ``slurm_soda.services.load --samples`` wrote.

    Raises:
        DemoError: a line that is none.
    """
    queries = []
    for line in text.splitlines()[1:]:
        cells = line.split(",", 3)
        try:
            queries.append(SentQuery(float(cells[0]), float(cells[1]), float(cells[2]), cells[3]))
        except (ValueError, IndexError) as error:
            raise DemoError(f"the load generator wrote {line[:80]!r}, which is no query") from error
    return queries


def read_service_runs(text: str, began_s: float, day_s: float) -> list[ServiceRun]:
    """Runs of the service's tasks within the day, from what sacct said of its arrays; one that runs still lasts to the end.

    Args:
        text: output of :func:`~slurm_soda.demo.accounting.sacct_argv`.
        began_s: when the day began, Unix seconds.
        day_s: how long it lasts.

    Raises:
        DemoError: a line that is no record.
    """
    found = []
    for rows in accounting.read_records(text).values():
        for row in rows:
            start_s = accounting.seconds(row["Start"]) - began_s
            end_s = min(accounting.seconds(row["End"]) - began_s, day_s)
            gpus = accounting.most_allocated([row], "gres/gpu")
            if max(start_s, 0.0) < end_s:
                device = GPU if gpus else CPU
                found.append(ServiceRun(device, max(start_s, 0.0), end_s, row["NodeList"], gpus))
    return sorted(found, key=lambda run: (run.start_s, run.device))


def gpu_part(runs: Sequence[ServiceRun], day_s: float) -> float:
    """GPU time that a service held over the length of the day: 1 for one GPU all day."""
    return sum(run.gpus * (run.end_s - run.start_s) for run in runs) / day_s


def service_document(
    queries: Sequence[SentQuery], runs: Sequence[ServiceRun], target_ms: float, day_s: float
) -> dict[str, Any]:
    """One phase's service for the report."""
    return {
        **load_report(queries, target_ms).to_dict(),
        "gpu_part": round(gpu_part(runs, day_s), 4),
        "runs": [asdict(run) for run in runs],
        "devices": devices_in_turn(runs),
        "parts": parts_of_day(queries, runs, target_ms, day_s),
    }


def devices_in_turn(runs: Sequence[ServiceRun]) -> list[str]:
    """On what the service ran, one after the other, such as cpu, gpu, cpu."""
    turns: list[str] = []
    for run in runs:
        if turns[-1:] != [run.device]:
            turns.append(run.device)
    return turns


def parts_of_day(
    queries: Sequence[SentQuery], runs: Sequence[ServiceRun], target_ms: float, day_s: float
) -> list[dict[str, float]]:
    """Load, latency, violations, failures and instances by device of each stretch of the day."""
    each_s = day_s / PARTS
    due: list[list[SentQuery]] = [[] for _ in range(PARTS)]
    for query in queries:
        due[min(int(query.planned_s / each_s), PARTS - 1)].append(query)
    parts = []
    for at, here in enumerate(due):
        answered = [1000.0 * query.latency_s for query in here if not query.error]
        middle_s = (at + 0.5) * each_s
        on = {device: sum(_runs_at(run, device, middle_s) for run in runs) for device in (CPU, GPU)}
        parts.append(
            {
                "at_s": round(middle_s, 2),
                "load_qps": round(len(here) / each_s, 3),
                "p99_ms": round(percentile(answered, 0.99), 2),
                "violations": sum(one > target_ms for one in answered),
                "failed": len(here) - len(answered),
                **on,
            }
        )
    return parts


def _runs_at(run: ServiceRun, device: str, second: float) -> bool:
    return run.device == device and run.start_s <= second < run.end_s


def compare_days(pinned: Mapping[str, Any], placed: Mapping[str, Any]) -> dict[str, float]:
    """The placed day over the pinned one: average completion time of the training jobs, GPU time that the service held."""
    held = pinned["service"]["gpu_part"]
    return {
        "avg_jct": round(placed["jobs"]["avg_jct_s"] / pinned["jobs"]["avg_jct_s"], 4),
        "gpu_held": round(placed["service"]["gpu_part"] / held, 4) if held else 0.0,
    }
