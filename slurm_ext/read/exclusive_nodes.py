"""Whether a job keeps others off its nodes, as squeue tells it.

Slurm 26.05 has the field ``Exclusive`` for it, and shows ``OverSubscribe=NO`` for ordinary jobs. Older versions have
OverSubscribe alone, where NO means ``--exclusive``; their squeue leaves the cell of a field that it does not know empty.
JSON is no source: that of 26.05 shows the same for every job.
"""

from __future__ import annotations

from enum import Enum

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


_BY_EXCLUSIVE = {one.value.upper(): one for one in ExclusiveNodes}
_BY_OVERSUBSCRIBE = _BY_EXCLUSIVE | {
    "NO": ExclusiveNodes.ALL,
    "OK": ExclusiveNodes.NOBODY,
    "YES": ExclusiveNodes.NOBODY,
}


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
    oversubscribe, exclusive = EXCLUSIVE_FIELDS
    return {"SQUEUE_FORMAT2": f"JobID:{framing.field},{oversubscribe}:{framing.field},{exclusive}:{framing.record}"}


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
