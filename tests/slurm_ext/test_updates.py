from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.slurm_ext.cli_client import CliSlurmClient
from slurm_soda.slurm_ext.client import JobUpdate, JobUpdateResult
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmReplyError
from slurm_soda.slurm_ext.write.scontrol_updates import parse_update_errors, refusal_of_update, scontrol_script

NONCE = "abcdefgh"


def one(name: str, value: str, job_id: int = 7) -> JobUpdate:
    return JobUpdate(job_id, ((name, value),))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SiteFactor", "0"), ("SiteFactor", "-2147483645"), ("SiteFactor", "2147483645"), ("SiteFactor", "-5"),
        ("StartTime", "now"), ("StartTime", "now+60"), ("StartTime", "2026-11-20T22:48:24"), ("CPUsPerTask", "8"),
        ("NumCPUs", "28"), ("MinCPUsNode", "1"), ("TresPerNode", "gres/gpu:4"),
        ("TresPerNode", "gres/cog:g0:1,gres/cog:g1:1"), ("ReqNodeList", "n[1-3,7],login"), ("ReqNodeList", ""),
        ("TresPerJob", "gres/gpu:128"), ("TresPerTask", "cpu:2,gres/gpu=1"), ("TresPerNode", "gres/gpu"), ("Extra", ""),
        ("TresPerNode", ""), ("Partition", "main,cpu"),
    ],
)  # fmt: skip
def test_what_may_be_sent(name: str, value: str) -> None:
    assert refusal_of_update(one(name, value)) == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SiteFactor", "abc"), ("SiteFactor", "1.5"), ("SiteFactor", "2147483646"), ("SiteFactor", ""),
        ("SiteFactor", "1 Priority=9"), ("SiteFactor", "1\nupdate JobId=8 Priority=9"), ("SiteFactor", "١"),
        ("StartTime", "tomorrow"), ("CPUsPerTask", "0"), ("NumCPUs", "-1"), ("NumCPUs", "9999999"),
        ("TresPerNode", "gres/gpu:65"), ("TresPerNode", "gres/gpu:0"), ("TresPerNode", "gpu:2"),
        ("TresPerNode", "gres/gpu:2,"), ("ReqNodeList", "n1 n2"), ("ReqNodeList", "$(id)"), ("ReqNodeList", '"n1"'),
        ("Priority", "5"), ("Nice", "-5"), ("AdminComment", "mine"), ("JobId", "8"), ("Partition", ""),
        ("Extra", "mine"), ("Extra", "soda-guest:1,hosts=1,gpus=1,undo=$(id)"), ("TresPerTask", "bad"),
        ("TresPerTask", "mem:2"), ("TresPerSocket", ""),
    ],
)  # fmt: skip
def test_what_is_never_sent(name: str, value: str) -> None:
    assert name in refusal_of_update(one(name, value))


def test_an_update_names_a_job_and_a_field() -> None:
    assert refusal_of_update(JobUpdate(0, (("SiteFactor", "1"),)))
    assert refusal_of_update(JobUpdate(7, ()))


@given(st.text(max_size=30))
def test_no_text_makes_a_second_line_or_a_second_field(value: str) -> None:
    update = one("ReqNodeList", value)
    if not refusal_of_update(update):
        lines = scontrol_script([update], NONCE).decode("ascii").splitlines()
        assert len(lines) == 2
        assert len(lines[0].split()) == 3


def test_errors_belong_to_the_update_before_their_mark() -> None:
    stderr = f"""invalid keyword: soda-{NONCE}-0
Invalid job id specified for job 9
invalid keyword: soda-{NONCE}-1
Update of this parameter is not supported: X=1
Request aborted
invalid keyword: soda-{NONCE}-2
"""
    assert parse_update_errors(stderr.encode(), 4, NONCE) == [
        "", "Invalid job id specified for job 9",
        "Update of this parameter is not supported: X=1; Request aborted", None,
    ]  # fmt: skip


def test_tasks_of_an_array_that_run_or_ended_are_no_error() -> None:
    mark = f"invalid keyword: soda-{NONCE}-0\n"
    past = "10026_1-2: Job is no longer pending execution\n10026_3: Job has already finished\n"
    assert parse_update_errors(f"{past}{mark}".encode(), 1, NONCE) == [""]
    other = "10026_4: Invalid qos specification"
    assert parse_update_errors(f"{past}{other}\n{mark}".encode(), 1, NONCE) == [other]


@given(st.integers(0, 6), st.data())
def test_a_cut_never_makes_a_success(count: int, data: st.DataObject) -> None:
    whole = "".join(f"no such job {at}\ninvalid keyword: soda-{NONCE}-{at}\n" for at in range(count)).encode()
    cut = data.draw(st.integers(0, len(whole)))
    found = parse_update_errors(whole[:cut], count, NONCE)
    assert len(found) == count
    assert "" not in found


@dataclass
class Scontrol:
    """Stands for scontrol: answers each update by ``answer(job id, how often it was asked)``."""

    answers: Mapping[int, Sequence[str]]
    asked: list[list[int]] = field(default_factory=list)
    stops_after: int = 10**9

    def __call__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        lines = stdin.decode().splitlines()
        jobs = [int(line.split()[1].removeprefix("JobId=")) for line in lines[::2]]
        before = [job for batch in self.asked for job in batch]
        self.asked.append(jobs)
        out = ""
        for job, mark in zip(jobs[: self.stops_after], lines[1::2], strict=False):
            said = self.answers.get(job, [""])
            text = said[min(before.count(job), len(said) - 1)]
            out += f"{text}\n" if text else ""
            out += f"invalid keyword: {mark}\n"
        return CompletedCommand(tuple(argv), 1, b"", out.encode())


BUSY = "Resource temporarily unavailable for job 2"


def test_one_process_for_all_and_one_more_for_what_was_busy() -> None:
    scontrol = Scontrol({2: [BUSY, BUSY, ""], 3: ["Invalid job id specified for job 3"]})
    results = CliSlurmClient(scontrol).update([one("SiteFactor", "1", job) for job in (1, 2, 3)])
    assert results == [JobUpdateResult(1), JobUpdateResult(2), JobUpdateResult(3, "Invalid job id specified for job 3")]
    assert scontrol.asked == [[1, 2, 3], [2], [2]]


def test_what_stays_busy_is_an_error_in_the_end() -> None:
    scontrol = Scontrol({2: [BUSY]})
    assert CliSlurmClient(scontrol).update([one("SiteFactor", "1", 2)]) == [JobUpdateResult(2, BUSY)]
    assert len(scontrol.asked) == 4


def test_what_must_not_be_sent_does_not_keep_the_others_back() -> None:
    scontrol = Scontrol({})
    first, second = CliSlurmClient(scontrol).update([one("SiteFactor", "x", 1), one("SiteFactor", "1", 2)])
    assert "job 1: SiteFactor='x' is not sent" in first.error
    assert second == JobUpdateResult(2)
    assert scontrol.asked == [[2]]


def test_nothing_to_send_runs_nothing() -> None:
    scontrol = Scontrol({})
    assert CliSlurmClient(scontrol).update([]) == []
    assert scontrol.asked == []


def test_updates_behind_a_stop_are_not_called_done() -> None:
    results = CliSlurmClient(Scontrol({}, stops_after=1)).update([one("SiteFactor", "1", job) for job in (1, 2)])
    assert results[0] == JobUpdateResult(1)
    assert "not known to be done" in results[1].error
    assert not results[1].answered


def test_no_answer_at_all_is_a_failed_command() -> None:
    with pytest.raises(SlurmCommandError, match="slurmctld"):
        CliSlurmClient(Scontrol({}, stops_after=0)).update([one("SiteFactor", "1")])


@pytest.mark.parametrize(
    ("said", "answered"),
    [
        ("slurm_update error: Socket timed out on send/recv operation", False),
        ("slurm_update error: Zero Bytes were transmitted or received", False),
        ("slurm_update error: Unable to contact slurm controller (connect failure)", True),
    ],
)
def test_what_slurmctld_left_unanswered_is_not_refused(said: str, answered: bool) -> None:
    (result,) = CliSlurmClient(Scontrol({1: [said]})).update([one("SiteFactor", "1", 1)])
    assert result == JobUpdateResult(1, said, answered)


@pytest.mark.parametrize(("status", "answered"), [(None, False), (-9, False), (1, True)])
def test_a_failing_second_try_leaves_the_first_ones_results(status: int | None, answered: bool) -> None:
    scontrol = Scontrol({2: [BUSY]})

    def dies_at_the_second(argv: Sequence[str], **more: Any) -> CompletedCommand:
        return CompletedCommand(tuple(argv), status, b"", b"gone") if scontrol.asked else scontrol(argv, **more)

    first, second = CliSlurmClient(dies_at_the_second).update([one("SiteFactor", "1", job) for job in (1, 2)])
    assert first == JobUpdateResult(1)
    assert "gone" in second.error
    assert second.answered == answered


@pytest.mark.parametrize("name", ["", "usr1", "USR1; id", "-9", "KILL 8"])
def test_only_signal_names_are_sent(name: str) -> None:
    with pytest.raises(SlurmReplyError, match="is no signal name"):
        CliSlurmClient(Scontrol({})).signal(1, name)
