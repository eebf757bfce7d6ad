"""Parts of priorities from sprio, and the weights from scontrol."""

from __future__ import annotations

import pytest

from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.priority_parts import ShownPriority, parse_most_earned, parse_priority_parts
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming

FRAMING = ReplyFraming("00")


def reply(text: str) -> bytes:
    return (text + FRAMING.end).encode()


def test_points_are_added_up_and_the_best_partition_counts() -> None:
    text = """            7          0       1000        500          0       4000         12
            8         32          0        500          0      10000          0
            8         32          0       1000          0      10000          0
            9 -2147483648         0          0          0          0          0
"""
    parts = parse_priority_parts(reply(text), FRAMING)
    assert parts == {7: ShownPriority(1500, 4012), 8: ShownPriority(1000, 10_000)}


@pytest.mark.parametrize("line", ["7 0 1 2 3 4", "7 0 1 2 3 4 5 6", "seven 0 1 2 3 4 5", "7 0 1 x 3 4 5"])
def test_odd_lines_are_refused(line: str) -> None:
    with pytest.raises(SlurmReplyError):
        parse_priority_parts(reply(line + "\n"), FRAMING)


def test_a_reply_that_is_cut_short_is_refused() -> None:
    with pytest.raises(SlurmReplyError):
        parse_priority_parts(b"7 0 1000 500 0 4000 12\n", FRAMING)


def test_weights() -> None:
    text = "PriorityWeightAge       = 1000\nPriorityWeightFairShare = 10000\n"
    assert parse_most_earned(reply(text), FRAMING) == 11_000
    with pytest.raises(SlurmReplyError, match="PriorityWeightFairShare"):
        parse_most_earned(reply("PriorityWeightAge       = 1000\n"), FRAMING)
