"""A bound on how often sodad preempts one job, in whole cycles."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon

LAS = {"name": "tiresias-las", "parameters": {"thresholds_gpu_s": [100.0], "min_run_s": 0.0}}


@pytest.mark.parametrize(("limit", "preemptions"), [(0, 4), (2, 2)])
def test_a_job_is_preempted_so_often_and_then_keeps_its_gpus(
    slurm: FakeSlurm, daemon: Callable[..., Daemon], limit: int, preemptions: int
) -> None:
    long = slurm.submit(1, gpus=4, work_s=4000.0)
    sodad = daemon(policy=LAS, preemption={"max_per_job": limit, "default_grace_s": 1.0})
    for job_id in range(2, 6):
        sodad.follow(120, every_s=2.0)
        slurm.submit(job_id, gpus=4, work_s=20.0)
    sodad.follow(200, every_s=2.0)
    assert sodad.job(1).preemptions == preemptions
    assert long.restarts == preemptions
    assert (long.state, slurm.all[2].state) == ("RUNNING", "COMPLETED")
