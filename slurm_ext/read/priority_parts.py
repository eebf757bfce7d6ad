"""``sprio``: of what Slurm's priority of waiting jobs is made, as far as bands depend on it."""

from __future__ import annotations

from typing import NamedTuple

from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.slurm_config import parse_config
from slurm_soda.slurm_ext.read.slurm_values import parse_integer

PRIORITY_PARTS_COMMAND = ("sprio", "--noheader", "--format=%i %S %Q %P %B %F %A")
"""Job, and points by site factor, QOS, partition, association, fair share and age."""
_WEIGHTS = ("PriorityWeightAge", "PriorityWeightFairShare")
_NOT_COMPUTED = -(2**31)


class ShownPriority(NamedTuple):
    """Points of one waiting job."""

    granted: int
    """By QOS, partition and association."""
    earned: int
    """By fair share and age."""


def parse_priority_parts(stdout: bytes, framing: ReplyFraming) -> dict[int, ShownPriority]:
    """Points by job id; of a job in several partitions those of the line with the largest sum.

    sprio leaves out held jobs and those before their begin time; those whose priority Slurm has not computed yet are left
    out as well.

    Raises:
        SlurmReplyError: the reply is cut short or a line is not seven numbers.
    """
    found: dict[int, ShownPriority] = {}
    for line in framing.body(stdout, "sprio's list of priorities").split("\n"):
        words = line.split()
        if not words:
            continue
        if len(words) != 1 + len(_COLUMNS):
            raise SlurmReplyError(f"sprio's line {line!r} is not a job and its {', '.join(_COLUMNS)}")
        job_id = parse_integer(words[0], "job id")
        site, qos, partition, association, fair_share, age = (
            parse_integer(word, f"points by {name} of job {words[0]}")
            for word, name in zip(words[1:], _COLUMNS, strict=True)
        )
        shown = ShownPriority(qos + partition + association, fair_share + age)
        if site != _NOT_COMPUTED and sum(shown) >= sum(found.get(job_id, shown)):
            found[job_id] = shown
    return found


_COLUMNS = ("site factor", "QOS", "partition", "association", "fair share", "age")


def parse_most_earned(stdout: bytes, framing: ReplyFraming) -> int:
    """Points that fair share and age can give together, of ``scontrol show config``.

    Raises:
        SlurmReplyError: the reply is cut short, or does not name the weights.
    """
    config = parse_config(framing.body(stdout, "scontrol show config"))
    for key in _WEIGHTS:
        if key not in config:
            raise SlurmReplyError(f"scontrol show config names no {key}")
    return sum(parse_integer(config[key], key) for key in _WEIGHTS)
