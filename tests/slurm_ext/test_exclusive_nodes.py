"""From whom a job keeps its nodes, over recorded replies: of jobs with each kind of ``--exclusive``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from slurm_soda.slurm_ext.cli_client import CliSlurmClient
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.exclusive_nodes import ExclusiveNodes, parse_exclusive, parse_exclusive_job, parse_shared
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.squeue_waiting import parse_waiting

REPLIES = Path(__file__).parent / "replies"
VERSIONS = sorted(path.name for path in REPLIES.iterdir())
FRAMING = ReplyFraming("RecordedReply")


def reply(version: str, name: str) -> bytes:
    return (REPLIES / version / f"{name}.txt").read_bytes()


@pytest.mark.parametrize("version", VERSIONS)
def test_only_a_job_alone_on_its_nodes_takes_them_whole(version: str) -> None:
    found = parse_waiting(reply(version, "waiting"), FRAMING)
    assert {job: of.whole_nodes for job, of in found.items()} == {
        1: False,  # nothing said
        2: True,  # --exclusive
        3: False,  # --exclusive=user
        4: False,  # on 26.05 --oversubscribe, on 24.11 --exclusive=mcs
        5: True,  # --exclusive=topo
        6: False,  # the other of both
    }


@pytest.mark.parametrize(("version", "commands"), [("24.11.5", ["scontrol"]), ("26.05.5", ["scontrol", "squeue"])])
def test_the_cores_of_an_exclusive_job_are_its_own(version: str, commands: list[str]) -> None:
    """squeue is asked only where JSON shows the same for it as for any other job."""
    asked = []

    def slurm(
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        asked.append("squeue" if "squeue" in argv else "scontrol")
        said = "exclusive-2" if "squeue" in argv else "request-2"
        return CompletedCommand(tuple(argv), 0, reply(version, said), b"")

    request = CliSlurmClient(slurm, nonce=lambda: FRAMING.nonce).request(2)
    assert (request.cpus, request.peculiar) == (1, "--exclusive")
    assert asked == commands


OLDER = {"meta": {"slurm": {"version": {"major": "24", "micro": "5", "minor": "11"}}}}


@pytest.mark.parametrize(
    ("shared", "found"),
    [
        ([], ExclusiveNodes.NOBODY),  # nothing said
        (["none"], ExclusiveNodes.ALL),  # --exclusive
        (["user"], ExclusiveNodes.USERS),
        (["mcs"], ExclusiveNodes.MCS),
        (["topo"], ExclusiveNodes.TOPOLOGY),
        (["oversubscribe"], ExclusiveNodes.NOBODY),
        (["rack"], None),
        ("none", None),  # as Slurm 22.05 wrote it
        (None, None),
    ],
)
def test_what_json_of_24_11_tells(shared: object, found: ExclusiveNodes | None) -> None:
    assert parse_shared(OLDER, {"shared": shared}) is found
    assert parse_shared({"meta": {}}, {"shared": shared}) is None
    newer = {"meta": {"slurm": {"version": {"major": "26", "micro": "0", "minor": "05"}}}}
    assert parse_shared(newer, {"shared": shared}) is None


@pytest.mark.parametrize(("oversubscribe", "exclusive"), [("NO", "RACK"), ("FORCE", ""), ("", "")])
def test_a_word_that_is_not_known_is_refused(oversubscribe: str, exclusive: str) -> None:
    with pytest.raises(SlurmReplyError, match="does not know"):
        parse_exclusive(oversubscribe, exclusive, "job 7")
    reply = FRAMING.record.join([FRAMING.field.join(["7", oversubscribe, exclusive]), f"\n{FRAMING.end}"]).encode()
    with pytest.raises(SlurmReplyError, match="job 7 has OverSubscribe"):
        parse_exclusive_job(reply, FRAMING, 7)


def test_such_a_job_alone_is_left_out() -> None:
    whole = reply("26.05.5", "waiting")
    assert sorted(parse_waiting(whole.replace(b"TOPO", b"RACK"), FRAMING)) == [1, 2, 3, 4, 6]
    fifth = whole.split(FRAMING.record.encode())[1].replace(b"TOPO", b"RACK").lstrip()
    with pytest.raises(SlurmReplyError, match="RACK"):
        parse_waiting(fifth + FRAMING.record.encode() + b"\n" + FRAMING.end.encode(), FRAMING)


def test_another_job_of_the_same_array_is_not_taken_for_it() -> None:
    rows = [FRAMING.field.join(cells) for cells in (["8", "NO", "NODE"], ["7", "NO", "NO"])]
    reply = ("".join(f"{row}{FRAMING.record}\n" for row in rows) + FRAMING.end).encode()
    assert parse_exclusive_job(reply, FRAMING, 7) is ExclusiveNodes.NOBODY
    with pytest.raises(SlurmReplyError, match="does not have it"):
        parse_exclusive_job(reply, FRAMING, 9)
