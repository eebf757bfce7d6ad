"""What becomes of an instance that leaves: every state that Slurm and its router may show."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_soda.daemon.services.drains import MAX_RETRY_S, Drain, DrainDecision, SeenInstance, decide_drain
from slurm_soda.daemon.services.known_service import ServiceKey
from slurm_soda.wire.services.router_report import ReportedInstance
from tests.daemon.records import record

STAYS = DrainDecision("asked")
LEAVES = DrainDecision("asked", requeue=True)
LEFT = DrainDecision("over", "it left")


def drain(**more: Any) -> Drain:
    values: dict[str, Any] = {
        "job_id": 7, "submit_s": 1000.0, "restart": 2, "key": ServiceKey("alice", "answers"), "why": "", "asked_s": 0.0,
        "asked_steady_s": 0.0, "deadline_s": 60.0,
    }  # fmt: skip
    return Drain(**(values | more))


def told(state: str, queries: int = 0) -> ReportedInstance:
    return ReportedInstance(7, "cpu", state, 0.0, queries=queries)


RUNS: dict[str, Any] = {"state": "RUNNING", "restarts": 2}


@pytest.mark.parametrize(
    ("job", "seen", "expected"),
    [
        (RUNS, {}, STAYS),
        (RUNS, {"reported": told("ready")}, STAYS),
        (RUNS, {"reported": told("draining", 1)}, STAYS),
        (RUNS, {"reported": told("draining")}, LEAVES),
        (RUNS, {"reported": told("failed", 1)}, LEAVES),
        (RUNS, {"reported": told("draining", 1), "steady_s": 60.0}, LEAVES),
        (RUNS, {"steady_s": 60.0}, LEAVES),
        (RUNS, {"reported": told("ready"), "others_ready": 0}, DrainDecision("over", "it stays: no other instance answers")),
        (RUNS, {"others_ready": 0, "steady_s": 60.0}, DrainDecision("over", "it stays: no other instance answers")),
        (RUNS, {"reported": told("ready"), "others_ready": 0, "least": 0}, STAYS),
        (RUNS, {"reported": told("draining"), "others_ready": 0}, LEAVES),
        (RUNS, {"acts": False}, DrainDecision("over", "it stays: sodad does not enforce now")),
        ({"state": "SUSPENDED", "restarts": 2}, {"steady_s": 60.0}, LEAVES),
        ({"state": "COMPLETING", "restarts": 2}, {}, STAYS),
        ({"state": "COMPLETING", "restarts": 3}, {}, LEFT),
        ({"state": "PENDING", "restarts": 3}, {}, LEFT),
        ({"state": "RUNNING", "restarts": 3}, {}, LEFT),
        ({"state": "CANCELLED", "restarts": 2}, {}, DrainDecision("over", "its job ended: CANCELLED")),
        (None, {}, LEFT),
        (RUNS | {"submit_s": 999.0}, {}, LEFT),
    ],
)  # fmt: skip
def test_each_state(job: dict[str, Any] | None, seen: dict[str, Any], expected: DrainDecision) -> None:
    values: dict[str, Any] = {"reported": None, "others_ready": 1, "least": 1, "steady_s": 10.0, "acts": True}
    shown = None if job is None else record(7, **job)
    assert decide_drain(drain(), SeenInstance(shown, **(values | seen))) == expected


@pytest.mark.parametrize(
    ("steady_s", "replaceable", "leaves"), [(10.0, False, False), (99.0, False, True), (99.0, True, False)]
)
def test_the_owners_own_drain_waits_for_another_instance_if_there_can_be_one(
    steady_s: float, replaceable: bool, leaves: bool
) -> None:
    seen = SeenInstance(record(7, **RUNS), told("ready"), 0, 1, steady_s, acts=True, replaceable=replaceable)
    assert decide_drain(drain(by_owner=True), seen) == (LEAVES if leaves else STAYS)


def test_pauses_after_refusals_double_up_to_a_bound() -> None:
    one, pauses = drain(), []
    for _ in range(9):
        one.note_refusal(100.0)
        pauses.append(one.retry_s - 100.0)
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-1] == MAX_RETRY_S
