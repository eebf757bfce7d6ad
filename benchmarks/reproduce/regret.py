"""What wrong slowdowns cost: average JCT of a policy that is told predictions over one that is told the truth."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from benchmarks.reproduce import pollux
from benchmarks.reproduce.document import Section, SummaryClaim, Written, commands, number, paragraph, table
from benchmarks.reproduce.sharing import LOADS, gavel, on_pollux
from benchmarks.reproduce.simulation import Results

TITLE = "What wrong slowdowns cost: regret"
POLICIES = ("sjf-bsbf", "srsf-share")
TOLD = (("truth", ""), ("predicted", "--knowledge predicted"), ("prior", "--knowledge prior"))
"""Names of columns, and options."""
MOST = 1.08

Line = Callable[[str, str, int], str]
"""A command by policy, options and seed."""


def _workloads() -> list[tuple[str, Line, tuple[int, ...]]]:
    found: list[tuple[str, Line, tuple[int, ...]]] = [
        ("Gavel, 59 jobs of one GPU", lambda policy, options, _seed: gavel(policy, options), (0,))
    ]
    for load in LOADS:

        def line(policy: str, options: str, seed: int, load: str = load) -> str:
            return on_pollux(load, seed, policy, options=options)

        found.append((f"Pollux, load {load}", line, pollux.SEEDS))
    return found


def section() -> Section:
    """Needs the pair table."""
    lines = [
        line(policy, options, seed)
        for _, line, seeds in _workloads() for policy in POLICIES for _, options in TOLD for seed in seeds
    ]  # fmt: skip
    return Section(TITLE, tuple(lines), _write)


def _write(results: Results) -> Written:
    lines = paragraph(
        "What policies know of a pair before it meets: *truth*, all of the table, *predicted*, what the table's other pairs",
        "tell, without this one ([prediction.md](prediction.md)), or *prior*, that two jobs take turns. The simulation is",
        "moved by the truth; slowdowns that were seen for a minute are known from then on. Average JCT in seconds, of",
        "Pollux the mean of seeds 1, 3, 5 and 6; regret is that over the truth's, in brackets the single seeds.",
    )
    rows, used, worst = [], [], 0.0
    for name, line, seeds in _workloads():
        for policy in POLICIES:
            found = {title: [results[line(policy, options, seed)].avg_s for seed in seeds] for title, options in TOLD}
            truth_s = fmean(found["truth"])
            cells = [f"{fmean(each):,.0f}" for each in found.values()]
            for title in ("predicted", "prior"):
                ratios = [told_s / known_s for told_s, known_s in zip(found[title], found["truth"], strict=True)]
                single = f" ({min(ratios):.3f} to {max(ratios):.3f})" if len(seeds) > 1 else ""
                cells.append(number(fmean(found[title]) / truth_s, 3) + single)
            worst = max(worst, fmean(found["predicted"]) / truth_s)
            rows.append([name, f"`{policy}`", *cells])
            used += [(line(policy, options, seed), name) for _, options in TOLD for seed in seeds]
    head = ["jobs", "policy", "truth", "predicted", "prior", "regret, predicted", "regret, prior"]
    lines += [*table(head, rows, text=(0, 1)), "", *commands(used)]
    text = f"Regret of predicted slowdowns: at most {worst:.3f} in the mean of every workload ({MOST} wanted)."
    return Written(lines, [SummaryClaim(worst <= MOST, text)])
