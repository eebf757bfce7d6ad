"""GPUs of jobs that are completing: what others stay on is not free then, and what several leave is free once."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_soda.policies.sharing.soda.policy import Soda
from slurm_soda.policies.snapshot import JobState, NodeTable
from tests.policies.cases import verdicts
from tests.policies.sharing.scenes import Table, scene
from tests.policies.sharing.test_soda import decide, job, on

LEAVING: dict[str, Any] = {"state": JobState.COMPLETING}
STAYS: dict[str, Any] = {"preemptible": False, "shares": False}


@pytest.mark.parametrize(
    ("others", "served"),
    [
        ([on(2, 100.0, 0, **LEAVING)], 1),
        ([on(1, 1e4, 0, preemptible=False), on(2, 100.0, 0, **LEAVING)], 0),
        ([on(1, 100.0, 0, **LEAVING), on(2, 100.0, 0, **LEAVING)], 1),
        ([on(1, 100.0, 0, 1, **LEAVING), on(2, 100.0, 0, **LEAVING)], 2),
    ],
    ids=["alone", "beside a host that stays", "both leave", "one of two GPUs shared"],
)
def test_only_what_is_free_then_is_given_to_others(others: list[dict[str, Any]], served: int) -> None:
    held = {device for one in others for device in one["on"]}
    rest = [on(10 + device, 1e4, device, **STAYS) for device in range(3) if device not in held]
    waiting = [job(job_id, 500.0, shares=False) for job_id in (20, 21, 22)]
    plan = decide(scene([*others, *rest, *waiting], NodeTable.uniform(1, 3), Table(else_xi=1.1)), Soda(change_s=10.0))
    given = [device for mine in plan.devices.values() for device in mine]
    assert len(given) == len(set(given)) == served
    assert list(verdicts(plan).values()).count("WAIT_FOR_PREEMPTION") == served
    assert list(verdicts(plan).values()).count("WAIT") == 3 - served


def test_a_job_of_several_gpus_gets_each_once() -> None:
    """Two jobs leave one GPU, and one of them the other as well."""
    leaving = [on(1, 100.0, 0, 1, **LEAVING), on(2, 100.0, 1, **LEAVING)]
    plan = decide(scene([*leaving, job(20, 500.0, 2, shares=False)], NodeTable.uniform(1, 2), Table(else_xi=1.1)))
    assert plan.devices == {20: (0, 1)}
