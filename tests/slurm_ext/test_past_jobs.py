"""Jobs of the past, from sacct's table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmReplyError
from slurm_soda.slurm_ext.read.past_jobs import (
    FIELDS,
    MOST_BYTES,
    PastJob,
    PastRunsReader,
    join_past_runs,
    parse_past_runs,
    past_runs_command,
)
from slurm_soda.slurm_ext.read.slurm_values import UNLIMITED_S
from tests.sampling import examples

GPU = "billing=4,cpu=4,gres/gpu=2,mem=4G,node=1"
SHARED = "billing=4,cpu=4,gres/sharedgpu=1,mem=4G,node=1"


def line(
    job: str, state: str, start: str, end: str, limit: str = "02:00:00", given: str = GPU, asked: str = GPU
) -> str:
    return f"{job}|alice|main|{state}|{start}|{end}|{limit}|{given}|{asked}\n"


def parse(*lines: str) -> list[PastJob]:
    return join_past_runs(parse_past_runs("".join(lines)))


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


@given(said=st.text(alphabet=st.sampled_from("7|abUNLIMITED:-0123456789gpu=,/\n\udcff "), max_size=300))
@settings(max_examples=examples(200))
def test_any_text_is_a_list(said: str) -> None:
    found = parse(said, "\n", line("9", "COMPLETED", "1000", "1100"))
    assert all(math.isfinite(job.run_s) and job.run_s > 0 for job in found)
    assert len(found) == 1


def test_a_list_of_which_no_line_can_be_read_is_an_error_that_shows_the_first_one() -> None:
    assert not parse("")
    assert not parse(line("7", "PENDING", "Unknown", "Unknown"))
    with pytest.raises(SlurmReplyError, match=r"no line of sacct's list can be read; the first one is '7\|al\\udcff'"):
        parse("7|al\udcff\n", "8\n")


def test_runs_of_several_answers_make_one_job() -> None:
    first, second = line("7", "PREEMPTED", "1000", "1100"), line("7", "COMPLETED", "1200", "1500")
    whole = parse(first, second)
    assert [job.run_s for job in whole] == [400.0]
    runs = [*parse_past_runs(second), *parse_past_runs(first)]
    assert join_past_runs(runs) == whole, "whatever came first"


@pytest.mark.parametrize("state", ["NODE_FAIL", "DEADLINE", "BOOT_FAIL", "REQUEUED", "PREEMPTED"])
def test_what_one_owner_ran_is_not_counted_for_another_who_got_the_id_later(state: str) -> None:
    lost = line("7", state, "1000", "900000")
    later = line("7", "COMPLETED", "910000", "910010").replace("alice", "bob")
    assert [(job.owner, job.run_s) for job in parse(lost, later)] == [("bob", 10.0)]


def test_a_run_that_ended_as_it_began_comes_last() -> None:
    found = parse(line("7", "COMPLETED", "1010", "1010"), line("7", "REQUEUED", "1000", "1010"))
    assert [job.run_s for job in found] == [10.0]


def test_an_exclusive_job_holds_its_gpus_once() -> None:
    both = "billing=4,cpu=4,gres/gpu=4,gres/sharedgpu=4,mem=4G,node=1"
    assert [job.gpus for job in parse(line("7", "COMPLETED", "1000", "1100", given=both))] == [4]


def test_nothing_that_people_write_is_asked_for() -> None:
    assert not {"JobName", "Comment", "WCKey", "Account"} & set(FIELDS)
    assert "--endtime=now-2days" in past_runs_command(4, 2)
    assert "--endtime=now" in past_runs_command(1, 0)


def reader(status: int | None, stdout: bytes = b"", *, cut: bool = False) -> PastRunsReader:
    def run(
        argv: Sequence[str], *, stdin: bytes, timeout_s: float, env: Mapping[str, str], most_bytes: int | None = None
    ) -> CompletedCommand:
        assert most_bytes is not None
        end = env["SODA_END_MARK"].encode()
        return CompletedCommand(tuple(argv), status, stdout + (b"" if cut else end), b"down", cut=cut)

    return PastRunsReader(run, 5.0)


def test_answers_that_fail_or_are_late_are_errors_and_of_a_long_one_the_beginning_counts() -> None:
    record = line("9", "COMPLETED", "1000", "1100").encode()
    assert [run.end_s for run in reader(0, record).read(1, 0)] == [1100.0]
    long = record + b"9|alice".ljust(MOST_BYTES - len(record), b"x")
    assert [run.end_s for run in reader(-9, long, cut=True).read(1, 0)] == [1100.0]
    for status in (1, None):
        with pytest.raises(SlurmCommandError, match="sacctmgr ping"):
            reader(status).read(1, 0)


def test_complaints_without_end_are_an_error_and_no_answer() -> None:
    with pytest.raises(SlurmCommandError, match="down"):
        reader(-9, line("9", "COMPLETED", "1000", "1100").encode(), cut=True).read(1, 0)


def test_an_error_names_the_days_the_time_limit_and_the_keys_to_change() -> None:
    with pytest.raises(SlurmCommandError) as caught:
        reader(None).read(63, 31)
    for part in (
        "63 to 31 days ago",
        "5 s (slurm.accounting_timeout_s)",
        "slurm.accounting_past_days",
        "sacctmgr ping",
    ):
        assert part in str(caught.value)
