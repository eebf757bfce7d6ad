"""The price of Slurm's mechanism of sharing, for each policy that shares: ``python -m benchmarks.reproduce.mechanism``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.reproduce.document import Section, Written, commands, number, paragraph, table
from benchmarks.reproduce.sharing import gavel, on_pollux
from benchmarks.reproduce.simulation import Results, check_data, run_commands

TITLE = "What Slurm's mechanism of sharing costs"
_WIDER = "--set interference=0.5 --set balance=0.5"
"""As docs/policies/ojpp.md has it beside the default bounds, within which no pair of Gavel's table is."""
POLICIES = ("sjf-ffs", "sjf-bsbf", "colocation", f"ojpp {_WIDER}", f"ojpap {_WIDER}", "srsf-share")
MECHANISMS: Sequence[tuple[str, str]] = (
    ("ideal", ""), ("slurm", "--mechanism slurm"),
    ("slurm, saved every 600 s", "--mechanism slurm --checkpoint-every-s 600"),
)  # fmt: skip
_LOAD, _SEED = "2.0", 1


def _command(workload: str, policy: str, options: str) -> str:
    return gavel(policy, options) if workload == "Gavel" else on_pollux(_LOAD, _SEED, policy, options=options)


WORKLOADS = ("Gavel", "Pollux")


def section() -> Section:
    """Two workloads that the document uses, each policy by each mechanism."""
    lines = tuple(
        _command(workload, policy, options)
        for workload in WORKLOADS
        for policy in POLICIES
        for _, options in MECHANISMS
    )
    return Section(TITLE, lines, _write)


def _write(results: Results) -> Written:
    lines = paragraph(
        "`--mechanism ideal` is what the papers assume, and all other sections: jobs join each other wherever a policy",
        "wants, and either may end first. `--mechanism slurm` is what can be done beside an unmodified Slurm",
        "([policies/sharing.md](policies/sharing.md#what-the-engine-can-do)): a job joins one that runs already, and when",
        "that one ends its guest is requeued and loses what it did since it last saved its state. In the third line of",
        "each policy jobs save it after every 600 s of work; in the second only when they are preempted. All jobs are of",
        "one user here. Below 0 the price is a gain: co-location goes by summed occupancy and asks neither what the",
        "pair at hand loses nor how many jobs a gang meets. On Pollux' trace, by `ideal`, jobs beside others take 2.46",
        "times as long, which is worse than one after the other. By `slurm` it also asks whether two get more done than",
        "one, which alone makes the average 24 % less; that a guest has no guests and a gang has equal indices keeps a",
        "slow pair from slowing the GPUs of others, which alone makes it 24 % less too, and both together 33 %. What",
        "`slurm` costs then leaves 29 %. With two jobs a GPU, as Slurm has them, its `ideal` is the same as with three.",
        f"Gavel: its 59 one-GPU jobs on 8x1. Pollux: load {_LOAD}, workload {_SEED}, on 16x4.",
    )
    body, used = [], []
    for workload in WORKLOADS:
        for policy in POLICIES:
            ideal_s = results[_command(workload, policy, "")].avg_s
            for mechanism, options in MECHANISMS:
                line = _command(workload, policy, options)
                found = results[line].run.summary
                price = "" if not options else f"{100 * (found.avg_jct_s / ideal_s - 1):+.1f} %"
                shared = f"{100 * found.gpu_shared_ratio:.1f} %"
                lost_h = number(found.lost_gpu_s / 3600)
                body.append(
                    [workload, f"`{policy}`", mechanism, number(found.avg_jct_s), price, shared, found.revoked, lost_h]
                )
                used.append((line, policy))
    head = ["workload", "policy", "mechanism", "average JCT", "price", "shared", "guests requeued", "GPU h lost"]
    lines += [*table(head, [[str(cell) for cell in row] for row in body], text=(0, 1, 2)), "", *commands(used)]
    return Written(lines)


@click.command()
@click.option("--data", default=Path("../shared/data"), show_default=True, type=click.Path(path_type=Path),
              help="Folder of the traces.")  # fmt: skip
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: one a CPU]")
def main(data: Path, workers: int | None) -> None:
    """This section alone, on standard output."""
    part = section()
    check_data(part.commands, data)
    results = run_commands(part.commands, data, workers, lambda done, total: print(done, "of", total, file=sys.stderr))
    click.echo("\n".join([f"## {part.title}", "", *part.write(results).lines]))


if __name__ == "__main__":
    main()
