"""Waiting jobs as squeue tells them; one before 24.05 knows no field for excluded nodes, but a letter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmReplyError
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob, read_waiting_jobs

UNKNOWN_FIELD = b"squeue: error: Invalid job format specification: ExcNodes\n"
"""As Slurm 22.05.8 says it, with status 0 and the field empty."""


class Squeue:
    """One of Slurm 22.05, or of a later version: jobs by id, each with the nodes that it excludes."""

    def __init__(self, jobs: Mapping[int, str], *, knows_field: bool = False) -> None:
        self.jobs, self.knows_field = jobs, knows_field
        self.later: Mapping[int, str] = {}
        """Jobs as the second question finds them; none: as before."""
        self.formats: list[str] = []
        self.letters_fail = False
        self.letters_are_cut = False

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str], **_: object) -> CompletedCommand:
        by_letter = "SQUEUE_FORMAT" in env
        form = env["SQUEUE_FORMAT" if by_letter else "SQUEUE_FORMAT2"]
        self.formats.append(form)
        nonce = env["SODA_END_MARK"][1:]
        if by_letter and self.letters_fail:
            return CompletedCommand(tuple(argv), 1, b"", b"slurm_load_jobs error")
        rows = [
            self._row(form, job, nodes, by_letter) for job, nodes in ((by_letter and self.later) or self.jobs).items()
        ]
        error = b"" if by_letter or self.knows_field else UNKNOWN_FIELD
        text = "".join(f"{row}\x1e{nonce}\n" for row in rows) + env["SODA_END_MARK"]
        cut = by_letter and self.letters_are_cut
        return CompletedCommand(tuple(argv), 0, text.encode()[: -1 if cut else None], error)

    def _row(self, form: str, job: int, nodes: str, by_letter: bool) -> str:
        separator = f"\x1f{form.rpartition(chr(0x1E))[2]}"
        if by_letter:
            return separator.join((str(job), nodes))
        shown = (nodes if self.knows_field else "").ljust(200)
        return separator.join((str(job), "1", "OK", "", "1", "(null)", "1", "(null)".ljust(100), shown, "N/A"))


def read(squeue: Squeue) -> dict[int, WaitingJob]:
    return read_waiting_jobs(squeue, None, 5.0)


def test_excluded_nodes_are_asked_for_by_letter_where_the_field_is_unknown() -> None:
    squeue = Squeue({1: "", 2: "n[1-3]", 3: "(null)"})
    found = read(squeue)
    assert {job: one.excluded_nodes for job, one in found.items()} == {1: "", 2: "n[1-3]", 3: ""}
    assert len(squeue.formats) == 2


def test_who_knows_the_field_is_asked_once() -> None:
    squeue = Squeue({1: "", 2: "n1"}, knows_field=True)
    assert read(squeue)[2].excluded_nodes == "n1"
    assert len(squeue.formats) == 1


def test_without_waiting_jobs_nothing_more_is_asked() -> None:
    squeue = Squeue({})
    assert read(squeue) == {}
    assert len(squeue.formats) == 1


def test_a_job_that_came_between_the_replies_is_left_out() -> None:
    squeue = Squeue({1: "n1"})
    squeue.later = {1: "n1", 7: "n2"}
    assert set(read(squeue)) == {1}


def test_a_long_list_of_nodes_is_whole_and_no_sign_of_a_cut_one() -> None:
    squeue = Squeue({1: ",".join(f"n{number}" for number in range(0, 200, 2))})
    job = read(squeue)[1]
    assert job.excluded_nodes.endswith(",n198")
    assert not job.cut


def test_a_second_question_without_an_answer_fails_as_the_first_one() -> None:
    squeue = Squeue({1: "n1"})
    squeue.letters_fail = True
    with pytest.raises(SlurmCommandError, match="squeue"):
        read(squeue)


def test_a_second_answer_that_is_cut_short_is_refused() -> None:
    squeue = Squeue({1: "n1"})
    squeue.letters_are_cut = True
    with pytest.raises(SlurmReplyError, match="cut short"):
        read(squeue)
