"""The default of 2D-LAS and 2D-Gittins on jobs on which nothing was tuned."""

from __future__ import annotations

from benchmarks.reproduce.document import Section, SummaryClaim, Written, commands, number, paragraph, table
from benchmarks.reproduce.simulation import Results, command
from benchmarks.reproduce.traces import FREE, PAPER_1H, PHILLY_20000, W1_160, month

SOURCES = (
    (W1_160.words, W1_160.source),
    (PHILLY_20000.words, PHILLY_20000.source),
    *((f"generated month, seed {seed}", month(seed)) for seed in range(1, 6)),
)
"""Traces, and months that are drawn; the months' generator was fitted to Philly, not to any policy."""
COLUMNS = (
    ("lower bound", "", ()),
    ("SRSF, knows run times", "srsf", (FREE,)),
    ("2D-LAS, paper's setting", "tiresias-las", PAPER_1H),
    ("2D-LAS, default", "tiresias-las", (FREE,)),
    ("2D-Gittins, default", "tiresias-gittins", (FREE,)),
    ("FIFO that skips", "fifo-skip", ()),
    ("FIFO", "fifo", ()),
)


def section(*, data: bool) -> Section:
    """``data``: whether the traces are there; months are drawn anyway."""
    sources = tuple(pair for pair in SOURCES if data or "--trace" not in pair[1])
    lines = tuple(command(source, policy, *settings) for _, source in sources for _, policy, settings in COLUMNS[1:])

    def write(results: Results) -> Written:
        return _write(results, sources)

    return Section("The same setting on jobs that it has not seen", lines, write)


def _write(results: Results, sources: tuple[tuple[str, str], ...]) -> Written:
    lines = paragraph(
        "Average JCT in seconds, preemption free. Nobody published these figures, except Tiresias' own simulator on",
        "w1_160: 2,302.5 (2D-LAS) and 2,487.0 (2D-Gittins). The paper's setting is two queues at 3,600 GPU s, each by",
        "first start.",
    )
    rows, won, close = [], [], []
    used: list[tuple[str, str]] = []
    for at, (name, source) in enumerate(sources, 1):
        found = {title: results[command(source, policy, *settings)] for title, policy, settings in COLUMNS[1:]}
        used += [(command(source, policy, *settings), str(at)) for _, policy, settings in COLUMNS[1:]]
        bound_s = next(iter(found.values())).bound_s
        rows.append([str(at), name, number(bound_s), *(number(each.avg_s) for each in found.values())])
        ours_s = found["2D-LAS, default"].avg_s
        won.append(ours_s <= found["2D-LAS, paper's setting"].avg_s)
        close.append(ours_s / found["SRSF, knows run times"].avg_s)
    lines += table(["", "jobs", *(title for title, _, _ in COLUMNS)], rows, text=(0, 1))
    lines += ["", *commands(used)]
    text = (
        f"On {len(sources)} workloads that took no part in the search our default beats the paper's own setting on"
        f" {sum(won)}; it is {min(close):.2f} to {max(close):.2f} times SRSF, which knows every run time."
    )
    return Written(lines, [SummaryClaim(all(won), text)])
