"""``sprio``: the SiteFactor of waiting jobs."""

from __future__ import annotations

import re

from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.slurm_values import parse_integer

SPRIO_COMMAND = ("sprio", "--noheader", "--format=%i %S")

NO_PRIORITIES = re.compile(r"not running a supported priority plugin\s*\(([a-z/_]+)\)")
"""What sprio says, with status 1, where PriorityType is priority/basic."""


NOT_COMPUTED = -(2**31)
"""What sprio prints until Slurm has computed a job's priority: nothing, less the offset NICE_OFFSET of slurm.h."""


def parse_site_factors(stdout: bytes, framing: ReplyFraming) -> dict[int, int]:
    """SiteFactor by job id, zeros included; a job of several partitions has several lines.

    sprio leaves out held jobs and those before their begin time; those whose priority Slurm has not computed yet are
    left out as well.

    Raises:
        SlurmReplyError: the reply is cut short or a line is not two numbers.
    """
    return parse_sprio_lines(framing.body(stdout, "sprio's list of priorities"))


def parse_sprio_lines(text: str) -> dict[int, int]:
    """The same from a reply that is known to be whole.

    Raises:
        SlurmReplyError: a line is not two numbers.
    """
    factors: dict[int, int] = {}
    for line in text.split("\n"):
        words = line.split()
        if not words:
            continue
        if len(words) != 2:
            raise SlurmReplyError(f"sprio's line {line!r} is not a job and its site factor")
        job_id, factor = parse_integer(words[0], "job id"), parse_integer(words[1], f"site factor of job {words[0]}")
        if factor != NOT_COMPUTED:
            factors[job_id] = factor
    return factors
