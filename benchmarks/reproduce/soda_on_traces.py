"""The policy ``soda`` on recorded traces, each run once as it comes: no trace here was used to choose anything of it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from benchmarks.reproduce import pollux
from benchmarks.reproduce.document import Section, SummaryClaim, Written, commands, number, paragraph, table
from benchmarks.reproduce.sharing import LOADS, PAIRS, gavel
from benchmarks.reproduce.simulation import DATA, Results, command
from benchmarks.reproduce.traces import SEQ5000, VC

TITLE = "soda on recorded traces"
LEARNED = "--estimates predicted"
"""Run times are learned from the run's own jobs as they end, from none at first."""
_GUESSED = "--knowledge predicted"
_GAVEL: tuple[tuple[str, str, float | None, float | None], ...] = (
    ("run times and pairs known", "", None, None),
    ("pairs predicted from the other pairs, and learned", _GUESSED, 12_400, 61_500),
    ("the same, nothing learned", f"{_GUESSED} --no-observe", None, None),
    ("run times learned, pairs predicted", f"{LEARNED} {_GUESSED}", None, None),
    ("nothing known at the start: run times learned, jobs take turns", f"{LEARNED} --knowledge prior", 12_700, None),
)
"""What is known, its options, and the average JCT and makespan wanted, in seconds."""
_TABLE = f"--pairs {DATA}/{PAIRS}"
_POLLUX: tuple[tuple[str, str, tuple[float, float] | None], ...] = (
    ("shares nothing, run times known", "--estimates exact", None),
    ("shares nothing, run times learned", LEARNED, None),
    ("shares, run times and pairs known", f"{_TABLE} --estimates exact", (0.64, 0.52)),
    ("shares, run times learned, pairs predicted", f"{_TABLE} {LEARNED} {_GUESSED}", (0.70, 0.58)),
)
"""How, its options, and the ratio to Pollux' Tiresias wanted at each of the loads."""
_PHILLY = (VC, SEQ5000)
_TOLD = (("nothing", "--estimates none"), ("learned", LEARNED))
_MOST_PREEMPTIONS, _MOST_RATIO = 3.0, 1.1


def _on_pollux(load: str, seed: int, options: str) -> str:
    return command(pollux.source(load, seed), "soda", options=f"{pollux.SEMANTICS} {options}")


def _on_philly(at: int, policy: str, options: str = "") -> str:
    return command(_PHILLY[at].source, policy, options=options)


def section() -> Section:
    """Needs the traces and the pair table."""
    lines = [gavel("soda", options) for _, options, _, _ in _GAVEL]
    for load in LOADS:
        for seed in pollux.SEEDS:
            lines += [pollux.theirs(load, seed), *(_on_pollux(load, seed, options) for _, options, _ in _POLLUX)]
    for at in range(len(_PHILLY)):
        lines += [_on_philly(at, "tiresias-las"), *(_on_philly(at, "soda", options) for _, options in _TOLD)]
    return Section(TITLE, tuple(lines), _write)


def _write(results: Results) -> Written:
    lines = paragraph(
        "The policy [`soda`](policies/soda.md) with its default parameters, each run once, all of them here: nothing of it",
        "was chosen by a trace. *Learned*: run times are predicted from the jobs of the run that have ended, from none at",
        "the start. Mechanism `ideal`, all users consent, all jobs can checkpoint, as in the sections above.",
    )
    parts = [_write_gavel(results), _write_pollux(results), _write_philly(results)]
    return Written(
        [*lines, *(line for part in parts for line in part.lines)], [claim for part in parts for claim in part.claims]
    )


def _preemptions(results: Results, lines: Sequence[str]) -> str:
    return number(fmean(_preemptions_a_job(results, line) for line in lines), 2)


def _preemptions_a_job(results: Results, line: str) -> float:
    summary = results[line].run.summary
    return summary.preemptions / summary.jobs


def _write_gavel(results: Results) -> Written:
    lines = paragraph(
        "**Gavel's max_min_fairness_1gpu**: 59 jobs on 8 V100, preemption is free. Seconds; in brackets what was wanted.",
    )
    body, claims = [], []
    for name, options, jct_s, makespan_s in _GAVEL:
        line = gavel("soda", options)
        summary = results[line].run.summary
        cells = [
            number(value, 0) + ("" if wanted is None else f" ({wanted:,.0f})")
            for value, wanted in ((summary.avg_jct_s, jct_s), (summary.makespan_s, makespan_s))
        ]
        body.append([name, *cells, _preemptions(results, [line])])
        if jct_s is not None:
            holds = summary.avg_jct_s <= jct_s and (makespan_s is None or summary.makespan_s <= makespan_s)
            claims.append(
                SummaryClaim(holds, f"soda on Gavel's one-GPU trace, {name}: average JCT {cells[0]} s, makespan {cells[1]} s"
                                    " (in brackets what was wanted).")
            )  # fmt: skip
    lines += [*table(["what is known", "average JCT", "makespan", "preemptions a job"], body), ""]
    lines += commands((gavel("soda", options), name) for name, options, _, _ in _GAVEL)
    return Written(lines, claims)


def _write_pollux(results: Results) -> Written:
    lines = paragraph(
        "**Pollux' workloads** on 16x4, seeds 1, 3, 5 and 6, its costs (rounds of 60 s, 30 s a start), as in the sections",
        "on its simulator and on sharing. Means of average JCTs in seconds, and over Pollux' own Tiresias, by its rules and",
        "placement; in brackets the single seeds.",
    )
    body, claims, used = [], [], []
    for at, load in enumerate(LOADS):
        theirs_s = [results[pollux.theirs(load, seed)].avg_s for seed in pollux.SEEDS]
        body.append([f"load {load}", "Pollux' Tiresias", number(fmean(theirs_s)), "1.000", "–", "–"])
        used += [(pollux.theirs(load, seed), "theirs") for seed in pollux.SEEDS]
        for name, options, wanted in _POLLUX:
            lines_of = [_on_pollux(load, seed, options) for seed in pollux.SEEDS]
            ours_s = [results[line].avg_s for line in lines_of]
            single = [ours / theirs for ours, theirs in zip(ours_s, theirs_s, strict=True)]
            ratio = fmean(ours_s) / fmean(theirs_s)
            spread = f"{ratio:.3f} ({min(single):.3f} to {max(single):.3f})"
            asked = "–" if wanted is None else f"{wanted[at]:.2f}"
            body.append([f"load {load}", name, number(fmean(ours_s)), spread, asked, _preemptions(results, lines_of)])
            used += [(line, name) for line in lines_of]
            if wanted is not None:
                text = f"soda on Pollux' workloads of load {load}, {name}: {ratio:.3f} of Pollux' Tiresias ({asked} wanted)."
                claims.append(SummaryClaim(ratio <= wanted[at], text))
    head = ["workload", "`soda`", "average JCT", "of Tiresias", "wanted", "preemptions a job"]
    lines += [*table(head, body, text=(0, 1)), "", *commands(used)]
    return Written(lines, claims)


def _write_philly(results: Results) -> Written:
    lines = paragraph(
        "**Philly**: one virtual cluster, and 5,000 jobs in a row; preemption is free. Average JCT in seconds. Wanted: at",
        f"most {_MOST_PREEMPTIONS:g} preemptions a job, and {_MOST_RATIO} times the average JCT of `tiresias-las`.",
    )
    body, claims, used = [], [], []
    for at, trace in enumerate(_PHILLY):
        las = _on_philly(at, "tiresias-las")
        las_s = results[las].avg_s
        body.append([trace.words, "`tiresias-las`", number(las_s), "1.000", _preemptions(results, [las])])
        used.append((las, "tiresias-las"))
        for told, options in _TOLD:
            line = _on_philly(at, "soda", options)
            ratio, preempted = results[line].avg_s / las_s, _preemptions_a_job(results, line)
            cells = [number(results[line].avg_s), number(ratio, 3), number(preempted, 2)]
            body.append([trace.words, f"`soda`, run times: {told}", *cells])
            used.append((line, told))
            claims.append(_philly_claim(f"{trace.words}, run times: {told}", ratio, preempted))
    head = ["jobs", "policy", "average JCT", "of `tiresias-las`", "preemptions a job"]
    lines += [*table(head, body, text=(0, 1)), "", *commands(used)]
    return Written(lines, claims)


def _philly_claim(name: str, ratio: float, preempted: float) -> SummaryClaim:
    holds = preempted <= _MOST_PREEMPTIONS and ratio <= _MOST_RATIO
    return SummaryClaim(holds, f"soda on {name}: {preempted:.2f} preemptions a job ({_MOST_PREEMPTIONS:g} wanted),"
                               f" average JCT {ratio:.3f} of tiresias-las ({_MOST_RATIO} wanted).")  # fmt: skip
