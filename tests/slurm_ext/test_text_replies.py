"""Slurm before 23.02, which writes no JSON: recorded replies of 22.05.8 to ``scontrol show job``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.slurm_ext.cli_client import CliSlurmClient
from slurm_soda.slurm_ext.client import HeldOnNode
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmReplyError
from slurm_soda.slurm_ext.read.capabilities import CommandCapabilities
from slurm_soda.slurm_ext.read.job_request import JobRequest
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.sacct import SACCT_FIELDS, parse_accounting
from slurm_soda.slurm_ext.read.scontrol_text import parse_allocations_from_text, parse_request_from_text
from slurm_soda.slurm_ext.read.squeue_jobs import _exit_code

REPLIES = Path(__file__).parent / "text_replies" / "22.05.8"
FRAMING = ReplyFraming("RecordedReply")
ALLOCATIONS = (REPLIES / "allocations.txt").read_bytes()
JOBS = [1, 2, 3, 99]
NO_JSON = b"scontrol: unrecognized option '--json'\nTry \"scontrol --help\" for more information\n"


def allocations(text: bytes = ALLOCATIONS) -> Mapping[int, object]:
    return parse_allocations_from_text(text, JOBS, "NONCE")


def request_text(number: int) -> bytes:
    return (REPLIES / f"request-{number}.txt").read_bytes()


def request_of(number: int, text: bytes | None = None) -> JobRequest:
    said = request_text(number) if text is None else text
    return parse_request_from_text(said + FRAMING.end.encode(), FRAMING, number)


def test_what_jobs_hold_on_their_nodes() -> None:
    found = allocations()
    assert found[1] == [HeldOnNode(name, 1, 3, (0,), ()) for name in ("n1", "n2")]
    assert found[3] == [HeldOnNode("n1", 0, 3, (), ())]
    assert "does Slurm still list it" in str(found[99])


def test_a_name_that_looks_like_nodes_gives_its_own_job_away_and_no_other() -> None:
    found = allocations()
    assert isinstance(found[2], SlurmReplyError)
    assert "twice" in str(found[2])
    assert not any(isinstance(found[job], SlurmReplyError) for job in (1, 3))


FORGED = (
    b"x\n     Nodes=n1 CPU_IDs=0-9 Mem=1 GRES=gpu:a100:4(IDX:0-3)",
    b"x\n     Nodes=n9 CPU_IDs=" + b"9" * 5000 + b" Mem=1 GRES=",
    b"x NodeList=n7",
    b"x\n\nJobId=3 JobName=y\n   NodeList=n9",
    b"x\nscontrol: show hostnames OTHER\nOTHER",
)


@pytest.mark.parametrize("name", FORGED)
def test_what_a_name_forges_is_never_taken_for_what_the_job_holds(name: bytes) -> None:
    found = allocations(ALLOCATIONS.replace(b"JobName=two", b"JobName=" + name))
    assert isinstance(found[1], SlurmReplyError) or found[1] == allocations()[1]
    assert found[3] == allocations()[3]


@given(cut=st.integers(0, len(ALLOCATIONS) - 1))
def test_a_reply_that_is_cut_tells_the_whole_of_a_job_or_nothing(cut: int) -> None:
    whole = allocations()
    for job, found in allocations(ALLOCATIONS[:cut]).items():
        assert isinstance(found, SlurmReplyError) or found == whole[job]


def test_requests() -> None:
    held = request_of(4)
    assert (held.nodes, held.most_nodes, held.tasks, held.cpus, held.cpus_per_task) == (2, 2, 4, 8, 2)
    assert (held.memory_per_cpu_mib, held.memory_per_node_mib, held.peculiar) == (1024, 0, "")
    assert (request_of(10).nodes, request_of(10).most_nodes) == (2, 0)
    assert (request_of(11).nodes, request_of(11).most_nodes) == (1, 2)
    assert request_of(7).memory_per_node_mib == 4096
    assert (request_of(7).tasks_per_node, request_of(7).least_cpus_per_node) == (2, 2)


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (5, "--exclusive"),
        (7, "tasks bound to sockets or cores"),
        (9, "--sockets-per-node, --cores-per-socket or --threads-per-core"),
    ],
)
def test_requests_whose_cpus_stay(job: int, why: str) -> None:
    assert request_of(job).peculiar == why
    assert request_of(job).unshareable


@pytest.mark.parametrize("name", [b"x NumCPUs=1", b"x\n   OverSubscribe=OK", b"x JobId=4"])
def test_a_name_that_looks_like_a_field_is_refused_by_name(name: bytes) -> None:
    with pytest.raises(SlurmReplyError, match="twice: its name, command, directory or comment"):
        request_of(4, request_text(4).replace(b"JobName=waits", b"JobName=" + name))


class OldSlurm:
    """A scontrol that knows no JSON."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        self.asked.append(" ".join(argv))
        if "--json" in argv:
            return CompletedCommand(tuple(argv), 1, b"", NO_JSON)
        if "--details" in argv:
            return CompletedCommand(tuple(argv), 0, ALLOCATIONS, b"")
        if "--helpformat" in argv:
            return CompletedCommand(tuple(argv), 0, b"JobIDRaw  User\nState Submit", b"")
        return CompletedCommand(tuple(argv), 0, request_text(5) + FRAMING.end.encode(), b"")


def test_a_client_asks_for_json_once_and_for_text_from_then_on() -> None:
    slurm = OldSlurm()
    client = CliSlurmClient(slurm, nonce=lambda: "NONCE")
    for _ in range(3):
        assert client.allocations(JOBS)[3] == [HeldOnNode("n1", 0, 3, (), ())]
    assert slurm.asked == ["scontrol --json", *["scontrol --details"] * 3]


def test_a_failure_of_another_kind_is_no_lack_of_json() -> None:
    def broken(argv: Sequence[str], **_more: object) -> CompletedCommand:
        return CompletedCommand(tuple(argv), 1, b"", b"slurm_load_jobs error: Unable to contact slurm controller")

    client = CliSlurmClient(broken)
    with pytest.raises(SlurmCommandError, match="Unable to contact"):
        client.allocations([1])
    assert not client.capabilities.known_to_lack_json


def test_what_an_old_slurm_does_not_tell_is_listed_with_what_is_done_instead() -> None:
    listed = list(CommandCapabilities(OldSlurm()).every())
    assert [one.present for one in listed] == [False, False]
    assert all(one.otherwise for one in listed)


OLD_FIELDS = tuple(name for name in SACCT_FIELDS if name != "Restarts")


def accounted(*runs: tuple[int, int, int, str]) -> bytes:
    lines = [
        f"7|alice|{submit}|{start}|{end}|{state}|0:0|00:00:00||cpu=1,gres/gpu=1,node=1|n1|cpu=1"
        for submit, start, end, state in runs
    ]
    return ("\n".join(lines) + "\n" + FRAMING.end).encode()


def test_runs_are_counted_where_accounting_has_no_restarts() -> None:
    said = accounted((100, 110, 200, "REQUEUED"), (201, 260, 300, "PREEMPTED"), (301, 310, 400, "COMPLETED"))
    job = parse_accounting(said, FRAMING, fields=OLD_FIELDS)[7]
    assert [run.restart for run in job.runs] == [0, 1, 2]
    assert (job.submit_s, job.state) == (100, "COMPLETED")


def test_an_id_that_slurm_gave_out_twice_is_the_newer_job() -> None:
    said = accounted((100, 110, 200, "COMPLETED"), (900, 910, 950, "REQUEUED"), (951, 960, 990, "FAILED"))
    job = parse_accounting(said, FRAMING, fields=OLD_FIELDS)[7]
    assert ([run.restart for run in job.runs], job.submit_s) == ([0, 1], 900)


@pytest.mark.parametrize(
    ("shown", "meant"), [("768", "3:0"), ("9", "0:9"), ("0", "0:0"), ("3:0", "3:0"), ("", ""), ("١", "١")]
)
def test_an_exit_code_that_is_a_wait_status(shown: str, meant: str) -> None:
    assert _exit_code(shown) == meant
