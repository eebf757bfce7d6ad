"""Fail-over of sodad: ``python -m benchmarks.failover --times 100``.

Two sodads share a store on PostgreSQL; the one that leads changes the SiteFactor of 150 jobs in every cycle, 50 at a time,
over a small Slurm in memory. It is killed (SIGKILL) or paused (SIGSTOP) again and again, at random instants, and the other
one takes over; a paused one goes on a moment later. Lease and time limit of a command are 5 s and 2 s, not 35 s and 60 s.

With ``--controllers`` the same happens to the primary controller of a real Slurm in containers, which has a backup: to its
slurmctld, to the sodad beside it, or to both.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import click

from benchmarks.failover.controller_faults import TARGETS, ControllerFault, Daemons, Fault, FaultRounds
from benchmarks.failover.controller_page import page, table
from benchmarks.failover.controller_pair import ControllerPair
from benchmarks.failover.controllers import COMMAND_S, CYCLE_S, LEASE_S, Controllers, TakeOver
from benchmarks.postgresql import new_store_url


@click.command()
@click.option("--times", default=10, show_default=True, help="How often the leader fails.")
@click.option("--seed", default=1, show_default=True)
@click.option("--controllers", is_flag=True, help="Two slurmctlds and two sodads in containers; a minute each time.")
@click.option("--name", default="controllers", show_default=True, help="Name of the cluster, with --controllers.")
@click.option("--page", "page_path", type=click.Path(path_type=Path), help="Writes the figures of --controllers there.")
def main(times: int, seed: int, controllers: bool, name: str, page_path: Path | None) -> None:
    """Kill and pause the leader in turn, and print what follows."""
    if controllers:
        _measure_controllers(times, seed, name, page_path)
    else:
        _measure_sodads(times, seed)


def _measure_controllers(times: int, seed: int, name: str, page_path: Path | None) -> None:
    kinds: list[tuple[Daemons, Fault]] = [(daemons, fault) for daemons in TARGETS for fault in ("kill", "pause")]
    order, draw = [], random.Random(seed)
    while len(order) < times:
        order += draw.sample(kinds, len(kinds))
    found: list[ControllerFault] = []
    pair = ControllerPair.up(name, lambda line: click.echo(line, err=True))
    try:
        pair.start_load()
        rounds = FaultRounds(pair, seed)
        for number, (daemons, fault) in enumerate(order[:times]):
            found.append(rounds.run(daemons, fault))
            click.echo(f"fault {number}: {found[-1]} {found[-1].violations() or 'holds'}", err=True)
        jobs = pair.end_load()
    finally:
        if found:
            click.echo(table(found))
        pair.down()
    command = f"python -m benchmarks.failover --controllers --times {times} --seed {seed}"
    text = page(found, jobs.text(), command, time.strftime("%Y-%m-%d"))
    click.echo(jobs.text())
    if page_path is not None:
        page_path.parent.mkdir(parents=True, exist_ok=True)
        page_path.write_text(text)
    raise SystemExit(1 if any(one.violations() for one in found) or jobs.left else 0)


def _measure_sodads(times: int, seed: int) -> None:
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
