"""Affinity of a job's threads: how cores are set where Slurm makes no cpuset groups. See sched_setaffinity(2).

A job may override it, so it has to be looked after; new threads and processes inherit it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice

from slurm_soda.agent.cpusets.cpu_list import Cpus
from slurm_soda.agent.cpusets.errors import CoresError

MAX_THREADS = 20_000
"""Threads, or processes, of one job that the agent looks after: some 0.2 s. More have what they inherited."""


def list_threads(pids: Iterable[int]) -> Iterator[int]:
    """Thread ids of processes, :data:`MAX_THREADS` at most; those that ended meanwhile are left out."""
    return islice(_list_threads(pids), MAX_THREADS)


def _list_threads(pids: Iterable[int]) -> Iterator[int]:
    for pid in pids:
        try:
            yield from sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208  (names only)
        except OSError:
            continue


def read_affinity(thread: int) -> Cpus | None:
    """The CPUs that a thread may use, or ``None`` if it ended."""
    try:
        return frozenset(os.sched_getaffinity(thread))
    except OSError:
        return None


def set_affinity(thread: int, cpus: Cpus) -> None:
    """Bind a thread; one that ended meanwhile needs nothing.

    Raises:
        CoresError: the kernel refuses.
    """
    try:
        os.sched_setaffinity(thread, cpus)
    except ProcessLookupError:
        return
    except OSError as error:
        raise CoresError(f"thread {thread} cannot be bound to CPUs {sorted(cpus)}: {error.strerror}") from error
