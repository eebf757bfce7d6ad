"""The one section whose figures differ from run to run."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime

from benchmarks.reproduce.document import SummaryClaim, Written, commands, paragraph, table
from benchmarks.simulate import Speed, machine

PEERS = (
    ("Tiresias' simulator, 2D-LAS", "337 at 5,000 jobs, 150 at 20,000"),
    ("Lucid's", "205; about 11 with sharing"),
    ("Gavel's", "60 to 90"),
    ("Pollux', Tiresias there", "14; its own policy 0.14"),
)
"""Jobs per CPU second, measured by us on another day and another machine than the table's."""


def write(found: Sequence[Speed]) -> Written:
    """Measured speeds beside the peers'."""
    now = datetime.now(UTC)
    lines = paragraph(
        f"Measured on {now:%Y-%m-%d} at commit {_commit()} on {machine()}, others at work on it as well. Processor",
        "time of a whole `sodactl simulate` process on one core, with start-up, reading and reporting; medians of",
        "three (SODA's month: one).",
    )
    body = [
        [each.target.name, f"{each.cpu_s:.2f}", f"{each.jobs_per_cpu_s:,.0f}", f"{each.peak_mib:.0f}", each.wanted,
         "met" if each.met else "**missed**"]
        for each in found
    ]  # fmt: skip
    lines += table(["", "CPU s", "jobs per CPU s", "peak MiB", "target, and under 1 GiB", ""], body)
    lines += ["", *commands((each.target.command, each.target.name) for each in found)]
    lines += paragraph(
        "Peers, jobs per CPU second, on jobs like these, on another machine: compare orders of magnitude only.",
    )
    lines += [*table(["simulator", "jobs per CPU s"], PEERS, text=(0, 1)), ""]
    good = sum(each.met for each in found)
    philly = [each for each in found if each.target.least_jobs_per_cpu_s]
    slowest = f", {min(each.jobs_per_cpu_s for each in philly):,.0f} jobs per CPU second or more" if philly else ""
    # The summary is the same after every run: figures stand here alone.
    lines = [f"{good} of {len(found)} targets are met{slowest}.", "", *lines]
    text = "Speed, the one thing that differs from run to run: see [Speed](#speed)."
    return Written(lines, [SummaryClaim(None, text)])


def _commit() -> str:
    reply = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return reply.stdout.strip() or "unknown"
