"""Jobs of one GPU each in the manner of Gavel's trace: ``python -m benchmarks.one_gpu --help``.

What a policy makes of them by what it knows. Run times are even in their logarithm from ten minutes to ten hours,
arrivals are Poisson's, each job is one of the 26 kinds of Gavel's table, and preemption is free. Slowdowns of pairs are
drawn as well: each model uses a part of a GPU that grows with its batch, and of its memory bandwidth; two that want more
than the whole take as much longer, and meet in the bandwidth; a tenth is chance.
"""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

import click
import numpy as np

from slurm_soda.policies.sharing.mechanism.mechanism import find_mechanism
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.generators.families.family import JobClass, WorkloadFamily
from slurm_soda.simulator.generators.families.sites import GAVEL_KINDS, LogUniformMixture
from slurm_soda.simulator.report.run_results import FailedRun, SimulatedRun
from slurm_soda.simulator.runs.batch import SimulationBatch
from slurm_soda.simulator.runs.estimates import with_estimates
from slurm_soda.simulator.runs.policy_choice import PolicyChoice
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.sharing.sharing_rules import SharingRules

GPU = "v100"
FAMILY = WorkloadFamily(
    cluster=f"8x1:{GPU}",
    users=25,
    classes=(JobClass(1.0, 1, LogUniformMixture(((1.0, 600.0, 36_000.0),)), GAVEL_KINDS),),
    rates=np.ones(1),
    longest_s=7 * 86_400.0,
    sweep_most=1,
)
KNOWN = {
    "all": ("exact", "truth"),
    "run times": ("exact", "prior"),
    "pairs": ("predicted", "truth"),
    "nothing": ("predicted", "prior"),
}
"""What is known at the start: how run times and pairs are told."""
REFERENCE = ("srsf-share", "all")


def draw_pair_table(seed: int) -> dict[str, dict[str, dict[str, float | list[float]]]]:
    """A table of speeds in Gavel's format: alone, and of each kind beside each; 0 where two do not fit."""
    rng = np.random.default_rng(1_000 + seed)
    names, batches = zip(*GAVEL_KINDS, strict=True)
    of_model = {
        model: (rng.uniform(0.15, 0.8), rng.uniform(0.0, 0.15), rng.uniform(0.1, 0.8), rng.uniform(0.05, 0.3))
        for model in dict.fromkeys(names)
    }
    step = np.array([names[:at].count(name) for at, name in enumerate(names)])
    base, slope, bandwidth, memory = np.array([of_model[name] for name in names]).T
    use = np.minimum(base + slope * step, 1.0)
    memory = np.minimum(memory + 0.04 * step, 0.9)
    chance = np.exp(0.1 * rng.standard_normal((len(names), len(names))))
    xi = np.maximum((np.maximum(use[:, None] + use, 1.0) + 0.6 * bandwidth[:, None] * bandwidth) * chance, 1.0)
    fits = memory[:, None] + memory <= 1.0
    alone = 10.0 / (1.0 + step)
    beside = np.where(fits, alone[:, None] / xi, 0.0)
    keys = [
        f"('{name}{f' (batch size {batch})' if batch else ''}', 1)" for name, batch in zip(names, batches, strict=True)
    ]
    return {
        GPU: {
            mine: {"null": float(alone[at])}
            | {other: [float(beside[at, its]), float(beside[its, at])] for its, other in enumerate(keys)}
            for at, mine in enumerate(keys)
        }
    }


def make_scenario(
    seed: int, jobs: int, load_ratio: float, known: str, pairs: Path, *, mechanism: str = "ideal"
) -> Scenario:
    """One workload on eight GPUs; ``known``: one of :data:`KNOWN`."""
    estimates, knowledge = KNOWN[known]
    workload = FAMILY.draw(np.random.default_rng(seed), jobs, load_ratio, "one-gpu")
    return Scenario(
        workload=with_estimates(workload, estimates),
        cluster=parse_cluster(FAMILY.cluster, workload.partitions),
        predicted=estimates == "predicted",
        seed=seed,
        sharing=SharingRules(pairs=pairs, gpu=GPU, knowledge=knowledge, mechanism=find_mechanism(mechanism)),
    )


def run_once(scenario: Scenario, choice: PolicyChoice) -> SimulatedRun:
    """A run of one policy.

    Raises:
        click.ClickException: it failed.
    """
    found = SimulationBatch((scenario,), (choice,)).attempt(0)
    if isinstance(found, FailedRun):
        raise click.ClickException(f"{choice.label}, {scenario.workload.name}, seed {scenario.seed}: {found.reason}")
    return found


def average_jct_s(scenario: Scenario, policy: str) -> float:
    """Of a run with the policy's defaults.

    Raises:
        click.ClickException: it failed.
    """
    return run_once(scenario, PolicyChoice(policy)).summary.avg_jct_s


@click.command(help=__doc__)
@click.option("--seeds", default="1-5", show_default=True, help="from and to; 1 to 20 are for studies")
@click.option("--jobs", type=click.IntRange(1), default=50, show_default=True, help="of each workload")
@click.option(
    "--load", type=click.FloatRange(0.1, 10.0), default=1.5, show_default=True, help="of the cluster's GPU time"
)
@click.option("--policy", default="soda", show_default=True, help="that is looked at")
@click.option("--mechanism", type=click.Choice(["ideal", "slurm"]), default="ideal", show_default=True)
def main(seeds: str, jobs: int, load: float, policy: str, mechanism: str) -> None:
    """Average JCT by what is known, over that of srsf-share told all."""
    first, _, last = seeds.partition("-")
    try:
        numbers = range(int(first), int(last or first) + 1)
    except ValueError:
        raise click.ClickException(f"--seeds {seeds}: give one number, or two as in 1-5") from None
    runs = ((*REFERENCE,), *((policy, known) for known in KNOWN))
    found: dict[tuple[str, ...], list[float]] = {run: [] for run in runs}
    with tempfile.TemporaryDirectory() as folder:
        for seed in numbers:
            pairs = Path(folder) / f"pairs-{seed}.json"
            pairs.write_text(json.dumps(draw_pair_table(seed)))
            for run in runs:
                scenario = make_scenario(seed, jobs, load, run[1], pairs, mechanism=mechanism)
                found[run].append(average_jct_s(scenario, run[0]))
    click.echo(f"{'policy':12} {'known':10} {'average JCT':>12} {'over srsf-share that knows all':>31}")
    for run, values in found.items():
        ratios = [value / known for value, known in zip(values, found[REFERENCE], strict=True)]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
        spread = f"{mean:.3f} ({min(ratios):.3f} to {max(ratios):.3f})" if ratios else "-"
        click.echo(f"{run[0]:12} {run[1]:10} {np.mean(values) if values else math.nan:10.0f} s {spread:>31}")


if __name__ == "__main__":
    main()
