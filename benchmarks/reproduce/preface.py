"""What stands before and after the figures."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.reproduce.document import SummaryClaim, Written, anchor, paragraph, table

SUMMARY, SPEED, MISSING = "In short", "Speed", "What is missing"
_PICTURES = {
    "Tiresias' testbed: Figures 10 and 11, Tables 3 and 4": (
        ("Figure 10 as distributions: part of the jobs that completed within a time", "tiresias480-jct"),
        ("Figure 11: GPUs held over time, of the first seed", "tiresias480-utilisation"),
    ),
    "SODA, Figures 12 to 15 and 18: CPU cores and contention": (
        ("Figures 12, 13 and 18: GPUs active, their utilisation, and cores in use over the month", "soda-month-use"),
        ("Figures 14 and 15: waits of jobs and users, and cores given less cores asked for", "soda-month-waits"),
    ),
    "SODA, Figures 12, 13 and 16 to 19: inference services": (
        ("Figures 12, 13 and 18 by hour of the day, with services", "soda-services-hours"),
        ("Figures 16 and 17: latency by day and night, and GPU utilisation beside ABACUS", "soda-services-latency"),
    ),
    "Tiresias, Table 5 and Figure 13: a month like Philly's": (
        ("Figure 13: part of the jobs that completed within a time", "philly-month-jct"),
    ),
}


def head(parts: Sequence[tuple[str, Written]]) -> list[str]:
    """Title, summary and how to read and repeat; ``parts``: titles of the sections, and what they claim."""
    lines = ["# Reproduction", ""]
    lines += paragraph(
        "Figures of the papers on Tiresias, SODA, SJF-BSBF, OJPP and co-location and of other simulators, beside those of",
        "`sodactl simulate` on the same jobs, and how well it is predicted how much jobs slow each other down.",
        "Written by `make reproduce`; edit `benchmarks/reproduce/` instead of this file. Every figure here comes from",
        "the command that stands under its table, with `--passing-limit-s inf` added: the papers bound no wait.",
    )
    lines += [f"## {SUMMARY}", ""]
    lines += [claim_line(title, claim) for title, written in parts for claim in written.claims]
    lines += [
        "- **Not reproduced:** what resizes jobs (Optimus, Pollux) or needs hardware; see [what is"
        f" missing](#{anchor(MISSING)}).",
        "",
    ]
    lines += _how()
    return lines


def claim_line(title: str, claim: SummaryClaim) -> str:
    """One line of the summary, which leads to its section."""
    link = f"(#{anchor(title)})"
    return f"- {_mark(claim)}{claim.text}" + ("" if link in claim.text else f" [Section]{link}")


def _mark(claim: SummaryClaim) -> str:
    return "" if claim.holds is None else "**Holds.** " if claim.holds else "**Does not hold.** "


def _how() -> list[str]:
    lines = ["## How to read it", ""]
    lines += [
        "- JCT, job completion time, is end less submission, in seconds.",
        "- *paper*: printed in the publication. *peer's simulator*: what the authors' own "
        "simulator gives on the same jobs"
        " ([peers.md](peers.md) has its rules, found by re-implementing it). *ours*: this run.",
        "- *difference*: ours against the peer's simulator, or where that has no figure, against the paper.",
        "- The same commit gives the same bytes, but for the section [Speed](#speed).",
        "",
    ]
    lines += ["## To repeat it", ""]
    lines += paragraph(
        "`make reproduce DATA=DIR` takes some minutes; `$DATA` in commands is that folder. Without traces, `python -m",
        "benchmarks.reproduce --generated` does the sections of generated workloads. `--section NAME` prints one section",
        "alone (NAME: any part of its title), and with `--out docs/reproduction.md` puts it there in place of the one that",
        "is there. The traces are public:",
    )
    rows = (
        ("tiresias/60_job.csv", "SymbioticLab/Tiresias, simulator/"),
        ("pollux/models, pollux/workloads", "petuum/adaptdl, branch osdi21-artifact, simulator/: traces and workloads"),
        (
            "pollux/exclusive",
            "the workloads of load 1.0 (seeds 1, 6), 1.5 and 2.0 (seed 6) with the run times of the tables:"
            " `sodactl simulate --trace … --profiles … --save-trace …`",
        ),
        ("philly/philly.csv", "msr-fiddle/philly-traces as CSV: timestamp, duration, num_gpus, cluster"),
        (
            "gavel/max_min_fairness_1gpu.trace",
            "one-GPU jobs of stanford-futuredata/gavel, scheduler/traces/physical_cluster/max_min_fairness.trace",
        ),
        (
            "gavel/throughputs.json",
            "the same, scheduler/simulation_throughputs.json; without it the sections on sharing, regret and interference"
            " are left out",
        ),
        ("philly/seq5000.csv, vc_0e4a51.csv", "5,000 consecutive jobs of it; the 1,419 jobs of one virtual cluster"),
    )
    return [*lines, *table(["file", "from"], rows, text=(0, 1)), ""]


def picture(title: str, images: str) -> list[str]:
    """The pictures of a section."""
    return [text for words, name in _PICTURES.get(title, ()) for text in (f"![{words}]({images}/{name}.png)", "")]


def tail() -> list[str]:
    """What of the papers is not here."""
    rows = (
        ("Tiresias, Figures 3 to 5, 12, 16 to 19", "measured on its hardware, or about Microsoft's trace itself"),
        ("Tiresias, Figure 7", "a test: tests/policies/test_figure7.py; average JCT 9.3, 10.0 and 11.7, as printed"),
        (
            "Tiresias, Table 6 and PACKLIMIT",
            "facts of policies/tiresias; no public table says what its placement is worth",
        ),
        ("Tiresias, Figure 15c", "PROMOTEKNOB of Tiresias-G: promotion is slow to simulate"),
        ("Pollux, Optimus, Pollux' own policy", "they change how many GPUs a running job has"),
        (
            "Gavel's policies for several GPUs a job, and for several types of GPU",
            "its simulator was not run here: its figures on one-GPU jobs stand beside ours as it prints them. It waits"
            " for the last job of a round, and 1,920 s for new decisions: alone worth 18 % of FIFO (docs/peers.md)",
        ),
        ("Lucid's simulator", "its policies need profiles and share GPUs; its speed stands above"),
        (
            "SJF-BSBF, Tables II and III, Figure 4",
            "measured on its hardware; or the mix of 240 jobs, which is not public",
        ),
    )
    return [f"## {MISSING}", "", *table(["what", "why"], rows, text=(0, 1)), ""]
