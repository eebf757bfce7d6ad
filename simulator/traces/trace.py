"""What reading a trace gives: the jobs, what was left out and why, and what the site itself observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.simulator.workload import Workload


@dataclass(frozen=True, slots=True)
class SkippedEntry:
    """Something of a trace that a lenient reader left out, because strict reading would have ended in an error."""

    line: int
    """1 first; 0 where the reason is not one line of the file."""
    reason: str
    """What is wrong and what is allowed, as in the strict reader's error."""
    value: str
    """The text that cannot be used, or the job's name."""


@dataclass(frozen=True, slots=True)
class JobTrace:
    """A workload as a file describes it. Columns are in the workload's row order."""

    workload: Workload
    format: str
    """Name of the format that the file was read as."""
    skipped: tuple[SkippedEntry, ...] = ()
    """Ascending by line; empty after strict reading."""
    unused: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """How many records of each kind are sound but no job to simulate, by a name that people read (``cancelled before
    the start``); they are no errors, and strict reading counts them too."""
    line: IntColumn | None = None
    """Line of the file that each job came from."""
    observed_start_s: FloatColumn | None = None
    """When each job started at the site, on the clock of ``workload.submit_s``; NaN: unknown. None: the format does not
    say."""
    observed_end_s: FloatColumn | None = None
    """When each job ended at the site, as above."""
