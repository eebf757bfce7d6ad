"""``sodactl fit``: groups, jobs, one job's search, and what a user's next job starts with."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_soda.daemon.store.tables.cpu_fit import CpuFitRow, CpuMeasurementRow, CpuProposalRow

from .conftest import HOSTILE, SUBMIT_S, Bench, stored_job


def job(soda: Bench, job_id: int, category: str = "cv", **values: Any) -> None:
    hints = {"category": category} if category else {}
    soda.add(stored_job(job_id, **{"state": "COMPLETED", "gpus": 1, "cpus": 3, "hints": hints,
                                   "first_start_s": SUBMIT_S + 30, **values}))  # fmt: skip


def fitted(soda: Bench, job_id: int, cores: int = 4, **values: Any) -> None:
    defaults: dict[str, Any] = {
        "submit_s": SUBMIT_S, "restart": 0, "node": "n1", "at_s": SUBMIT_S + 300, "search": 0, "user": "alice",
        "category": "cv", "model": "", "hints": {}, "nodes": 1, "gpus": 1, "asked_cores": 1, "start_cores": 3,
        "most_cores": 8, "steps": 3, "start_ratio": 0.5, "utilisation_ratio": 0.9, "reason": "best_fit",
    }  # fmt: skip
    soda.add(CpuFitRow(job_id=job_id, cores=cores, **{**defaults, **values}))


def thought(soda: Bench, job_id: int, asked: int = 20, **values: Any) -> None:
    soda.add(CpuProposalRow(job_id=job_id, submit_s=SUBMIT_S, at_s=SUBMIT_S, asked_cores=asked, cores=3, **values))


@pytest.fixture
def site(soda: Bench) -> Bench:
    """alice: two cv jobs, one of them searched, and a large one without a category; bob: one nlp job."""
    soda.daemon()
    job(soda, 1)
    thought(soda, 1)
    fitted(soda, 1)
    job(soda, 2, cpus=1)
    job(soda, 3, "", gpus=8, nodes=2, cpus=16)
    job(soda, 4, "nlp", user="bob", first_start_s=None, state="PENDING")
    soda.add(stored_job(5, gpus=0))
    return soda


def test_groups_are_by_user_category_and_pool(site: Bench) -> None:
    groups = site("fit", "--json").document["groups"]
    assert [(g["user"], g["category"], g["pool"], g["jobs"], g["fits"]) for g in groups] == [
        ("alice", "", "large", 1, 0),
        ("alice", "cv", "small", 2, 1),
        ("bob", "nlp", "small", 1, 0),
    ]
    group = groups[1]
    assert (group["asked_per_gpu"], group["given_per_gpu"], group["best_per_gpu"]) == (10.5, 2.0, 4.0)
    assert (group["start_ratio"], group["best_ratio"], group["queue_median_s"]) == (0.5, 0.9, 30.0)
    assert (groups[0]["asked_per_gpu"], groups[2]["queue_median_s"]) == (2.0, None)
    out = site("fit").out
    for text in ("cores per GPU", "10.5", "50 %", "90 %", "30.0 s"):
        assert text in out


@pytest.mark.parametrize(
    ("argv", "ids"),
    [
        ([], [1, 2, 3, 4]),
        (["--user", "bob"], [4]),
        (["--category", "cv"], [1, 2]),
        (["--model", "bert"], []),
        (["--limit", "1"], [4]),
        (["--since", "5m"], []),
    ],
)
def test_filters(site: Bench, argv: list[str], ids: list[int]) -> None:
    document = site("fit", "--jobs", "--json", *argv).document
    assert [row["job_id"] for row in document["jobs"]] == ids
    assert document["more"] == ("--limit" in argv)


def test_one_job_with_all_that_was_tried(site: Bench) -> None:
    for step, cores in enumerate((3, 1, 4)):
        site.add(
            CpuMeasurementRow(
                job_id=1,
                restart=0,
                node="n1",
                at_s=SUBMIT_S + 60 * step,
                search=0,
                step=step,
                cores=cores,
                most_cores=8,
                gpus=1,
                utilisation_ratio=0.2 * cores,
                spread_ratio=0.01,
                samples=60,
            )
        )
    site.add(CpuMeasurementRow(job_id=1, restart=0, node="n9", at_s=SUBMIT_S - 1e6, search=0, step=0, cores=2, most_cores=8,
                          gpus=1, utilisation_ratio=0.2, spread_ratio=0.01, samples=60))  # fmt: skip
    document = site("fit", "--job", "1", "--json").document
    (row,) = document["jobs"]
    assert (row["asked_cores"], row["given_cores"], row["best_cores"], row["steps"]) == (20, 3, 4, 3)
    assert [one["cores"] for one in document["measurements"]] == [3, 1, 4], "not those of an older job with this id"
    assert [one["reason"] for one in document["fits"]] == ["best_fit"]
    out = site("fit", "--job", "1").out
    assert "best fit found" in out
    assert "80.0 %" in out


def test_a_user_sees_what_the_next_job_starts_with(site: Bench) -> None:
    document = site("fit", "--user", "alice", "--json").document
    assert document["next"]["earlier_fits"] == 1
    assert document["next"]["cores_per_gpu"] == {"cv": 4, "nlp": 5, "speech": 5, "other": 5}
    assert document["next"]["source"]["cv"] == "category"
    assert "from earlier jobs" in site("fit", "--user", "alice").out


def test_ends_that_tell_nothing_are_no_best(site: Bench) -> None:
    job(site, 6)
    fitted(site, 6, 9, reason="cut_short")
    job(site, 7)
    thought(site, 7, left_alone="its CPUs are tied to something else (--cpus-per-gpu)")
    rows = {row["job_id"]: row for row in site("fit", "--jobs", "--json").document["jobs"]}
    assert (rows[6]["best_cores"], rows[6]["reason"]) == (None, "cut_short")
    out = site("fit", "--jobs").out
    assert "search given up" in out
    assert "request left alone: its CPUs are tied" in out


def test_an_empty_store_and_an_unknown_job(soda: Bench) -> None:
    assert soda("fit").out == "no GPU job\n"
    assert "nothing was measured" in soda("fit", "--job", "99").out


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names(soda: Bench, text: str) -> None:
    job(soda, 1, user=text.replace("\x00", "").encode("utf-8", "replace").decode()[:200])
    assert "\x1b" not in soda("fit").out
