"""What parting changes where slowdowns are worse than was hoped: ``python -m benchmarks.reproduce.parting``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from benchmarks.reproduce.document import Section, Written, commands, number, paragraph, table
from benchmarks.reproduce.simulation import Results, command, run_commands

TITLE = "What parting changes"
HOPED, BOUND, TRUTHS = "1.2", "1.3", ("1.5", "2.0")
"""Of a pair: the slowdown that policies expect; the most that owners bear; what it is."""
POLICIES: Sequence[tuple[str, tuple[str, ...]]] = (
    ("sjf-ffs", ()), ("sjf-bsbf", ()), ("colocation", ()), ("ojpp", ("interference=0.5", "balance=0.5")), ("srsf-share", ()),
)  # fmt: skip
PARTING: Sequence[tuple[str, str]] = (("yes", ""), ("no", "--no-parting"))


def _command(truth: str, policy: str, settings: Sequence[str], option: str) -> str:
    told = f"--pair-slowdown {truth} --knowledge predicted --pair-guess {HOPED} --max-slowdown {BOUND}"
    options = " ".join(part for part in (told, "--restart-cost-s 62", option) if part)
    return command("--workload small --seed 1 --load 2", policy, *settings, options=options)


def section() -> Section:
    """Generated jobs, each policy with and without."""
    lines = tuple(
        _command(truth, policy, settings, option)
        for truth in TRUTHS
        for policy, settings in POLICIES
        for _, option in PARTING
    )
    return Section(TITLE, lines, _write)


def _write(results: Results) -> Written:
    lines = paragraph(
        f"Generated jobs whose owners bear a slowdown of {BOUND} and whose pairs are expected to take {HOPED} times",
        "as long, but take longer. Where it was seen for a minute that a bound is broken, the guest is preempted and",
        "the two do not meet again ([policies/sharing.md](policies/sharing.md#parting)), and whoever was slowed gets no",
        "other guest before it has made up for that; kinds of jobs that were seen are not paired again in either case.",
        "Parting acts where a job has a bound and policies do not know the truth: no other section of this page has both,",
        "so none of their figures change by it. `srsf-share` separates pairs by itself, so none is left to part; what",
        "differs there is who gets another guest, and when.",
    )
    body, used = [], []
    for truth in TRUTHS:
        for policy, settings in POLICIES:
            for parts, option in PARTING:
                line = _command(truth, policy, settings, option)
                found = results[line].run.summary
                shared_h = number(found.gpu_shared_s / 3600)
                body.append([truth, f"`{policy}`", parts, number(found.avg_jct_s), shared_h, str(found.parted),
                             str(found.preemptions)])  # fmt: skip
                used.append((line, policy))
    head = ["slowdown", "policy", "parting", "average JCT", "GPU h beyond the bound", "parted", "preemptions"]
    lines += [*table(head, body, text=(1, 2)), "", *commands(used)]
    return Written(lines)


@click.command()
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: one a CPU]")
def main(workers: int | None) -> None:
    """This section alone, on standard output."""
    part = section()
    results = run_commands(part.commands, None, workers, lambda done, total: print(done, "of", total, file=sys.stderr))
    click.echo("\n".join([f"## {part.title}", "", *part.write(results).lines]))


if __name__ == "__main__":
    main()
