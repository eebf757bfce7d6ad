"""Policies that need run times, with those that they predict in place of the true ones."""

from __future__ import annotations

from benchmarks.reproduce.document import Section, SummaryClaim, Written, commands, number, paragraph, table
from benchmarks.reproduce.simulation import DATA, Results, command

SOURCE = f"--trace {DATA}/philly/philly.csv --learn-days 60 --cluster 32x8"
POLICIES = (
    ("SJF", "sjf", ""),
    ("SRSF", "srsf", ""),
    ("SJF-BSBF, any pair at 1.5", "sjf-bsbf", "--pair-slowdown 1.5"),
)
"""SJF-BSBF needs slowdowns, which Philly does not tell: two jobs of any kind take 1.5 times as long, and fit."""
WITHOUT = ("Tiresias, 2D-LAS: needs no run times", "tiresias-las")
TOLD = (("clairvoyant", "exact"), ("predicted", "predicted"))


def _line(policy: str, options: str, estimates: str) -> str:
    return command(SOURCE, policy, options=f"{options} --estimates {estimates}".strip())


def section() -> Section:
    """Needs the trace."""
    lines = [_line(policy, options, estimates) for _, policy, options in POLICIES for _, estimates in TOLD]
    return Section("Run times that must be predicted", (*lines, _line(WITHOUT[1], "", "none")), _write)


def _write(results: Results) -> Written:
    lines = paragraph(
        "Average JCT in seconds of the jobs submitted after the first 60 days of philly.csv: 8,381 jobs in 11.6 days, on a",
        "cluster of 32x8 that is empty at first. Predictions begin with what had ended in those 60 days and learn on while",
        "jobs end; they know the owner (the virtual cluster), the GPUs and how long a job has run: the trace tells no more.",
        "How predictions are made: [run-times.md](run-times.md).",
    )
    rows, ratios, used = [], [], []
    for at, (name, policy, options) in enumerate(POLICIES, 1):
        exact, told = (results[_line(policy, options, estimates)].avg_s for _, estimates in TOLD)
        ratios.append(told / exact)
        rows.append([str(at), name, number(exact), number(told), number(told / exact, 3)])
        used += [(_line(policy, options, estimates), str(at)) for _, estimates in TOLD]
    line = _line(WITHOUT[1], "", "none")
    rows.append([str(len(POLICIES) + 1), WITHOUT[0], number(results[line].avg_s), "–", "–"])
    used.append((line, str(len(POLICIES) + 1)))
    lines += table(["", "policy", *(name for name, _ in TOLD), "predicted / clairvoyant"], rows, text=(0, 1))
    lines += ["", *commands(used)]
    srsf_s = results[_line("srsf", "", "predicted")].avg_s
    text = (
        "Run times predicted from 60 days of Philly in place of the true ones: average JCT "
        + ", ".join(f"{name.split(',')[0]} x{ratio:.2f}" for (name, _, _), ratio in zip(POLICIES, ratios, strict=True))
        + f"; SRSF with predictions is at {srsf_s / results[line].avg_s:.2f} of Tiresias, which needs none."
    )
    return Written(lines, [SummaryClaim(None, text)])
