"""Co-location's best and worst case, side by side with the thesis."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.chapter6.evaluation import best_case, delta, fifo, fitted, together, worst_case
from benchmarks.chapter6.gpu import SimulatedTraining
from benchmarks.reproduce.document import Section, SummaryClaim, Written, paragraph, percent, table
from benchmarks.reproduce.simulation import Results
from slurm_soda.policies.sharing.colocation.speedup_models import OccupancyThreshold

BEST_OCCUPANCY, WORST_OCCUPANCY = 0.7, 1.0
Case = Callable[[int, float], list[SimulatedTraining]]
CASES: tuple[tuple[str, Case, float, int, str, str], ...] = (
    # thesis: makespan and JCT against FIFO (Sections 6.2 and 6.3); its figures with and without MPS are pictures
    ("best", best_case, BEST_OCCUPANCY, 10, "−37 %", "+61 %"),
    ("best", best_case, BEST_OCCUPANCY, 2, "−50 %", "+25 %"),
    ("worst", worst_case, WORST_OCCUPANCY, 10, "slightly better", "–"),
    ("worst", worst_case, WORST_OCCUPANCY, 2, "−20 % (FIFO 25 % longer)", "–"),
)


def section() -> Section:
    """Needs no traces and no simulation of a cluster."""

    def write(results: Results) -> Written:
        del results
        return tables()

    return Section("Co-location, Chapter 6: best and worst case", (), write)


def tables() -> Written:
    """The comparison; seconds of computing."""
    rows, gains = [], []
    for name, case, occupancy, workers, makespan, jct in CASES:
        jobs = case(workers, occupancy)
        alone = fifo(jobs)
        cells = []
        for mps in (True, False):
            # The worst case supposes a classifier that is wrong (Section 6.3): it puts together what hardly gains.
            judge = fitted(jobs) if name == "best" and mps else OccupancyThreshold(float("inf"))
            found = together(jobs, mps=mps, judge=judge)
            gains.append(found.makespan_s < alone.makespan_s)
            cells += [percent(found.makespan_s / alone.makespan_s - 1), percent(found.jct_s / alone.jct_s - 1)]
        rows.append([name, str(workers), f"{alone.makespan_s:.0f}", makespan, jct, *cells])
    head = ["case", "data workers", "FIFO's makespan, s", "thesis: makespan", "JCT", "ours with MPS: makespan", "JCT",
            "without: makespan", "JCT"]  # fmt: skip
    lines = paragraph(
        "Two GPUs, jobs of 1,000 iterations submitted at once; best: twice VGG-19, VGG-11 and ResNet-18 with batches of",
        "64, worst: twice SENet-18 and ResNet-18 with 256. JCT is from start to end, as in the thesis. Kernels, occupancy",
        "and data loading are computed (`benchmarks/chapter6/gpu.py`), since the thesis prints none: kernel times of an",
        "iteration are our choice, the time to load an image follows from its 25 %, occupancy of the best case from JCT",
        f"+61 %, of the worst from delta 1.02 (here {delta(worst_case(10, WORST_OCCUPANCY)[:2], mps=True):.2f}). The other",
        "figures follow. Repeat: `python -m benchmarks.chapter6`.",
    )
    lines += [*table(head, rows, text=(0, 3, 4)), ""]
    text = (
        "Co-location: makespan against FIFO with MPS, best case "
        f"{rows[0][5]} (thesis −37 %) and {rows[1][5]} (−50 %) with ten and two data workers, worst case {rows[2][5]}"
        f" and {rows[3][5]} (about −2 % and −20 %)."
    )
    return Written(lines, [SummaryClaim(all(gains), text)])
