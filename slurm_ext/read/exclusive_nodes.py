"""Whether a job keeps others off its nodes, as squeue or JSON tells it.

Slurm 26.05 has the field ``Exclusive`` for it, and shows ``OverSubscribe=NO`` for ordinary jobs. Older versions have
OverSubscribe alone, where NO means ``--exclusive``; their squeue leaves the cell of a field that it does not know empty.
JSON has OverSubscribe as ``shared``, which 26.05 leaves empty for every job.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming

EXCLUSIVE_FIELDS = ("OverSubscribe", "Exclusive")


class ExclusiveNodes(Enum):
    """From whom a job keeps its nodes (``--exclusive``)."""

    NOBODY = "no"
    ALL = "node"
    USERS = "user"
    """Other users, not other jobs of its own user; it holds only the cores that it asks for."""
    MCS = "mcs"
    """Jobs of another MCS label; else as :attr:`USERS`."""
    TOPOLOGY = "topo"
    """Everybody, on all nodes of a segment of the network."""

    @property
    def whole_nodes(self) -> bool:
        """The job gets all cores of its nodes."""
        return self in (ExclusiveNodes.ALL, ExclusiveNodes.TOPOLOGY)

    @property
    def keeps_off(self) -> bool:
        """Some jobs cannot start on its nodes."""
        return self is not ExclusiveNodes.NOBODY


_BY_EXCLUSIVE = {one.value.upper(): one for one in ExclusiveNodes}
_BY_OVERSUBSCRIBE = _BY_EXCLUSIVE | {
    "NO": ExclusiveNodes.ALL,
    "OK": ExclusiveNodes.NOBODY,
    "YES": ExclusiveNodes.NOBODY,
}

_BY_SHARED = {
    (): ExclusiveNodes.NOBODY,
    ("none",): ExclusiveNodes.ALL,
    ("oversubscribe",): ExclusiveNodes.NOBODY,
    ("user",): ExclusiveNodes.USERS,
    ("mcs",): ExclusiveNodes.MCS,
    ("topo",): ExclusiveNodes.TOPOLOGY,
}
_SHARED_SAYS_NOTHING_FROM = (26, 5)
"""The version of Slurm whose JSON has one ``shared`` for all jobs."""


def parse_shared(reply: Mapping[str, Any], job: Mapping[str, Any]) -> ExclusiveNodes | None:
    """What ``scontrol --json`` tells of a job; ``None`` where only squeue does: Slurm 22.05 wrote it in another form.

    Args:
        reply: the whole answer, which names Slurm's version.
        job: the job in it.

    Raises:
        LookupError, TypeError, ValueError: the answer is of another form.
    """
    version = reply.get("meta", {}).get("slurm", {}).get("version")
    shared = job.get("shared")
    if not version or not isinstance(shared, list):
        return None
    if (int(version["major"]), int(version["minor"])) >= _SHARED_SAYS_NOTHING_FROM:
        return None
    return _BY_SHARED.get(tuple(shared))


def parse_exclusive(oversubscribe: str, exclusive: str, what: str) -> ExclusiveNodes:
    """The two cells of :data:`EXCLUSIVE_FIELDS`.

    Raises:
        SlurmReplyError: a word that this version does not know.
    """
    found = _BY_EXCLUSIVE.get(exclusive) if exclusive else _BY_OVERSUBSCRIBE.get(oversubscribe)
    if found is None:
        raise SlurmReplyError(
            f"{what} has OverSubscribe={oversubscribe[:60]!r} and Exclusive={exclusive[:60]!r},"
            " which this version does not know"
        )
    return found


def exclusive_command(job_id: int) -> tuple[str, ...]:
    """The command for one job; its format is in :func:`exclusive_environment`."""
    return ("squeue", "--noheader", "--all", "--array", "--states=all", f"--jobs={job_id}")


def exclusive_environment(framing: ReplyFraming) -> dict[str, str]:
    """The format of :func:`exclusive_command`."""
    return framing.squeue_env(("JobID", *EXCLUSIVE_FIELDS))


def parse_exclusive_job(stdout: bytes, framing: ReplyFraming, job_id: int) -> ExclusiveNodes:
    """The reply to :func:`exclusive_command`.

    Raises:
        SlurmReplyError: the reply is cut short, lacks the job, or has a word that this version does not know.
    """
    what = f"squeue's picture of job {job_id}"
    for number, oversubscribe, exclusive in framing.records(stdout, 3, what):
        if number == str(job_id):
            return parse_exclusive(oversubscribe, exclusive, f"job {job_id}")
    raise SlurmReplyError(f"{what} does not have it; has it ended?")
