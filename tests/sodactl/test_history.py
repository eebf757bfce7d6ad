"""``sodactl history``: golden keys, filters, and times."""

from __future__ import annotations

import pytest

from slurm_soda.daemon.store.tables.scheduling import JobNodeUsage, JobRun
from slurm_soda.sodactl.live.history import parse_since

from .conftest import HOSTILE, NOW_S, SUBMIT_S, Bench, stored_job

KEYS = {
    "job_id", "user", "account", "partition", "name", "state", "exit_code", "submit_s", "start_s", "last_start_s", "end_s",
    "queue_s", "run_s", "jct_s", "first_wait_s", "gpus", "nodes", "cpus", "gpu_util_ratio", "gpu_memory_peak_mib", "cpu_s",
    "memory_peak_mib", "sources", "runs", "preemptions", "hints",
}  # fmt: skip


def finished(soda: Bench, job_id: int = 7, **values: object) -> None:
    soda.add(stored_job(job_id, **{"state": "COMPLETED", "end_s": SUBMIT_S + 100, **values}))


def test_the_figures_of_one_job(soda: Bench) -> None:
    job = stored_job(7, state="COMPLETED", end_s=SUBMIT_S + 100, preemptions=1, hints={"model": "vgg16"}, cpu_s=80.0)
    soda.add(job)
    soda.add(JobRun(job_pk=job.id, restart=0, start_s=SUBMIT_S + 10, end_s=SUBMIT_S + 30, gpus=2))
    soda.add(JobRun(job_pk=job.id, restart=1, start_s=SUBMIT_S + 50, end_s=SUBMIT_S + 100, gpus=2))
    soda.add(
        JobNodeUsage(
            job_id=7,
            restart=0,
            node="n1",
            first_s=SUBMIT_S + 10,
            last_s=SUBMIT_S + 30,
            samples=9,
            gpu_count=2,
            gpu_util_ratio=0.8,
            gpu_util_last_ratio=0.8,
            gpu_memory_peak_mib=9000,
            cpu_s=70,
            memory_peak_mib=512,
        )
    )
    document = soda("history", "--json").document
    assert set(document) == {"now_s", "more", "jobs"}
    (row,) = document["jobs"]
    assert set(row) == KEYS
    assert {key: row[key] for key in ("job_id", "jct_s", "run_s", "queue_s", "first_wait_s", "runs", "preemptions")} == {
        "job_id": 7, "jct_s": 100.0, "run_s": 70.0, "queue_s": 30.0, "first_wait_s": 10.0, "runs": 2, "preemptions": 1,
    }  # fmt: skip
    assert (row["gpu_util_ratio"], row["gpu_memory_peak_mib"], row["cpu_s"], row["memory_peak_mib"]) == (
        0.8,
        9000,
        80,
        512,
    )
    assert row["sources"] == {"gpu": "agent", "cpu_s": "accounting", "memory_peak_mib": "agent"}
    out = soda("history").out
    for text in ("80 %", "9,000 MiB", "1 min 20 s", "512 MiB", "30.0 s", "1 min 10 s"):
        assert text in out


@pytest.mark.parametrize(
    ("argv", "ids"),
    [
        ([], [1, 2, 3]),
        (["--job", "2"], [2]),
        (["--user", "bob"], [3]),
        (["--since", "80m"], [2, 3]),
        (["--since", "2023-11-14T21:40+00:00"], [3]),
        (["--limit", "1"], [3]),
        (["--limit", "0"], [1, 2, 3]),
    ],
)
def test_filters(soda: Bench, argv: list[str], ids: list[int]) -> None:
    finished(soda, 1, submit_s=NOW_S - 9000, end_s=NOW_S - 7200)
    finished(soda, 2, submit_s=NOW_S - 9000, end_s=NOW_S - 3600)
    finished(soda, 3, submit_s=NOW_S - 9000, end_s=NOW_S - 1800, user="bob")
    soda.add(stored_job(4))
    assert [row["job_id"] for row in soda("history", "--json", *argv).document["jobs"]] == ids


def test_the_table_says_when_it_is_cut(soda: Bench) -> None:
    for job_id in range(1, 61):
        finished(soda, job_id)
    shown = soda("history")
    assert len(shown.out.splitlines()) == 52
    assert "the newest 50; --limit 0 shows all" in shown.out
    assert soda("history", "--json").document["more"] is False
    assert len(soda("history", "--limit", "0").out.splitlines()) == 61


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_users_does_no_harm(soda: Bench, text: str) -> None:
    finished(soda, name=text)
    assert soda("history", "--json").document["jobs"][0]["name"] == text
    assert len(soda("history").out.splitlines()) == 2


def test_nothing_finished(soda: Bench) -> None:
    assert soda("history").out == "no finished job\n"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", NOW_S - 90), ("1.5h", NOW_S - 5400), ("2d", NOW_S - 172800), ("1w", NOW_S - 604800), (" 5m ", NOW_S - 300),
     ("2023-11-14T00:00+00:00", 1699920000.0), ("2023-11-14T01:00+01:00", 1699920000.0)],
)  # fmt: skip
def test_since_reads_spans_and_dates(text: str, seconds: float) -> None:
    assert parse_since(text, NOW_S) == seconds
