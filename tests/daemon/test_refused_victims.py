"""Jobs that Slurm does not requeue: never chosen if interactive, less and less often if refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from slurm_soda.daemon.preemption.refused_victims import FIRST_PAUSE_S, MAX_PAUSE_S, RefusedVictims
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.records import record

Start = Callable[..., Daemon]
REFUSED = "Job can not be altered now, try again later"


def test_an_interactive_job_is_never_a_victim(slurm: FakeSlurm, daemon: Start) -> None:
    """One that salloc or srun started cannot be requeued, whatever its --soda-checkpoint says."""
    batch = slurm.submit(1, gpus=2, work_s=1e6)
    interactive = slurm.submit(2, gpus=2, work_s=1e6, batch=False)
    slurm.advance(60)
    sodad = daemon()
    waiting = slurm.submit(3, gpus=2, work_s=20.0)
    sodad.follow(30)
    assert (waiting.state, interactive.state, batch.restarts) == ("COMPLETED", "RUNNING", 1)
    assert slurm.calls.count("requeue") == 1
    assert [row.job_id for row in sodad.preemptions()] == [1]


@pytest.mark.parametrize("checkpoint", ["TERM", "USR1"])
def test_a_refused_victim_is_followed_by_the_other_possible_ones(
    slurm: FakeSlurm, daemon: Start, checkpoint: str
) -> None:
    for job_id in (1, 2, 3, 4):
        slurm.submit(job_id, gpus=1, work_s=1e6, checkpoint=checkpoint, no_requeue=REFUSED if job_id > 1 else "")
    slurm.advance(150)
    sodad = daemon()
    waiting = slurm.submit(5, gpus=1, work_s=20.0)
    sodad.follow(20)
    assert waiting.runs or waiting.state == "RUNNING"
    assert slurm.all[1].restarts == 1


def test_a_victim_that_slurm_always_refuses_is_asked_less_and_less(slurm: FakeSlurm, daemon: Start) -> None:
    refused = slurm.submit(1, gpus=4, work_s=1e6, no_requeue=REFUSED)
    slurm.advance(60)
    sodad = daemon()
    slurm.submit(2, gpus=4, work_s=20.0)
    sodad.follow(400, every_s=4.0)
    at_s = [action.created_s for action in sodad.actions("requeue")]
    assert 5 <= len(at_s) <= 7, "about 100 without a pause"
    pauses_s = [after - before for before, after in pairwise(at_s)][1:]  # the first is shorter than a cycle
    assert all(later > 1.5 * sooner for sooner, later in pairwise(pauses_s))
    assert {action.state for action in sodad.actions("requeue")} == {"failed"}
    assert refused.state == "RUNNING"
    refused.no_requeue = ""
    sodad.follow(400, every_s=10.0)
    assert refused.restarts >= 1, "a refusal is not for ever"


def test_pauses_outlast_a_restart_of_sodad(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1, gpus=4, work_s=1e6, no_requeue=REFUSED)
    slurm.advance(60)
    sodad = daemon()
    slurm.submit(2, gpus=4, work_s=20.0)
    sodad.follow(100, every_s=4.0)
    refusals = len(sodad.actions("requeue"))
    for _ in range(5):
        sodad = daemon()
        sodad.follow(4)
    assert len(sodad.actions("requeue")) <= refusals + 1


def test_pauses_grow_to_a_limit_and_are_forgotten_with_the_run() -> None:
    refused = RefusedVictims()
    now_s = 0.0
    for pause_s in (FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S):
        refused.note(1, 0, now_s)
        assert list(refused.standing(now_s + pause_s - 1.0)) == [1]
        assert not refused.standing(now_s + pause_s)
        now_s += pause_s
    for _ in range(2000):
        refused.note(1, 0, now_s)
    assert list(refused.standing(now_s + MAX_PAUSE_S - 1.0)) == [1]
    assert not refused.standing(now_s + MAX_PAUSE_S)
    refused.note(2, 0, now_s)
    refused.keep({1: record(1, "RUNNING"), 2: record(2, "RUNNING", restarts=1)})
    assert list(refused.standing(now_s)) == [1], "job 2 was requeued by somebody else: its next run is another one"
