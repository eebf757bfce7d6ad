"""Pollux-like workloads of any size: jobs drawn, by seed, from the public ones."""

from __future__ import annotations

import csv
import random
from pathlib import Path

from slurm_soda.simulator.report.atomic_files import write_atomically

FOLDER = Path("build/resampled")
JOBS = 480
SEEDS = (1, 2, 3, 4)
_LOAD = "2.0"
_SOURCES = (1, 3, 5, 6)


def path_of(seed: int) -> Path:
    """Where a workload is written, below the working directory."""
    return FOLDER / f"pollux-{JOBS}-{seed}.csv"


def write_all(data: Path) -> None:
    """Draw all workloads: each job as it stands, its time of the day with it, without replacement."""
    rows: list[dict[str, str]] = []
    for source in _SOURCES:
        path = data / f"pollux/workloads/load-{_LOAD}/workload-{source}.csv"
        with path.open(encoding="utf-8", newline="") as lines:
            rows += list(csv.DictReader(lines))
    for seed in SEEDS:
        drawn = sorted(random.Random(seed).sample(rows, JOBS), key=lambda row: float(row["time"]))
        text = ["name,time,application,num_replicas,batch_size"]
        for number, row in enumerate(drawn):
            cells = (
                f"{row['application']}-{number}",
                row["time"],
                row["application"],
                row["num_replicas"],
                row["batch_size"],
            )
            text.append(",".join(cells))
        path_of(seed).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path_of(seed), ("\n".join(text) + "\n").encode())
