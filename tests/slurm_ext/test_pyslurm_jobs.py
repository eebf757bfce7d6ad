"""The list of jobs through pyslurm: a child process with an emulated one, and every way in which it may fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.slurm_ext.bindings import pyslurm_jobs
from slurm_soda.slurm_ext.bindings.child_process import ChildError
from slurm_soda.slurm_ext.bindings.pyslurm_client import PyslurmClient
from slurm_soda.slurm_ext.bindings.pyslurm_jobs import UnfitError, check_versions
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.slurm_ext.errors import SlurmCommandError
from slurm_soda.slurm_ext.read.exclusive_nodes import ExclusiveNodes
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.squeue_jobs import SqueueReader
from tests.slurm_ext.pyslurm_site import CONFIG, PyslurmSite, squeue_cells, told


@pytest.fixture
def site(tmp_path: Path) -> PyslurmSite:
    return PyslurmSite(tmp_path)


@pytest.fixture
def source(site: PyslurmSite) -> Iterator[pyslurm_jobs.PyslurmJobs]:
    source = site.jobs()
    yield source
    source.close()


def test_changes_end_up_in_the_list(site: PyslurmSite, source: pyslurm_jobs.PyslurmJobs) -> None:
    reader = SqueueReader()
    site.tell(told(2, name="b"), told(1, name="a"), told(3, array_job_id=3, array_task_str="4-9%2"))
    first = source.read(reader)
    assert first is not None
    assert [job.name for job in first] == ["a", "b", "train"]
    assert reader.addresses == {3: "3_[4-9]"}
    site.tell(told(2, name="c"), told(4, name="d"))
    second = source.read(reader)
    assert second is not None
    assert [(job.job_id, job.name) for job in second] == [(2, "c"), (4, "d")]
    assert reader.addresses == {}
    assert (source.read(reader), source.problem, site.failures) == (second, "", [])


def test_it_reads_as_squeue_does(site: PyslurmSite, source: pyslurm_jobs.PyslurmJobs) -> None:
    site.tell(told(1))
    reader = SqueueReader()
    assert repr(source.read(reader)) == repr([reader.record(squeue_cells(1))])


def test_of_what_is_missing_squeue_is_asked(site: PyslurmSite, source: pyslurm_jobs.PyslurmJobs) -> None:
    site.tell(told(1, name="\ufffd"), told(2), told(3, state_reason="user_a_said_so"))
    site.squeue = {"1": squeue_cells(1, Name="\udcff"), "9": squeue_cells(9)}
    found = source.read(SqueueReader())
    assert found is not None
    assert [(job.job_id, job.name) for job in found] == [(1, "\udcff"), (2, "train")]
    assert (site.asked, source.vague_now) == ([[1, 3]], 2)
    site.squeue = {"3": squeue_cells(3, Reason="user_a said so")}
    again = source.read(SqueueReader())
    assert again is not None
    assert [job.reason for job in again] == ["Priority", "Priority", "user_a said so"]
    assert site.asked == [[1, 3], [3]]
    assert len(source.read(SqueueReader()) or ()) == 3
    assert len(site.asked) == 2


def test_with_many_such_jobs_squeue_reads_all(site: PyslurmSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyslurm_jobs, "MOST_VAGUE", 1)
    source = site.jobs()
    site.tell(told(1, name="\ufffd"), told(2, name="\ufffd"))
    assert source.read(SqueueReader()) is None
    assert (site.asked, site.failures) == ([], [])
    site.tell(told(1), told(2, name="\ufffd"))
    site.squeue = {"2": squeue_cells(2)}
    assert len(source.read(SqueueReader()) or ()) == 2
    source.close()


@pytest.mark.parametrize("count", [2, 30])
def test_oversubscribe_comes_from_the_other_interface(site: PyslurmSite, count: int) -> None:
    source = site.jobs()
    words = ["OK", "MCS", "TOPO", "YES"]
    site.tell(
        *(told(number) for number in range(count)), told(99, shared="0"),
        sharing={number: words[number % 4] for number in range(count)},
    )  # fmt: skip
    found = source.read(SqueueReader())
    assert found is not None
    expected = [ExclusiveNodes.NOBODY, ExclusiveNodes.MCS, ExclusiveNodes.TOPOLOGY, ExclusiveNodes.NOBODY] * 8
    assert [job.exclusive for job in found] == [*expected[:count], ExclusiveNodes.ALL]
    source.close()


FAILS = {
    "segv": "was ended by SIGSEGV; it wrote: ",
    "exit": "ended with status 7",
    "hang": "did not answer within 1 s",
    "garbage": "which is no answer",
    "half": "ended with status 0",
    "more": "",  # in one read with the true answer, or before it: another form
    "error": "Unable to contact slurm controller",
}


@pytest.mark.parametrize("act", FAILS)
def test_a_failure_costs_one_reading_and_a_pause(site: PyslurmSite, act: str) -> None:
    source = site.jobs(timeout_s=1.0 if act == "hang" else 30.0)
    site.tell(told(1))
    assert len(source.read(SqueueReader()) or ()) == 1
    site.tell(told(1), act=act)
    assert source.read(SqueueReader()) is None
    assert FAILS[act] in source.problem
    assert source.problem.endswith("pyslurm is tried again after 30 s")
    assert (site.failures, source.child.runs) == ([source.problem], False)
    site.tell(told(1), told(2))
    site.elapsed_s = 29.0
    assert source.read(SqueueReader()) is None
    site.elapsed_s = 31.0
    assert len(source.read(SqueueReader()) or ()) == 2
    assert (source.problem, len(site.failures)) == ("", 1)
    source.close()


def test_pauses_grow(site: PyslurmSite) -> None:
    source = site.jobs()
    site.tell(told(1), act="exit")
    pauses = []
    for _ in range(9):
        assert source.read(SqueueReader()) is None
        pauses.append(source._pause_until_s - site.elapsed_s)
        site.elapsed_s = source._pause_until_s
    assert pauses == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_an_answer_may_not_be_of_any_length(site: PyslurmSite, source: pyslurm_jobs.PyslurmJobs) -> None:
    source.child.most_bytes = 20_000
    site.tell(told(1, comment="x" * 30_000))
    assert source.read(SqueueReader()) is None
    assert "more than 20000" in source.problem


def test_a_job_in_another_form_is_no_answer(site: PyslurmSite, source: pyslurm_jobs.PyslurmJobs) -> None:
    site.tell(told(1), told(2, priority="high"))
    assert source.read(SqueueReader()) is None
    assert "another form: 'high' is no number" in source.problem


def test_a_job_that_cannot_be_read_is_left_out(site: PyslurmSite, source: pyslurm_jobs.PyslurmJobs) -> None:
    complaints: list[str] = []
    site.tell(told(1), told(2, job_state="FLOATING"))
    reader = SqueueReader(complaints.append)
    assert [job.job_id for job in source.read(reader) or ()] == [1]
    assert [job.job_id for job in source.read(reader) or ()] == [1]
    assert complaints == ["job 2 is left out: job 2 is in state 'FLOATING', which this version does not know"]


def test_after_many_readings_another_child_reads(site: PyslurmSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyslurm_jobs, "READINGS_OF_A_CHILD", 2)
    source = site.jobs()
    site.tell(told(1))
    runs = []
    for _ in range(4):
        assert len(source.read(SqueueReader()) or ()) == 1
        runs.append(source.child.runs)
    assert runs == [True, False, True, False]


def test_only_the_pyslurm_of_this_slurm_reads(site: PyslurmSite) -> None:
    source = site.jobs({**CONFIG, "SLURM_VERSION": "25.05.1"})
    assert source.read(SqueueReader()) is None
    assert "pyslurm 24.11.0, built for Slurm 24.11, does not fit slurmctld 25.05.1" in source.problem
    assert "tried again after 600 s" in source.problem
    assert not source.child.runs


@pytest.mark.parametrize(
    ("first", "config", "fits"),
    [
        ({"pyslurm": "24.11.0", "library": [24, 11, 5]}, CONFIG, True),
        ({"pyslurm": "22.5.3", "library": [22, 5, 8]}, {"SLURM_VERSION": "22.05.8", "MCSPlugin": "mcs/none"}, True),
        ({"pyslurm": "24.11.0", "library": [24, 5, 1]}, CONFIG, False),
        ({"pyslurm": "24.5.1", "library": [24, 11, 5]}, CONFIG, False),
        ({"pyslurm": "24.11.0", "library": [24, 11, 5]}, {**CONFIG, "MCSPlugin": "mcs/account"}, False),
    ],
)
def test_versions(first: dict[str, object], config: dict[str, str], fits: bool) -> None:
    if fits:
        assert config["SLURM_VERSION"] in check_versions(first, config)
    else:
        with pytest.raises(UnfitError):
            check_versions(first, config)


@pytest.mark.parametrize("first", [{}, {"pyslurm": "24.11.0"}, {"pyslurm": "24.11.0", "library": 5}])
def test_a_child_without_versions_is_none(first: dict[str, object]) -> None:
    with pytest.raises(ChildError):
        check_versions(first, CONFIG)


def test_an_interpreter_without_pyslurm_says_so(site: PyslurmSite) -> None:
    site.python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$2" "$3"\n')
    source = site.jobs()
    assert source.read(SqueueReader()) is None
    assert "ModuleNotFoundError: No module named 'pyslurm'" in source.problem


def test_an_interpreter_that_is_not_there_says_so(site: PyslurmSite) -> None:
    site.python.unlink()
    source = site.jobs()
    assert source.read(SqueueReader()) is None
    assert "cannot be started" in source.problem


@pytest.mark.parametrize(
    ("status", "stderr", "fails"),
    [
        (0, "", False),
        (1, "slurm_load_jobs error: Invalid job id specified", False),
        (1, "slurm_load_jobs error: Unable to contact slurm controller", True),
    ],
)
def test_squeue_is_asked_by_ids(site: PyslurmSite, status: int, stderr: str, fails: bool) -> None:
    framing = ReplyFraming("RecordedReply")
    row = framing.field.join(squeue_cells(3, ArrayTaskID="4", ArrayJobID="3")) + f"{framing.record}\n{framing.end}"

    def run(argv: Sequence[str], **_: Any) -> CompletedCommand:
        assert argv[-1] == "--jobs=3,5"
        stdout = row.encode() if status == 0 else b""
        return CompletedCommand(tuple(argv), status, stdout, stderr.encode())

    client = PyslurmClient(run, nonce=lambda: framing.nonce, child=site.child())
    if fails:
        with pytest.raises(SlurmCommandError):
            client._squeue_rows([3, 5])
    else:
        assert client._squeue_rows([3, 5]) == (
            {} if status else {"3": squeue_cells(3, ArrayTaskID="4", ArrayJobID="3")}
        )
