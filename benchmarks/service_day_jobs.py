"""What one GPU more is worth to the training jobs of ``sodactl demo --services``, by arithmetic, over many seeds.

Jobs run first come, first served on the demo's nodes, of which the service takes one GPU: all day, or while its load needs
it. No Slurm and no service: it tells how much the demo's ratio of completion times differs from seed to seed by its jobs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import click
import numpy as np

from slurm_soda.demo.services_day.day_jobs import DayJob, draw_day_jobs
from slurm_soda.demo.services_day.day_report import JCT_WANTED
from slurm_soda.demo.services_day.day_settings import GPUS_PER_NODE, NODES

DAY_S = 600.0
START_AND_END_S = 4.0
"""What Slurm and the hooks take of a job on a slow machine."""
HELD = (0.32, 0.69)
"""The part of the day in which the load is more than one core answers, as measured."""


def mean_completion_s(jobs: Sequence[DayJob], from_s: float, until_s: float) -> float:
    """Average time from submission to end, where the service wants a GPU within these seconds of the day."""
    free = [GPUS_PER_NODE] * NODES
    arriving, waiting = deque(jobs), deque[DayJob]()
    running: list[tuple[float, int, int]] = []
    service: int | None = None
    now_s, total_s = 0.0, 0.0
    while arriving or waiting or running:
        for end_s, node, gpus in [one for one in running if one[0] <= now_s]:
            running.remove((end_s, node, gpus))
            free[node] += gpus
        while arriving and arriving[0].arrival_s <= now_s:
            waiting.append(arriving.popleft())
        wants = from_s <= now_s < until_s
        if wants and service is None:
            service = _fullest(free, 1)
            if service is not None:
                free[service] -= 1
        elif not wants and service is not None:
            free[service], service = free[service] + 1, None
        while waiting and not (wants and service is None):
            place = _fullest(free, waiting[0].gpus)
            if place is None:
                break
            job = waiting.popleft()
            free[place] -= job.gpus
            running.append((now_s + job.run_s + START_AND_END_S, place, job.gpus))
            total_s += now_s + job.run_s + START_AND_END_S - job.arrival_s
        now_s += 1.0
    return total_s / len(jobs)


def _fullest(free: Sequence[int], gpus: int) -> int | None:
    """The node with the fewest free GPUs that are enough."""
    return min((node for node, count in enumerate(free) if count >= gpus), key=lambda node: free[node], default=None)


@click.command()
@click.option("--seeds", type=click.IntRange(min=1), default=200, show_default=True, help="Days.")
def main(seeds: int) -> None:
    """Ratio of completion times, a GPU taken while it is needed over a GPU taken all day."""
    ratios = []
    for seed in range(1, seeds + 1):
        jobs = draw_day_jobs(seed, DAY_S)
        placed_s = mean_completion_s(jobs, HELD[0] * DAY_S, HELD[1] * DAY_S)
        ratios.append(placed_s / mean_completion_s(jobs, 0.0, DAY_S))
    low, middle, high = np.percentile(ratios, (5, 50, 95))
    above = float(np.mean(np.array(ratios) > JCT_WANTED))
    click.echo(f"{seeds} seeds: geometric mean {np.exp(np.mean(np.log(ratios))):.2f}, median {middle:.2f},")
    click.echo(f"nine of ten between {low:.2f} and {high:.2f}; above {JCT_WANTED:g}: {above:.0%}")


if __name__ == "__main__":
    main()
