"""What an agent tells of NVIDIA MPS: which jobs run under which control daemon, and when a fault ended their programs.

A fatal fault of one client of MPS ends all clients that share a GPU with it, directly or through others, and MPS does not
tell whose it was (docs/design/0014). So a fault names every job under the daemon, with its GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from slurm_soda.wire.run_fields import MAX_GPUS, RunFields

MAX_MPS_JOBS = 1024
"""Jobs under MPS on one node."""
MAX_MPS_FAULTS = 64
MAX_PAIRS_OF_FAULT = 256
"""A server of MPS has 48 clients at most; who tells of more pairs than such jobs make is not believed."""


@dataclass(frozen=True, slots=True)
class MpsJob:
    """A job under a control daemon of a node."""

    job_id: int
    daemon: str
    """A user's id, or ``all``. Only jobs of the same daemon share a GPU by MPS; others take turns on it."""
    gpus: tuple[int, ...]
    """Absolute indices on the node."""

    @classmethod
    def from_dict(cls, data: object) -> MpsJob:
        """Check and take one that came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("MPS job", data)
        return cls(
            job_id=read.job_id(), daemon=read.name("daemon"), gpus=read.wholes("gpus", MAX_GPUS, 0, 65_535)
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class MpsFault:
    """A fatal fault of a client, seen by the agent; one that comes twice is the same again."""

    at_s: float
    """When the agent saw it, Unix seconds."""
    jobs: tuple[MpsJob, ...]
    """All that were under the daemon then."""

    @classmethod
    def from_dict(cls, data: object) -> MpsFault:
        """Check and take one that came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("MPS fault", data)
        return cls(
            at_s=read.unix_s("at_s"),
            jobs=tuple(MpsJob.from_dict(item) for item in read.objects("jobs", MAX_MPS_JOBS)),
        )

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs of jobs, the smaller id first, that may have ended each other: to be parted, and not to share again."""
        return tuple(islice(pairs_under_mps(self.jobs), MAX_PAIRS_OF_FAULT))


def pairs_under_mps(jobs: Iterable[MpsJob]) -> Iterator[tuple[int, int]]:
    """Pairs of jobs, the smaller id first, that share a GPU by MPS; what two jobs share by turns is not among them."""
    ordered = sorted(jobs, key=lambda job: job.job_id)
    return (
        (one.job_id, other.job_id)
        for at, one in enumerate(ordered)
        for other in ordered[at + 1 :]
        if one.daemon == other.daemon and set(one.gpus) & set(other.gpus)
    )
