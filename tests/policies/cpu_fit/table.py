"""Prints the tables of docs/policies/cpu-fit.md: ``python -m tests.policies.cpu_fit.table`` (about five minutes)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from slurm_soda.policies.cpu_fit.core_search import SearchRules
from tests.policies.cpu_fit.models import FAMILIES, LIMIT, MODELS, Job, Run, random_job, searched

STARTS = (1, 2, 20)
SEEDS = 100
RULES = SearchRules(free_unneeded=True)


def shares(runs: Sequence[tuple[Job, Run]]) -> str:
    def percent(hits: Sequence[bool]) -> str:
        return f"{100 * sum(hits) / len(hits):.1f}"

    best = [max(job.ratios) for job, _ in runs]
    found = [job.at(run.end.cores) for job, run in runs]
    during = [job.at(at) / max(job.ratios) for job, run in runs for at in run.tried[1:]]
    steps = [run.search.steps for _, run in runs]
    cells = (
        percent([run.end.cores == job.best_fit for job, run in runs]),
        percent([abs(run.end.cores - job.best_fit) <= 1 for job, run in runs]),
        percent([one >= 0.98 * top for one, top in zip(found, best, strict=True)]),
        percent([one >= 0.96 * top for one, top in zip(found, best, strict=True)]),
        f"{sum(steps) / len(steps):.2f}",
        str(max(steps)),
        f"{sum(during) / len(during):.2f}",
    )
    return " | ".join(cells)


def fuzzed(
    families: Sequence[str],
    starts: Sequence[int],
    noise: float = 0.01,
    knee_most: float = 12.0,
    serial_most: float = 0.1,
    limit: int = LIMIT,
) -> str:
    runs = []
    for family in families:
        for start in starts:
            rng = random.Random(f"{family} {start}")
            for seed in range(SEEDS):
                job = random_job(rng, family, limit, knee_most=knee_most, serial_most=serial_most)
                runs.append((job, searched(job, start, noise=noise, seed=seed, rules=RULES, limit=limit)))
    return shares(runs)


def main() -> None:
    for model in MODELS:
        job = model.job()
        exact = [searched(job, start) for start in STARTS]
        cells = [f"{run.end.cores} in {run.search.steps}" for run in exact]
        noisy = [(job, searched(job, start, noise=0.01, seed=seed)) for start in STARTS for seed in range(SEEDS)]
        print(
            f"| {model.name} | {model.category} | {job.best_fit} | {' | '.join(cells)} | {shares(noisy)} |", flush=True
        )
    for family in FAMILIES:
        print(f"| {family} | {fuzzed([family], STARTS)} |", flush=True)
    for start in STARTS:
        print(f"| all four, from {start} | {fuzzed(FAMILIES, [start])} |", flush=True)
    print(f"| noise 2 % | {fuzzed(FAMILIES, STARTS, noise=0.02)} |", flush=True)
    print(f"| noise 3 % | {fuzzed(FAMILIES, STARTS, noise=0.03)} |", flush=True)
    print(f"| knees to 20 | {fuzzed(FAMILIES, STARTS, knee_most=20.0)} |", flush=True)
    print(
        f"| knees to 20, serial share to 0.3 | {fuzzed(FAMILIES, STARTS, knee_most=20.0, serial_most=0.3)} |",
        flush=True,
    )
    print(f"| 64 cores | {fuzzed(FAMILIES, STARTS, limit=64)} |", flush=True)


if __name__ == "__main__":
    main()
