"""sodad in bands: which it fills in, and what it then does on a small Slurm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slurm_soda.slurm_ext.read.priority_parts import ShownPriority
from tests.daemon.fake_slurm import FakeJob, FakeSlurm
from tests.daemon.harness import Daemon

Start = Callable[..., Daemon]
GOOD, POOR = ShownPriority(0, 6_000), ShownPriority(0, 100)
HIGH_QOS = ShownPriority(20_000, 100)


def policy(bands: str, name: str = "tiresias-las") -> dict[str, Any]:
    parameters = {"min_run_s": 0.0} | ({"thresholds_gpu_s": [1e9]} if name == "tiresias-las" else {})
    return {"name": name, "bands": bands, "parameters": parameters}


@pytest.fixture
def long_run(slurm: FakeSlurm) -> FakeJob:
    """A job of a user who used much, on all GPUs; it waited long enough for sodad to see it."""
    return slurm.submit(1, gpus=4, work_s=1e6, user="bob", points=POOR)


@pytest.mark.parametrize(("bands", "restarts"), [("off", 0), ("qos", 0), ("fairshare", 1)])
def test_a_better_band_preempts_what_the_policy_would_not(
    slurm: FakeSlurm, daemon: Start, long_run: FakeJob, bands: str, restarts: int
) -> None:
    sodad = daemon(policy=policy(bands))
    sodad.run()
    slurm.advance(60)
    assert long_run.state == "RUNNING"
    better = slurm.submit(2, gpus=4, user="alice", points=GOOD, work_s=1e6)
    sodad.follow(60, every_s=3.0)
    assert (long_run.restarts, better.state == "RUNNING") == (restarts, restarts > 0)


def test_qos_is_a_band(slurm: FakeSlurm, daemon: Start, long_run: FakeJob) -> None:
    sodad = daemon(policy=policy("qos"))
    sodad.run()
    slurm.advance(60)
    slurm.submit(2, gpus=4, user="bob", points=HIGH_QOS, work_s=1e6)
    sodad.follow(60, every_s=3.0)
    assert long_run.restarts == 1


def test_the_next_one_is_of_the_best_band(slurm: FakeSlurm, daemon: Start, long_run: FakeJob) -> None:
    """All GPUs are held by a job that cannot leave; Slurm's own order is by job id here."""
    long_run.checkpoint = None
    sodad = daemon(policy=policy("fairshare"))
    sodad.run()
    slurm.advance(60)
    for job_id, points in ((2, POOR), (3, POOR), (4, GOOD)):
        slurm.submit(job_id, gpus=4, points=points, user=f"u{job_id}")
    sodad.run()
    waiting = sorted(
        (job for job in slurm.all.values() if job.state == "PENDING"), key=lambda job: -job.priority - job.site_factor
    )
    assert waiting[0].job_id == 4


def test_a_run_from_before_sodad_is_not_preempted_for_reasons_that_nobody_knows(
    slurm: FakeSlurm, daemon: Start, long_run: FakeJob
) -> None:
    slurm.advance(60)
    assert long_run.state == "RUNNING"
    sodad = daemon(policy=policy("fairshare"))
    slurm.submit(2, gpus=4, user="alice", points=GOOD)
    sodad.follow(30, every_s=3.0)
    assert long_run.restarts == 0
    slurm.submit(3, gpus=1, user="bob", points=POOR)
    sodad.follow(30, every_s=3.0)
    assert long_run.restarts == 1, "its user's other job tells his fair share"


def test_without_an_answer_everything_goes_on(slurm: FakeSlurm, daemon: Start, long_run: FakeJob) -> None:
    sodad = daemon(policy=policy("fairshare"))
    sodad.run()
    slurm.advance(60)
    slurm.silent.add("priority_parts")
    slurm.submit(2, gpus=4, user="alice", points=GOOD)
    assert sodad.run().error == ""
    assert long_run.restarts == 0


def test_nothing_is_asked_without_bands(slurm: FakeSlurm, daemon: Start, long_run: FakeJob) -> None:
    daemon(policy=policy("off")).run()
    assert not {"priority_parts", "most_earned_priority"} & set(slurm.calls)
