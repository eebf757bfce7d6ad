"""How far policies are from what nobody can beat."""

from __future__ import annotations

from statistics import fmean

from benchmarks.reproduce.document import Section, SummaryClaim, Written, number, paragraph, percent, table
from benchmarks.reproduce.simulation import Results
from benchmarks.reproduce.tiresias_simulator import line
from benchmarks.reproduce.traces import SEQ5000, TRACES, VC, W6_160, W6_240

PUBLISHED_S = {W6_160.name: 1822.0, W6_240.name: 1844.0, SEQ5000.name: 7802.0, VC.name: 79152.0}
POLICIES = ("fifo", "fifo-skip", "srtf", "srsf", "tiresias-las", "tiresias-gittins")


def section() -> Section:
    """Bounds of the traces that peers were measured on."""
    return Section("Lower bounds", tuple(line(trace, policy) for trace in TRACES for policy in POLICIES), _write)


def _write(results: Results) -> Written:
    lines = paragraph(
        "No policy that neither shares GPUs nor resizes jobs has a smaller average JCT than the larger of two",
        "figures: the mean run time, and shortest remaining time first on one machine as fast as all GPUs together",
        "(`benchmarks/reproduce/bounds.py`). The columns on the right are average JCT over this bound. It cannot be",
        "reached where large jobs meet a full cluster.",
    )
    body, near = [], []
    for trace in TRACES:
        found = {policy: results[line(trace, policy)] for policy in POLICIES}
        bound_s, known = found["fifo"].bound_s, PUBLISHED_S.get(trace.name)
        change = bound_s / known - 1 if known else float("nan")
        if known:
            near.append(abs(change) < 0.0005)
        ratios = [f"{each.avg_s / bound_s:.2f}×" for each in found.values()]
        body.append([trace.words, number(known, 0), number(bound_s, 1), percent(change), *ratios])
    lines += table(["trace", "known, s", "bound here, s", "difference", *POLICIES], body)
    best = fmean(
        results[line(trace, "tiresias-las")].avg_s / results[line(trace, "tiresias-las")].bound_s for trace in TRACES
    )
    lines += ["", *paragraph(
        "Not computed: the bound of Gavel's 59 one-GPU jobs (10,748 s on 8 GPUs), which share GPUs, and the means over",
        "Pollux' eight seeds, four of which are not here. Commands: those of the tables above.",
    )]  # fmt: skip
    text = (
        f"Lower bounds: {sum(near)} of {len(near)} known ones are met; over the {len(TRACES)} traces our 2D-LAS is at"
        f" {best:.2f} times the bound on average."
    )
    return Written(lines, [SummaryClaim(all(near), text)])
