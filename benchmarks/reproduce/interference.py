"""Predicted interference beside the measured one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.interference import Part, PredictionFigures, Report, Transfer, aip_of, measure
from benchmarks.predictors.methods import AIP, CHOSEN
from benchmarks.reproduce.document import SummaryClaim, Written, paragraph, table

TITLE = "Interference that must be predicted"
PAIRS = "gavel/throughputs.json"
MOST = 0.10
NAMES = {
    "mean": "the mean of all pairs",
    "linear": "AIP: linear regression",
    "svr": "AIP: support vectors",
    "tree": "AIP: decision tree",
    "neighbours": "AIP: nearest neighbours",
    "boosting": "gradient boosting",
    "forest": "extremely randomised trees",
    "completion": "matrix completion, rank 3",
    "gaussian": "**Gaussian process** (ours)",
}


def write(data: Path, say: Callable[[str], None]) -> Written:
    """Measures first; without the table there is one line that says so."""
    path = data / PAIRS
    if not path.exists():
        return Written([f"Skipped: no `{PAIRS}` in the folder of the traces.", ""])
    report = measure(path, say=say)
    return Written(lines(report), _claims(report))


def _claims(report: Report) -> list[SummaryClaim]:
    """One for each way to say what an error of 10 % is."""
    of_xi = {part.gpu_type: _of(part).of_xi for part in report.parts}
    of_cost = {part.gpu_type: _of(part).of_slowdown for part in report.parts}
    return [
        SummaryClaim(
            all(off <= MOST for off in found.values()),
            f"Interference of pairs that were left out, {words}: {_list(found)}.",
        )
        for words, found in (("error relative to xi", of_xi), ("error of xi - 1 relative to its mean", of_cost))
    ]


def _list(found: Mapping[str, float]) -> str:
    return ", ".join(f"{100 * off:.1f} % on {gpu_type}" for gpu_type, off in found.items())


def lines(report: Report) -> list[str]:
    """The tables as Markdown."""
    said = paragraph(
        "xi is how many times as long an iteration takes beside another job. Errors of xi, absolute, on average: relative",
        "to the pair's own xi, and relative to the mean of xi - 1, which is what sharing costs. *Pairs*: both directions",
        "of the pair are left out. *Models*: all batches of the model are left out, with whomever; what it does alone is",
        "known. The last columns: how often a left-out pair is off by at most one, and two, of its own stated errors (58 %",
        "and 89 % where errors are normal). OJPP says of AIP: under 7 % on average, on six jobs.",
    )
    for part in report.parts:
        said += _part(part)
    for each in report.transfers:
        said += _transfer(each)
    return said


def _of(part: Part) -> PredictionFigures:
    return next(line.pairs for line in part.lines if line.method == CHOSEN)


def _part(part: Part) -> list[str]:
    aip = aip_of(part).method
    rows = []
    for line in part.lines:
        name = NAMES.get(line.method, line.method) + (" (AIP's choice)" if line.method == aip and aip in AIP else "")
        cells = (line.pairs.of_xi, line.pairs.of_slowdown, line.models.of_xi, line.models.of_slowdown)
        covered = (line.pairs.within_1, line.pairs.within_2)
        rows.append([name, *(f"{cell:.1%}" for cell in cells), *(f"{cell:.0%}" for cell in covered)])
    head = [
        f"{part.gpu_type}, {part.measured} slowdowns, mean xi - 1 {part.mean_cost:.2f}",
        *("pairs: of xi", "of xi - 1", "models: of xi", "of xi - 1", "within 1", "within 2"),
    ]
    fit = part.memory
    return [
        *table(head, rows),
        "",
        f"Whether two jobs fit, of {fit.pairs} pairs ({fit.apart} do not), without each: {fit.missed + fit.refused} wrong"
        f" ({(fit.missed + fit.refused) / fit.pairs:.1%}), of them {fit.missed} that do not fit though predicted to;"
        f" {fit.doubted} are in doubt, and may be tried.",
        "",
        *_roughness(part),
    ]


def _roughness(part: Part) -> list[str]:
    rough = part.roughness
    return paragraph(
        f"How rough the table is: {rough.pairs} of these slowdowns have measured neighbours, of the next smaller and the",
        f"next larger batch. Halfway between these is off by {rough.halfway.of_xi:.1%} of xi,",
        f"{rough.halfway.of_slowdown:.1%} of xi - 1; the Gaussian process, of the same ones, by",
        f"{rough.predicted.of_xi:.1%} and {rough.predicted.of_slowdown:.1%}.",
    )


def _transfer(found: Transfer) -> list[str]:
    rows = [
        [f"nothing: the model of {found.source} is asked", f"{found.carried.of_xi:.1%}", f"{found.carried.of_slowdown:.1%}"],
        ["nothing: the prior, all take turns (xi = 2)", f"{found.turns.of_xi:.1%}", f"{found.turns.of_slowdown:.1%}"],
        *([f"{pairs} pairs, three draws: learned anew, on the others", f"{few.of_xi:.1%}", f"{few.of_slowdown:.1%}"]
          for pairs, few in found.few),
    ]  # fmt: skip
    return [*table([f"measured on {found.target}, all on {found.source}", "of xi", "of xi - 1"], rows), ""]
