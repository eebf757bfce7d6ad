"""The figures of faults of the primary controller, as a table for people and as a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from benchmarks.failover.controller_faults import TARGETS, ControllerFault
from benchmarks.failover.controller_pair import CYCLE_S, LEASE_S, READ_S, SLURM_TIMES_S, WRITE_S

Found = Sequence[ControllerFault]


def _times(value: Callable[[ControllerFault], float]) -> Callable[[Found], str]:
    def show(found: Found) -> str:
        seconds = sorted(value(one) for one in found)
        if len(seconds) == 1:
            return f"{seconds[0]:.1f} s"
        return f"{median(seconds):.1f} s, {seconds[-1]:.1f} s"

    return show


def _sum(value: Callable[[ControllerFault], int]) -> Callable[[Found], str]:
    return lambda found: str(sum(value(one) for one in found))


def _statuses(found: Found) -> str:
    statuses = [one.exit_status for one in found if one.fault == "pause" and "sodad" in one.daemons]
    return ", ".join(f"{statuses.count(status)} × {status}" for status in sorted(set(statuses), key=str)) or "–"


MEASURES: tuple[tuple[str, Callable[[Found], str]], ...] = (
    ("times", lambda found: str(len(found))),
    ("Slurm answers again, after the fault: median, most", _times(lambda one: one.answers_after_s)),
    ("the backup's sodad leads afterwards", _sum(lambda one: one.moved)),
    ("successor began before lease and command time-out were over", _sum(lambda one: one.began_early_s > 0)),
    (
        "first change, after Slurm answers and lease and time-out are over: median, most",
        _times(lambda one: one.acted_after_s),
    ),
    ("in which cycle since then, at the latest", lambda found: str(max(one.acted_in_cycle for one in found))),
    ("chunks that the old leader began after the take-over", _sum(lambda one: one.stale_chunks)),
    ("its chunks that ended after the take-over", _sum(lambda one: one.stale_landed)),
    ("its updates that nobody settled", _sum(lambda one: one.unsettled)),
    ("its updates that the store does not know", _sum(lambda one: one.unrecorded)),
    ("a paused sodad ended by itself: times × status", _statuses),
    ("no sodad leads: jobs last seen lifted, after the fault: median, most", _times(lambda one: one.lifted_for_s)),
    ("waiting jobs whose SiteFactor is not the last recorded one", _sum(lambda one: one.stale_lifts)),
    ("next start of a job after Slurm answers: median, most", _times(lambda one: one.job_started_after_s)),
    ("violations", _sum(lambda one: len(one.violations()))),
)


def table(found: Found) -> str:
    """In Markdown: a column for each kind of fault."""
    kinds = [(daemons, fault) for fault in ("kill", "pause") for daemons in TARGETS]
    groups = [
        (f"{fault} {' and '.join(daemons)}", [one for one in found if (one.daemons, one.fault) == (daemons, fault)])
        for daemons, fault in kinds
    ]
    groups = [(name, group) for name, group in groups if group]
    lines = ["| | " + " | ".join(name for name, _ in groups) + " |", "|---" * (len(groups) + 1) + "|"]
    lines += [f"| {what} | " + " | ".join(show(group) for _, group in groups) + " |" for what, show in MEASURES]
    return "\n".join(lines) + "\n"


def page(found: Found, jobs: str, command: str, day: str) -> str:
    """The whole of it, to be kept in ``docs/measurements/``."""
    slurm = ", ".join(f"`{name}={value}`" for name, value in SLURM_TIMES_S.items())
    return f"""# Fail-over between two controllers

`{command}`, {day}:
a primary and a backup slurmctld (24.11.5) with one `StateSaveLocation`, each in a container with a sodad beside it, one
store on PostgreSQL, two nodes with 8 GPUs. Jobs of some seconds come all the time, more than can run. At a random instant
slurmctld, sodad or both of the primary are killed (SIGKILL) or stopped (SIGSTOP); what was stopped goes on (SIGCONT) when
the other sodad leads or acts, or after 10 to 40 s. Both are hit together with what supervises them, as when a host fails.
Shortened: {slurm}, `cycle.interval_s` {CYCLE_S:g},
`cycle.lease_s` {LEASE_S:g}, `slurm.write_timeout_s` {WRITE_S:g}, `slurm.read_timeout_s` {READ_S:g}: a sodad of another host
may begin {LEASE_S + WRITE_S + 4:g} s after the last heartbeat.

{table(found)}
{jobs}
"""
