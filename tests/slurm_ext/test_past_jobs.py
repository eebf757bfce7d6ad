"""Jobs of the past, from sacct's table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmReplyError
from slurm_soda.slurm_ext.read.past_jobs import FIELDS, PastJob, PastJobsReader, parse_past_jobs, past_jobs_command
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.slurm_values import UNLIMITED_S
from tests.sampling import examples

FRAMING = ReplyFraming("abcdefgh")
GPU = "billing=4,cpu=4,gres/gpu=2,mem=4G,node=1"
SHARED = "billing=4,cpu=4,gres/sharedgpu=1,mem=4G,node=1"


def line(
    job: str, state: str, start: str, end: str, limit: str = "02:00:00", given: str = GPU, asked: str = GPU
) -> str:
    return f"{job}|alice|main|{state}|{start}|{end}|{limit}|{given}|{asked}\n"


def parse(*lines: str) -> list[PastJob]:
    return parse_past_jobs(("".join(lines) + FRAMING.end).encode("utf-8", "surrogateescape"), FRAMING)


def test_a_job_is_its_last_record_and_all_of_its_runs() -> None:
    assert parse(
        line("7", "REQUEUED", "1000", "1100"),
        line("7", "COMPLETED", "1200", "1500"),
        line("8", "CANCELLED by 0", "1000", "1040", "UNLIMITED", given="billing=1,cpu=1,node=1", asked="cpu=1"),
    ) == [
        PastJob(8, "alice", 0, "main", UNLIMITED_S, 40.0, 1040.0),
        PastJob(7, "alice", 2, "main", 7200.0, 400.0, 1500.0),
    ]


def test_an_id_that_was_given_twice_is_of_two_jobs() -> None:
    found = parse(line("7", "COMPLETED", "1000", "1100"), line("7", "FAILED", "2000", "2030"))
    assert [job.run_s for job in found] == [100.0, 30.0]


@pytest.mark.parametrize(
    "record",
    [
        line("7", "RUNNING", "1000", "Unknown"),
        line("7", "PENDING", "Unknown", "Unknown"),
        line("7", "CANCELLED by 0", "None", "1000"),
        line("7", "REQUEUED", "1000", "1100"),
        line("7", "COMPLETED", "1000", "1000"),
        line("7", "COMPLETED", "1100", "1000"),
        line("7", "COMPLETED", "1000", "1100", given=SHARED, asked=SHARED),
        line("7", "COMPLETED", "noon", "1100"),
        line("x", "COMPLETED", "1000", "1100"),
        line("7", "COMPLETED", "1000", "1100", "soon"),
        "7|alice|COMPLETED\n",
        "\n",
    ],
)
def test_what_shows_no_run_time_teaches_nothing_and_hides_nobody_else(record: str) -> None:
    assert [job.run_s for job in parse(record, line("9", "COMPLETED", "1000", "1100"))] == [100.0]


@given(said=st.binary(max_size=400))
@settings(max_examples=examples(200))
def test_any_reply_is_a_list_or_an_error(said: bytes) -> None:
    for raw in (said, said + FRAMING.end.encode()):
        try:
            found = parse_past_jobs(raw, FRAMING)
        except SlurmReplyError:
            continue
        assert all(math.isfinite(job.run_s) and job.run_s > 0 for job in found)


def test_nothing_that_people_write_is_asked_for() -> None:
    assert not {"JobName", "Comment", "WCKey", "Account"} & set(FIELDS)
    assert "--endtime=now-2days" in past_jobs_command(4, 2)
    assert "--endtime=now" in past_jobs_command(1, 0)


def reader(status: int | None, stdout: bytes = b"", *, cut: bool = False) -> PastJobsReader:
    def run(
        argv: Sequence[str], *, stdin: bytes, timeout_s: float, env: Mapping[str, str], most_bytes: int | None = None
    ) -> CompletedCommand:
        assert most_bytes is not None
        end = env["SODA_END_MARK"].encode()
        return CompletedCommand(tuple(argv), status, stdout + (b"" if cut else end), b"down", cut=cut)

    return PastJobsReader(run, 5.0)


def test_answers_that_fail_are_cut_or_late_are_errors() -> None:
    assert [job.run_s for job in reader(0, line("9", "COMPLETED", "1000", "1100").encode()).read(1, 0)] == [100.0]
    with pytest.raises(SlurmReplyError, match="longer than"):
        reader(-9, b"x", cut=True).read(1, 0)
    for status in (1, None):
        with pytest.raises(SlurmCommandError, match="sacctmgr ping"):
            reader(status).read(1, 0)
