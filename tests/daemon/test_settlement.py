"""What became of a change that Slurm did not answer, or whose sender was killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from slurm_soda.daemon.store.audit_log import UnsettledChange, unsettled_changes
from slurm_soda.daemon.store.settlement import SETTLE_AFTER_S, resolve_outcome, shown_fields
from slurm_soda.daemon.store.tables.scheduling import Action, Preemption
from slurm_soda.slurm_ext.write.job_changes import JobChangeKind, known_change
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.records import record

NOW_S = 2000.0
FACTOR, CPUS, START = {"SiteFactor": "500"}, {"CPUsPerTask": "2", "NumCPUs": "4"}, {"StartTime": "now"}
LEASED = {"StartTime": "uts2237"}
LEAST = CPUS | {"MinCPUsNode": "4", "MinMemoryNode": "100"}
REQUEUED: dict[str, Any] = {"reason": "BeginTime", "restarts": 3, "eligible_s": NOW_S + 90}
PARTNER = {"TresPerNode": "gres/sharedgpu:g0:1", "ReqNodeList": "n1", "Partition": "a,b"}
PARTNER_RECORD = {"tres_per_node": "gres/sharedgpu:g0:1", "req_node_names": "n1", "partition": "a,b"}

CASES: list[tuple[JobChangeKind, Mapping[str, str], Mapping[str, Any] | None, int | None, str | None]] = [
    # kind, sent, the job now, its SiteFactor, outcome
    ("order", FACTOR, None, None, "void"),
    ("order", FACTOR, {}, 500, "done"),
    ("order", FACTOR, {}, None, "void"),
    ("order", {"SiteFactor": "0"}, {}, None, "done"),
    ("order", FACTOR, {}, 499, "void"),
    ("order", FACTOR, {"reason": "JobHeldUser"}, None, None),
    ("order", FACTOR, {"reason": "JobHeldUser"}, 500, "done"),
    ("order", FACTOR, {"state": "RUNNING"}, None, "void"),
    ("release", START, REQUEUED, None, "void"),
    ("release", START, {"reason": "Priority"}, None, "done"),
    ("start-now", START, REQUEUED | {"reason": "None"}, None, "void"),
    ("start-now", START, REQUEUED | {"reason": "JobHeldUser"}, None, "done"),
    ("start-now", START, {"state": "RUNNING", "eligible_s": NOW_S + 90}, None, "done"),
    ("rewrite", CPUS, {"cpus": 4, "cpus_per_task": 2}, None, "done"),
    ("rewrite", LEAST, {"cpus": 4, "cpus_per_task": 2}, None, "done"),
    ("rewrite", CPUS, {"cpus": 4, "cpus_per_task": 1}, None, "void"),
    ("rewrite", CPUS, {"cpus": 3, "cpus_per_task": 2}, None, "void"),
    ("rewrite", PARTNER, PARTNER_RECORD, None, "done"),
    *(("rewrite", PARTNER, PARTNER_RECORD | {name: "other"}, None, "void") for name in PARTNER_RECORD),
    ("lease", LEASED, {"eligible_s": 2237.0, "reason": "BeginTime"}, None, "done"),
    ("lease", LEASED, {"eligible_s": 2177.0, "reason": "BeginTime"}, None, "void"),
    ("lease", LEASED, {"eligible_s": 1000.0}, None, "void"),
    ("lease", LEASED, {"state": "RUNNING"}, None, "void"),
    ("lease", START, {"reason": "Priority"}, None, "done"),
    ("requeue", {}, {"state": "RUNNING", "restarts": 2}, None, "void"),
    ("requeue", {}, {"state": "COMPLETING", "restarts": 2}, None, None),
    ("requeue", {}, {"state": "COMPLETING", "restarts": 3}, None, "done"),
    ("requeue", {}, REQUEUED, None, "done"),
    ("signal", {"Signal": "USR1"}, {"state": "RUNNING", "restarts": 2}, None, "void"),
    ("signal", {"Signal": "USR1"}, {"state": "SUSPENDED", "restarts": 2}, None, "void"),
    ("signal", {"Signal": "USR1"}, {"state": "RUNNING", "restarts": 3}, None, "done"),
    ("signal", {"Signal": "USR1"}, {"state": "FAILED", "restarts": 2}, None, "done"),
]


@pytest.mark.parametrize(("kind", "new", "now", "factor", "outcome"), CASES)
@pytest.mark.parametrize("may_come", [False, True])
def test_slurm_shows_what_became_of_a_change(
    kind: JobChangeKind, new: Mapping[str, str], now: Mapping[str, Any] | None, factor: int | None, outcome: str | None,
    may_come: bool,
) -> None:  # fmt: skip
    job = None if now is None else record(1, **now)
    shown = {} if job is None else shown_fields(job, {} if factor is None else {1: factor})
    unsettled = UnsettledChange(9, known_change(1, kind, new, {}, ""), 1000.0, 1900.0, by_daemon=True, restart=2)
    found = resolve_outcome(unsettled, job, shown, NOW_S, may_come=may_come)
    if (
        may_come
        and outcome == "void"
        and job is not None
        and not (kind in ("order", "lease") and job.state == "RUNNING")
    ):
        assert found is None, "Slurm may yet take it"
    else:
        assert (found and (found.action_id, found.state)) == (outcome and (9, outcome))


def test_an_open_change_goes_by_the_restart_count_of_its_own_preemption(daemon: Callable[..., Daemon]) -> None:
    sodad = daemon()
    with sodad.store.write() as session:
        for restart in (5, 2, 7):
            preemption = Preemption(
                job_id=1, submit_s=0.0, restart=restart, phase="requeued", created_s=0.0, deadline_s=0.0, updated_s=0.0
            )
            session.add(preemption)
            session.flush()
            session.add(
                Action(
                    job_id=1, submit_s=0.0, kind="requeue", state="sent", created_s=0.0, preemption_id=preemption.id,
                    epoch_id=1,
                )
            )  # fmt: skip
        session.add(Action(job_id=1, submit_s=0.0, kind="order", new=FACTOR, state="sent", created_s=0.0))
    with sodad.store.read() as session:
        found = unsettled_changes(session)
    assert [(each.restart, each.by_daemon) for each in found] == [(5, True), (2, True), (7, True), (None, False)]


@pytest.fixture
def waiting(slurm: FakeSlurm) -> FakeSlurm:
    """Job 1 holds the node, 2 and 3 wait in another order than the policy wants."""
    slurm.submit(1, gpus=4, work_s=1e6, checkpoint=None)
    slurm.tick()
    slurm.advance(10)
    slurm.submit(2, gpus=1, priority=10)
    slurm.submit(3, gpus=1, priority=500)
    return slurm


def states(sodad: Daemon) -> list[str]:
    return [action.state for action in sodad.actions()]


@pytest.mark.parametrize("taken", [True, False])
def test_orders_that_ran_out_of_time_are_settled_in_the_next_cycle(
    waiting: FakeSlurm, daemon: Callable[..., Daemon], taken: bool
) -> None:
    sodad = daemon()
    waiting.tick()
    (waiting.unheard if taken else waiting.hanging).add("update")
    soon_s = sodad.run().next_s
    assert set(states(sodad)) == {"sent"}
    assert soon_s <= waiting.clock.now_s() + 1.0, "it looks again soon"
    sent = len(states(sodad))
    waiting.unheard.clear()
    waiting.hanging.clear()
    sodad.run()
    assert states(sodad) == (["done"] * sent if taken else ["void"] * sent + ["done"] * sent)


def test_a_change_by_hand_is_settled_once_its_command_is_over(
    waiting: FakeSlurm, daemon: Callable[..., Daemon]
) -> None:
    sodad = daemon(mode="observe")
    made_s, submit_s = waiting.clock.now_s(), float(int(waiting.all[2].submit_s))
    with sodad.store.write() as session:
        for factor in ("0", "900"):
            session.add(
                Action(
                    job_id=2, submit_s=submit_s, kind="release", new={"SiteFactor": factor}, state="intended",
                    created_s=made_s, old={},
                )
            )  # fmt: skip
    waiting.tick()
    sodad.run()
    assert states(sodad) == ["done", "intended"], "a command that is still at it tells by itself"
    waiting.clock.at_s = made_s + SETTLE_AFTER_S
    sodad.run()
    assert states(sodad) == ["done", "void"]


def test_what_a_command_recorded_meanwhile_is_not_overwritten(
    waiting: FakeSlurm, daemon: Callable[..., Daemon]
) -> None:
    sodad = daemon()
    waiting.tick()
    taken = waiting.update

    def undone_meanwhile(updates: Any) -> Any:
        with sodad.store.write() as session:
            for action in session.query(Action):
                action.state = "undone"
        return taken(updates)

    waiting.update = undone_meanwhile  # type: ignore[method-assign]
    sodad.run()
    assert set(states(sodad)) == {"undone"}
