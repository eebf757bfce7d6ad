"""Which of a job's cores it keeps when it gets fewer: an order of all of them, of which any first part is a good choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurm_soda.agent.cpusets.cpu_list import Cpus, parse_cpu_list

SYSFS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class CpuLayout:
    """What is known of the node and of the job when its cores are put in order."""

    near: Cpus = frozenset()
    """CPUs on the side of the job's GPUs; empty: not known."""
    shares: Sequence[Cpus] = ()
    """Parts of the job that are bound to some of its cores each (its tasks): each keeps some as long as that is possible."""
    siblings: Mapping[int, int] = field(default_factory=dict)
    """The first hardware thread of each CPU's core; a CPU that is missing stands for itself."""


def order_cpus(working: Cpus, allocated: Cpus, layout: CpuLayout) -> tuple[int, ...]:
    """All allocated CPUs, those first that the job keeps longest.

    First those that it works on now, then those near its GPUs, then one core (all of its hardware threads, since Slurm
    gives and takes whole cores) of each share in turn, then by number.
    """
    place: dict[int, tuple[int, int]] = {}
    for number, share in enumerate([*layout.shares, allocated]):
        mine = share - place.keys()
        cores = sorted({layout.siblings.get(cpu, cpu) for cpu in mine})
        place |= {cpu: (cores.index(layout.siblings.get(cpu, cpu)), number) for cpu in mine}
    return tuple(
        sorted(
            allocated,
            key=lambda cpu: (cpu not in working, bool(layout.near) and cpu not in layout.near, place[cpu], cpu),
        )
    )


def threads_per_core(allocated: Cpus, counted: int, siblings: Mapping[int, int]) -> int:
    """Hardware threads to each CPU that Slurm counts: 1, or a whole core's where a node's CPUs are its cores.

    0 where a job may use more than it was given; ``counted`` of 0 means that nobody knows.
    """
    if len(allocated) <= counted or not counted:
        return 1
    threads = Counter(siblings.get(cpu, cpu) for cpu in allocated)
    return min(threads.values()) if len(threads) <= counted and len(set(threads.values())) == 1 else 0


def read_siblings(cpus: Cpus, sysfs: Path = SYSFS) -> dict[int, int]:
    """The first hardware thread of each core, as far as the kernel shows it."""
    found: dict[int, int] = {}
    for cpu in cpus:
        try:
            found[cpu] = min(parse_cpu_list((sysfs / f"cpu{cpu}/topology/thread_siblings_list").read_text("ascii")))
        except (OSError, ValueError):
            continue
    return found
