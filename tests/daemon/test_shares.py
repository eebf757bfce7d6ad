"""A waiting job becomes a guest, is followed, and gets its own request back."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_soda.daemon.store.tables.scheduling import NodeEvent
from slurm_soda.slurm_ext.read.exclusive_nodes import ExclusiveNodes
from tests.daemon.sharing_daemon import OWN, JoinAsTold, ends, joined, running, shares, sodad, told

__all__ = ["told"]


def test_a_guest_starts_beside_its_host_and_ends(fresh_store: Path, told: JoinAsTold) -> None:
    slurm, daemon = running(fresh_store, told)
    daemon.follow(70)
    assert (slurm.all[1].state, slurm.all[2].state) == ("RUNNING", "COMPLETED")
    assert ends(daemon) == [("over", "ended")]
    (row,) = shares(daemon)
    assert (row.guest, row.hosts, row.gpus, row.nodes) == (2, [1], [0, 1], ["n1"])
    (action,) = [action for action in daemon.actions() if action.job_id == 2 and action.kind != "order"]
    assert (action.kind, action.state, action.old["TresPerNode"]) == ("share", "done", "gres/gpu:2")


def test_a_guest_that_does_not_start_in_time_gets_its_request_back(fresh_store: Path, told: JoinAsTold) -> None:
    slurm, daemon = joined(fresh_store, told)
    slurm.held = True
    told.wanted = {}
    daemon.follow(28)
    assert slurm.all[2].guest
    daemon.follow(6)
    assert slurm.requests()[2] == OWN
    assert ends(daemon) == [("over", "not-started")]


@pytest.mark.parametrize("how", ["ends", "is requeued", "is preempted", "drains", "observes", "leaves the partition"])
def test_a_guest_that_waits_is_undone_when(fresh_store: Path, told: JoinAsTold, how: str) -> None:
    slurm, daemon = joined(fresh_store, told)
    slurm.held = True
    told.wanted, end = {}, "host-left"
    match how:
        case "ends":
            slurm._finish(slurm.all[1], "COMPLETED", "0:0", slurm.clock.now_s())
        case "is requeued":
            slurm.requeue(1)
        case "is preempted":
            slurm.all[1].hints, slurm.all[1].checkpoint, slurm.all[1].on_signal = slurm.all[1].hints, "USR1", "ignore"
            told.parted = {1: "it makes way"}
        case "drains":
            slurm.drained, end = True, "node"
        case "observes":
            daemon, end = sodad(slurm, fresh_store, mode="observe"), "off"
        case _:
            daemon, end = sodad(slurm, fresh_store, sharing={"partitions": []}), "off"
    daemon.follow(3, every_s=0.5)
    assert slurm.requests()[2] == OWN
    assert ends(daemon) == [("over", end)]


LATER = {
    "held": ({"reason": "JobHeldUser"}, "owner"),
    "postponed": ({"eligible_s": 3600.0}, "owner"),
    "postponed, as Slurm says": ({"eligible_s": 10.0, "reason": "BeginTime"}, "owner"),
    "dependent": ({"dependency": "singleton(unfulfilled)"}, "owner"),
    "elsewhere": ({"excluded_nodes": "n[1-2]"}, "owner"),
    "alone": ({"exclusive": ExclusiveNodes.ALL}, "owner"),
    "after others of its array": ({"reason": "JobArrayTaskLimit"}, "not-started"),
}


@pytest.mark.parametrize(("fields", "end"), LATER.values(), ids=LATER)
def test_a_guest_that_is_to_start_later_keeps_no_place(
    fresh_store: Path, told: JoinAsTold, fields: dict[str, object], end: str
) -> None:
    slurm, daemon = joined(fresh_store, told)
    slurm.held, told.wanted = True, {}
    for name, value in fields.items():
        later = slurm.clock.now_s() if name == "eligible_s" else 0
        setattr(slurm.all[2], name, value + later if later else value)
    daemon.follow(1, every_s=0.5)
    assert slurm.requests()[2] == OWN
    assert ends(daemon) == [("over", end)]


@pytest.mark.parametrize("fields", [{"reason": "BeginTime"}, {"eligible_s": 5.0}, {"excluded_nodes": "n2,n["}])
def test_a_guest_that_may_start_is_not_sent_away(
    fresh_store: Path, told: JoinAsTold, fields: dict[str, object]
) -> None:
    """Slurm's reason is an old one, or its clock goes before sodad's."""
    slurm, daemon = joined(fresh_store, told)
    slurm.held, told.wanted = True, {}
    for name, value in fields.items():
        setattr(slurm.all[2], name, slurm.clock.now_s() + value if name == "eligible_s" else value)
    daemon.follow(3, every_s=0.5)
    assert slurm.all[2].guest


def test_a_guest_that_runs_is_left_alone_when_sharing_is_turned_off(fresh_store: Path, told: JoinAsTold) -> None:
    slurm, _ = running(fresh_store, told)
    daemon = sodad(slurm, fresh_store, mode="observe", sharing={"partitions": []})
    daemon.follow(70)
    assert slurm.all[2].state == "COMPLETED"
    assert ends(daemon) == [("over", "ended")]


def test_a_guest_whose_host_ends_starts_alone(fresh_store: Path, told: JoinAsTold) -> None:
    slurm, daemon = running(fresh_store, told)
    told.wanted = {}
    slurm._finish(slurm.all[1], "COMPLETED", "0:0", slurm.clock.now_s())
    daemon.follow(15)
    assert slurm.requests()[2] == OWN
    assert (slurm.all[2].state, slurm.all[2].restarts, slurm.all[2].guest) == ("RUNNING", 1, False)
    assert ends(daemon) == [("over", "revoked")]


@pytest.mark.parametrize("waited_s", [5, 130], ids=["waits", "runs alone"])
def test_a_guest_that_lost_its_place_while_sodad_was_away_has_that_end(
    fresh_store: Path, told: JoinAsTold, waited_s: int
) -> None:
    """Somebody else, such as release-lifts, gave it its own request back."""
    slurm, daemon = running(fresh_store, told)
    told.wanted = {}
    slurm._finish(slurm.all[1], "COMPLETED", "0:0", slurm.clock.now_s())
    slurm.tick()
    guest = slurm.all[2]
    guest.other_gres, guest.req_node_names, guest.extra = OWN
    guest.guest, guest.devices = False, ()
    slurm.advance(waited_s)
    daemon.follow(3)
    assert [end for _, end in ends(daemon)] == ["revoked"]
    assert shares(daemon)[0].why == "the guest gave up its place: its host 1 no longer runs"


def test_a_guest_whose_node_failed_starts_again_when_its_former_run_is_gone(
    fresh_store: Path, told: JoinAsTold
) -> None:
    """Slurm's own wait is not ended before: the run may still save its state there, and a second one would be refused."""
    slurm, daemon = running(fresh_store, told)
    told.wanted = {}
    slurm.all[1].work_s = 1.0
    slurm.fail_node(2)
    daemon.follow(20)
    assert slurm.requests()[2] == OWN
    assert (slurm.all[2].state, slurm.all[2].reason) == ("PENDING", "BeginTime")
    at_s = slurm.clock.now_s()
    with daemon.store.write() as session:  # of an earlier job of that id, and of the run
        session.add(NodeEvent(kind="close", job_id=2, restart=0, node="n1", at_s=at_s - 1000))
    daemon.follow(5)
    assert slurm.all[2].state == "PENDING"
    with daemon.store.write() as session:
        session.add(NodeEvent(kind="close", job_id=2, restart=0, node="n1", at_s=at_s))
    daemon.follow(5)
    assert (slurm.all[2].state, slurm.all[2].restarts) == ("RUNNING", 1)
    assert ends(daemon) == [("over", "revoked")]


def test_slurm_itself_starts_a_guest_of_whose_former_run_nobody_tells(fresh_store: Path, told: JoinAsTold) -> None:
    slurm, daemon = running(fresh_store, told)
    told.wanted = {}
    slurm.all[1].work_s = 1.0
    slurm.fail_node(2)
    daemon.follow(130)
    assert (slurm.all[2].state, slurm.all[2].restarts) == ("RUNNING", 1)
    assert not [action for action in daemon.actions() if action.kind == "start-now"]


def test_a_guest_waits_no_longer_for_a_sodad_that_completes_no_cycle(fresh_store: Path, told: JoinAsTold) -> None:
    slurm, daemon = joined(fresh_store, told)
    slurm.held, slurm.silent = True, {"nodes"}
    for _ in range(23):
        slurm.advance(5)
        assert daemon.run().error
    assert slurm.requests()[2] == OWN
    slurm.silent = set()
    told.wanted = {}
    slurm.advance(61)
    daemon.follow(3)
    assert [phase for phase, _ in ends(daemon)] == ["over"]
