"""``sodactl explain``: what is expected of a job's run time, and who says so."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_soda.daemon.store.tables.kind_profiles import RunTimePrediction
from slurm_soda.daemon.store.tables.scheduling import JobRun

from .conftest import HOSTILE, NOW_S, SUBMIT_S, Bench, record, stored_job

CURVE = [[0.0, 1000.0, 300.0], [500.0, 1500.0, 400.0], [1000.0, 4000.0, 2000.0]]


def reasons(soda: Bench) -> str:
    return "\n".join(soda("explain", "7", "--json").document["reasons"])


def expect(soda: Bench, job_id: int = 7, **values: Any) -> None:
    job = stored_job(job_id, **values.pop("job", {}))
    soda.daemon()
    soda.add(job)
    defaults: dict[str, Any] = {"at_s": SUBMIT_S, "predicted_by": "history", "run_s": 1000.0, "error_s": 300.0, "jobs": 12,
                                "basis": "of alice, on 2 GPUs", "curve": CURVE}  # fmt: skip
    soda.add(RunTimePrediction(job_pk=job.id, **{**defaults, **values}))
    soda.slurm.queue = [record(job_id, state=job.state)]
    if job.state != "PENDING":
        soda.add(JobRun(job_pk=job.id, restart=0, start_s=NOW_S - 600, end_s=job.end_s, gpus=2))


def test_what_is_expected_of_its_run_time_and_from_whom(soda: Bench) -> None:
    expect(soda)
    assert (
        "It is expected to run 16 min 40 s, give or take 5 min 00 s, learned from 12 like jobs (of alice, on 2 GPUs)."
        in reasons(soda)
    )
    told = soda("explain", "7", "--json").document["run_time"]
    assert (told["by"], told["run_s"], told["error_s"], told["left_s"], told["jobs"]) == (
        "history",
        1000,
        300,
        1000,
        12,
    )


def test_what_is_left_follows_from_how_long_it_ran(soda: Bench) -> None:
    expect(soda, job={"state": "RUNNING"})
    told = soda("explain", "7", "--json").document["run_time"]
    assert told["attained_s"] == pytest.approx(600.0)
    assert told["run_s"] == pytest.approx(2000.0)  # a fifth of the way from 1500 to 4000
    assert told["left_s"] == pytest.approx(1400.0)
    assert "; 23 min 20 s are left." in reasons(soda)


def test_what_was_expected_of_an_ended_job(soda: Bench) -> None:
    expect(soda, job={"state": "COMPLETED", "end_s": NOW_S}, actual_s=600.0)
    soda.slurm.queue = []
    assert "It was expected to run 16 min 40 s when it came" in reasons(soda)
    assert "it ran 10 min 00 s." in reasons(soda)


def test_nothing_is_left_of_a_job_that_slurm_saw_end(soda: Bench) -> None:
    """sodad, which does not run, has not seen the end."""
    expect(soda, job={"state": "RUNNING"})
    soda.slurm.queue = [record(7, state="FAILED", end_s=NOW_S - 300)]
    document = soda("explain", "7", "--json").document
    assert "left" not in "".join(document["reasons"])
    assert (document["run_time"]["left_s"], document["run_time"]["attained_s"]) == (None, 300)
    assert document["attained_gpu_s"] == 600


def test_one_of_a_kind_is_not_a_plural(soda: Bench) -> None:
    soda.slurm.queue = [record(7, gpus=1, cpus=1)]
    assert "1 GPU, 1 CPU on 1 node of main\n" in soda("explain", "7").out


@pytest.mark.parametrize(
    ("predicted_by", "said"),
    [
        ("limit", "Nobody knows how long it will run: at most 16 min 40 s, by its time limit."),
        ("iterations", "by its iterations and what each of them takes"),
    ],
)
def test_other_sources(soda: Bench, predicted_by: str, said: str) -> None:
    expect(soda, predicted_by=predicted_by, curve=[], jobs=0, basis="")
    assert said in reasons(soda)


@pytest.mark.parametrize("name", HOSTILE)
def test_the_basis_does_nothing_to_a_terminal(soda: Bench, name: str) -> None:
    expect(soda, basis=f"named {name}")
    assert "\x1b" not in soda("explain", "7").out
