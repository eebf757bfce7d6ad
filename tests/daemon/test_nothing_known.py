"""sodad as it is installed: its default policy, an empty store, no sharing, no bands, GPUs of no known type."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon

Start = Callable[..., Daemon]
DEFAULT = {"policy": {}, "preemption": {"default_grace_s": 1.0}}


def test_a_long_job_makes_way_for_others_short_ones_and_comes_to_its_end(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1, gpus=4, work_s=4000.0)
    sodad = daemon(**DEFAULT)
    sodad.follow(600, every_s=10.0)
    for job_id in (2, 3):
        slurm.submit(job_id, gpus=4, work_s=100.0, user="bob")
    sodad.follow(1000, every_s=10.0)
    assert {slurm.all[job_id].state for job_id in (2, 3)} == {"COMPLETED"}
    assert slurm.all[1].restarts == 1
    sodad.follow(4000, every_s=10.0)
    assert slurm.all[1].state == "COMPLETED"


@pytest.mark.parametrize("work_s", [1000.0, 4000.0])
@pytest.mark.parametrize("users", [("alice", "alice", "alice"), ("alice", "bob", "carol")])
def test_jobs_that_are_alike_do_not_take_turns(
    slurm: FakeSlurm, daemon: Start, users: Sequence[str], work_s: float
) -> None:
    """Nothing tells them apart but what they had: if that counted as it is, they would take turns until one ends."""
    for job_id, user in enumerate(users, 1):
        slurm.submit(job_id, gpus=4, work_s=work_s, user=user)
    sodad = daemon(**DEFAULT)
    sodad.follow(3.3 * work_s, every_s=10.0)
    assert {slurm.all[job_id].state for job_id in (1, 2, 3)} == {"COMPLETED"}
    restarts = sum(slurm.all[job_id].restarts for job_id in (1, 2, 3))
    assert restarts <= 4, "however long they are"
