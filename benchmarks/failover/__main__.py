"""Fail-over of sodad: ``python -m benchmarks.failover --times 100``.

Two sodads share a store on PostgreSQL; the one that leads changes the SiteFactor of 150 jobs in every cycle, 50 at a time,
over a small Slurm in memory. It is killed (SIGKILL) or paused (SIGSTOP) again and again, at random instants, and the other
one takes over; a paused one goes on a moment later. Lease and time limit of a command are 5 s and 2 s, not 35 s and 60 s.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import click

from benchmarks.failover.controllers import COMMAND_S, CYCLE_S, LEASE_S, Controllers, TakeOver
from benchmarks.postgresql import new_store_url


@click.command()
@click.option("--times", default=10, show_default=True, help="How often the leader fails.")
@click.option("--seed", default=1, show_default=True)
def main(times: int, seed: int) -> None:
    """Kill and pause the leader in turn, and print what follows."""
    found: list[TakeOver] = []
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="soda-failover-") as folder:
        controllers = Controllers(Path(folder), new_store_url(), seed)
        try:
            for number in range(times):
                one = controllers.fail_over("pause" if number % 2 else "kill")
                found.append(one)
                click.echo(f"fault {number}: {one}", err=True)
                for violation in one.violations():
                    wrong += 1
                    click.echo(f"fault {number} ({one.fault}): {violation}")
        finally:
            controllers.close()
    click.echo(f"cycle {CYCLE_S} s, lease {LEASE_S} s, command {COMMAND_S} s, seed {seed}")
    for fault in ("kill", "pause"):
        _print(fault, [one for one in found if one.fault == fault])
    click.echo(f"{len(found)} take-overs, {wrong} violations")
    raise SystemExit(1 if wrong else 0)


def _print(fault: str, found: Sequence[TakeOver]) -> None:
    if not found:
        return
    acted_s = sorted(one.acted_after_s for one in found)
    cycles = max(one.acted_in_cycle for one in found)
    click.echo(
        f"{fault}: {len(found)} times; first update {median(acted_s):.2f} s (median), {acted_s[-1]:.2f} s (most) after "
        f"lease and command were over; in cycle {cycles} of the successor at the latest"
    )
    click.echo(
        f"  begun by the old leader after the take-over: {sum(one.stale_chunks for one in found)} chunks "
        f"(at most {max(one.stale_chunks for one in found)} each); landed late {sum(one.stale_landed for one in found)}, "
        f"left unsettled {sum(one.unsettled for one in found)}, unrecorded {sum(one.unrecorded for one in found)} updates"
    )


if __name__ == "__main__":
    main()
