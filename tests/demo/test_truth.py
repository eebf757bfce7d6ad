"""Reading sacct: records as Slurm 24.11 prints them with --duplicates and times as Unix seconds."""

from __future__ import annotations

import pytest

from slurm_soda.demo.accounting import DemoError, find_incomplete_jobs, parse_sacct, sacct_argv

GANG = "billing=40,cpu=40,gres/gpu=8,mem=40G,node=2"


def record(job: int, state: str, submit: object, start: object, end: object, tres: str = "cpu=2,gres/gpu=1") -> str:
    return f"{job}|alice|job-{job}|{state}|{submit}|{start}|{end}|n1|{tres}"


def test_a_job_of_one_run() -> None:
    (job,) = parse_sacct(record(7, "COMPLETED", 100, 110, 150)) or []
    assert (job.job_id, job.user, job.name, job.state, job.gpus) == (7, "alice", "job-7", "COMPLETED", 1)
    assert (job.jct_s, job.run_s, job.queue_s, job.preemptions) == (50, 40, 10, 0)


def test_a_requeued_job_begins_with_its_first_submission() -> None:
    lines = [record(32, "REQUEUED", 830, 831, 835, GANG), record(32, "COMPLETED", 836, 840, 900, GANG)]
    for text in ("\n".join(lines), "\n".join(reversed(lines))):
        (job,) = parse_sacct(text) or []
        assert (job.submit_s, job.end_s, job.gpus, job.preemptions) == (830, 900, 8, 1)
        assert (job.run_s, job.queue_s) == (64, 6)
        assert [run.state for run in job.runs] == ["REQUEUED", "COMPLETED"]


def test_a_requeue_while_it_waited_is_no_run() -> None:
    lines = [record(5, "REQUEUED", 10, "Unknown", 20), record(5, "COMPLETED", 20, 25, 30)]
    (job,) = parse_sacct("\n".join(lines)) or []
    assert (job.jct_s, job.run_s, job.preemptions) == (20, 5, 0)


@pytest.mark.parametrize(
    ("state", "start", "end"),
    [("RUNNING", 110, "Unknown"), ("PENDING", "Unknown", "Unknown"), ("REQUEUED", 110, 120), ("COMPLETED", 110, "Unknown"),
     ("COMPLETING", 110, 120)],
)  # fmt: skip
def test_nothing_is_known_before_every_end(state: str, start: object, end: object) -> None:
    assert parse_sacct(record(1, "COMPLETED", 1, 2, 3) + "\n" + record(2, state, 100, start, end)) is None


def test_bad_ends_are_found() -> None:
    text = "\n".join(
        [record(1, "COMPLETED", 1, 2, 3), record(2, "CANCELLED by 0", 1, 2, 3), record(3, "TIMEOUT", 1, 2, 3)]
    )
    assert [(job.job_id, job.state) for job in find_incomplete_jobs(parse_sacct(text) or [])] == [
        (2, "CANCELLED"),
        (3, "TIMEOUT"),
    ]


def test_a_job_without_gpus_has_none() -> None:
    (job,) = parse_sacct(record(1, "COMPLETED", 1, 2, 3, "cpu=2,mem=2G")) or []
    assert job.gpus == 0


@pytest.mark.parametrize("line", ["sacct: error: Problem talking to the database", "7|alice", "x|a|b|c|1|2|3|n1|t"])
def test_what_is_no_record_is_refused(line: str) -> None:
    with pytest.raises(DemoError, match="no record"):
        parse_sacct(line)


def test_no_reply_is_no_job() -> None:
    assert parse_sacct("") == []


def test_the_command_asks_for_every_run_and_no_step() -> None:
    argv = sacct_argv([3, 4])
    assert {"--duplicates", "--allocations", "--parsable2", "--jobs=3,4"} <= set(argv)
