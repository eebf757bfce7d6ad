"""Where no job has ended yet: ``soda`` beside ``tiresias-las``: ``python -m benchmarks.empty_store --help``.

80 jobs of one GPU each come to 4 GPUs at a load of 1.25, from a store without ended jobs. They are alike, of two lengths, or
lognormal; a preemption costs 10 s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import click
import numpy as np

from benchmarks.one_gpu import average_jct_s
from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.runs.estimates import with_estimates
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.workload import Workload

JOBS, GPUS, LOAD_RATIO, RESTART_S = 80, 4, 1.25, 10.0
LENGTHS_S: Mapping[str, Sequence[float]] = {
    "5 min each": (300.0,),
    "1 h each": (3600.0,),
    "1 day each": (86_400.0,),
    "60 or 240 s": (60.0, 240.0),
    "100 or 1000 s": (100.0, 1000.0),
    "10 min or 2 h": (600.0, 7200.0),
    "lognormal, median 10 min, sigma 1.5": (),
}
OWNERS = (1, 3, 10, 80)
POLICIES = ("soda", "tiresias-las")


def draw_workload(lengths_s: Sequence[float], owners: int, seed: int) -> Workload:
    """One workload; without lengths they are lognormal."""
    rng = np.random.default_rng(seed)
    run_s: FloatColumn = 600.0 * np.exp(rng.normal(0.0, 1.5, JOBS))
    if lengths_s:
        run_s = rng.choice(np.array(lengths_s), JOBS)
    submit_s = np.cumsum(rng.exponential(float(run_s.mean()) / (GPUS * LOAD_RATIO), JOBS))
    rows = [
        {"submit_s": at, "run_s": run, "gpus": 1, "user": f"user{rng.integers(owners)}"}
        for at, run in zip(submit_s.tolist(), run_s.tolist(), strict=True)
    ]
    return Workload.build(f"seed {seed}", rows)


def ratio(workload: Workload, seed: int) -> float:
    """Average JCT of the first of :data:`POLICIES` over that of the second.

    Raises:
        click.ClickException: a run failed.
    """
    jobs, costs = with_estimates(workload, "predicted"), Costs(restart_s=RESTART_S)
    scenario = Scenario(jobs, parse_cluster(f"1x{GPUS}"), costs, predicted=True, seed=seed)
    first, second = (average_jct_s(scenario, policy) for policy in POLICIES)
    return first / second


@click.command(help=__doc__)
@click.option("--seeds", type=click.IntRange(1), default=6, show_default=True, help="from 1 to this one")
def main(seeds: int) -> None:
    """Prints the table as it grows."""
    click.echo(f"average JCT of {POLICIES[0]} over that of {POLICIES[1]}: geometric mean, most; seeds 1 to {seeds}")
    click.echo("| jobs | " + " | ".join(f"of {owners} owner{'s' if owners > 1 else ''}" for owners in OWNERS) + " |")
    click.echo("|---" * (1 + len(OWNERS)) + "|")
    for name, lengths_s in LENGTHS_S.items():
        cells = []
        for owners in OWNERS:
            found = [ratio(draw_workload(lengths_s, owners, seed), seed) for seed in range(1, seeds + 1)]
            cells.append(f"{math.exp(sum(map(math.log, found)) / seeds):.2f}, {max(found):.2f}")
        click.echo(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
