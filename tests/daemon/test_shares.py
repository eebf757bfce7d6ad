"""Shares: a waiting job becomes a guest, is followed, and gets its own request back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_soda.daemon.sharing import pair_pauses
from slurm_soda.daemon.sharing.pair_pauses import PairPauses
from slurm_soda.daemon.sharing.share_state import Share
from slurm_soda.daemon.store.tables.scheduling import NodeEvent
from slurm_soda.policies.cpu_fit.limits import Account, AccountingLimits, Association
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.exclusive_nodes import ExclusiveNodes
from slurm_soda.slurm_ext.read.shown_request import shown_request
from slurm_soda.slurm_ext.sharing.guest_record import GuestRecord
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.harness import Daemon
from tests.daemon.records import record
from tests.daemon.sharing_daemon import JoinAsTold, cluster, shares, sodad, told
from tests.daemon.sharing_slurm import SharingSlurm

__all__ = ["told"]
OWN = ("gres/gpu:2", "", "")
PAIR = {2: ((1,), (0, 1))}
REVOKED = Share(
    guest=2, submit_s=0.0, restart=0, nodes=("n1",), record=GuestRecord((1,), (0,)), wrote={}, phase="over", created_s=0.0,
    deadline_s=0.0, users=("bob", "alice"), started_s=1.0, end="revoked", ended_s=2.0,
)  # fmt: skip


def joined(path: Path, told: JoinAsTold) -> tuple[SharingSlurm, Daemon]:
    """Job 2 is rewritten, and has not started yet."""
    slurm, told.wanted = cluster(), dict(PAIR)
    daemon = sodad(slurm, path)
    daemon.run()
    assert slurm.all[2].other_gres == "gres/sharedgpu:g0:1,gres/sharedgpu:g1:1"
    return slurm, daemon


def running(path: Path, told: JoinAsTold) -> tuple[SharingSlurm, Daemon]:
    """Job 2 runs as a guest."""
    slurm, daemon = joined(path, told)
    slurm.advance(1)
    daemon.run()
    assert (slurm.all[2].state, slurm.all[2].devices) == ("RUNNING", (0, 1))
    assert [row.phase for row in shares(daemon)] == ["started"]
    return slurm, daemon


def ends(daemon: Daemon) -> list[tuple[str, str]]:
    return [(row.phase, row.end) for row in shares(daemon)]


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


def test_a_former_guest_that_runs_with_its_record_is_not_looked_at_again_and_again(
    fresh_store: Path, told: JoinAsTold
) -> None:
    """Its owner made it a plain job, and it started before its record was taken back."""
    slurm, daemon = joined(fresh_store, told)
    told.wanted = {}
    assert daemon.run().next_s - slurm.clock.now_s() < 1
    slurm.all[1].work_s = 0.0
    former = slurm.all[2]
    former.other_gres, former.guest, former.devices = "gres/gpu:2", False, ()
    slurm.advance(0.5)
    assert former.state == "RUNNING"
    daemon.run()
    assert ends(daemon) == [("parting", "withdrawn")]
    assert daemon.run().next_s - slurm.clock.now_s() > 1
    slurm.requeue(2)
    daemon.follow(3, every_s=0.5)
    assert slurm.requests()[2] == OWN


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


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"req_node_names": "n2"}, ("gres/gpu:2", "n2", "")),
        ({"other_gres": "gres/gpu:1", "guest": False}, ("gres/gpu:1", "", "")),
        ({"extra": "mine"}, ("gres/gpu:2", "", "mine")),
        ({"requeue": False}, OWN),
        ({"other_gres": "gres/gpu:2", "req_node_names": "", "guest": False}, OWN),
    ],
)
def test_what_the_owner_wrote_stays(
    fresh_store: Path, told: JoinAsTold, fields: dict[str, object], left: tuple[str, str, str]
) -> None:
    slurm, daemon = joined(fresh_store, told)
    slurm.held = True
    for name, value in fields.items():
        setattr(slurm.all[2], name, value)
    daemon.follow(8)
    assert slurm.requests()[2] == left
    assert ends(daemon) == [("over", "owner")]
    assert "changed while it waited" in daemon.job(2).note["shares"]["refused"]


def test_half_an_update_is_taken_back_at_once(fresh_store: Path, told: JoinAsTold) -> None:
    slurm, told.wanted = cluster(), dict(PAIR)
    slurm.refuse_gres = 1
    daemon = sodad(slurm, fresh_store)
    daemon.run()
    assert slurm.requests()[2] == ("gres/gpu:2", "n1", "")
    told.wanted = {}
    daemon.follow(2, every_s=0.5)
    assert slurm.requests()[2] == OWN
    assert ends(daemon) == [("over", "refused")]


def test_a_pair_that_fails_again_and_again_is_tried_less_and_less(fresh_store: Path, told: JoinAsTold) -> None:
    slurm, told.wanted = cluster(), dict(PAIR)
    slurm.all[1].work_s, slurm.refuse_gres = 1e6, 1000
    often = {"interval_s": 0.5}
    sodad(slurm, fresh_store, cycle=often).follow(40, every_s=0.5)
    daemon = sodad(slurm, fresh_store, cycle=often)
    daemon.follow(100, every_s=0.5)
    tried = [row.created_s for row in shares(daemon)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert 5 <= len(gaps) <= 7, gaps
    assert all(later >= 1.5 * earlier for earlier, later in itertools.pairwise(gaps)), gaps


def test_a_parted_pair_starts_again_alone_and_never_shares_again(fresh_store: Path, told: JoinAsTold) -> None:
    slurm, daemon = running(fresh_store, told)
    told.parted = {2: "2.0 times slower"}
    daemon.follow(3)
    told.parted = {}
    daemon.follow(150)
    daemon = sodad(slurm, fresh_store)
    daemon.follow(10)
    assert slurm.requests()[2] == OWN
    assert slurm.all[2].restarts == 1
    assert ends(daemon) == [("over", "parted")]
    assert [p.phase for p in daemon.preemptions()] == ["done"]
    daemon.follow(100)
    assert slurm.all[2].state == "COMPLETED"


def test_a_guest_that_the_store_does_not_know_is_taken_up(fresh_store: Path, told: JoinAsTold, tmp_path: Path) -> None:
    slurm, _ = joined(fresh_store, told)
    slurm.held = True
    told.wanted = {}
    (other := tmp_path / "other").mkdir()
    daemon = sodad(slurm, other)
    daemon.run()
    assert [(row.phase, row.hosts) for row in shares(daemon)] == [("rewritten", [1])]
    daemon.follow(35)
    assert slurm.requests()[2] == OWN


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


def test_a_guest_without_a_record_is_nobodys(fresh_store: Path, told: JoinAsTold) -> None:
    slurm = cluster()
    slurm.all[2].other_gres = "gres/sharedgpu:g0:1"
    slurm.tick()
    daemon = sodad(slurm, fresh_store)
    daemon.follow(5)
    assert shares(daemon) == []
    assert slurm.requests()[2][0] == "gres/sharedgpu:g0:1"


def test_a_record_that_promises_more_than_the_job_has_is_not_followed(fresh_store: Path, told: JoinAsTold) -> None:
    slurm = cluster()
    guest, slurm.held = slurm.all[2], True
    guest.other_gres, guest.req_node_names, guest.guest, guest.devices = "gres/sharedgpu:g0:1", "n1", True, (0,)
    guest.gpus, guest.extra = 1, "soda-guest:1,hosts=1,gpus=0,undo=TresPerNode=gres/gpu:4;ReqNodeList="
    sodad(slurm, fresh_store).follow(5, every_s=0.5)
    assert slurm.requests()[2] == ("gres/gpu:1", "", "")


@pytest.mark.parametrize(
    ("asks", "at", "nodes", "left"),
    [
        ("gres/gpu:2", "n1", "", ""),
        ("gres/gpu:1", "n1", "n1", "n1"),
        ("gres/gpu:1", "n2", "", "n2"),
    ],
)
def test_a_record_that_its_guest_was_left_with_is_taken_back(
    fresh_store: Path, told: JoinAsTold, asks: str, at: str, nodes: str, left: str
) -> None:
    """Its owner made it a plain job, and no share of it is known any more."""
    slurm = cluster()
    slurm.submit(3, gpus=1)
    former, stranger = slurm.all[2], slurm.all[3]
    former.other_gres, former.req_node_names = asks, at
    former.extra = f"soda-guest:1,hosts=1,gpus=0+1,undo=TresPerNode=gres/gpu:2;ReqNodeList={nodes}"
    stranger.req_node_names, stranger.extra = "n1", "mine"
    daemon = sodad(slurm, fresh_store)
    daemon.follow(3, every_s=0.5)
    assert slurm.requests()[2] == (asks, left, "")
    assert slurm.requests()[3] == ("gres/gpu:1", "n1", "mine")
    assert ends(daemon) == [("over", "owner")]


def test_who_becomes_a_guest_between_two_looks_keeps_its_record(
    fresh_store: Path, told: JoinAsTold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sodad has read the jobs, somebody else makes one a guest, and sodad reads the records."""
    slurm = cluster()
    guest, extras = slurm.all[2], slurm.extras
    guest.req_node_names = "n1"
    record = "soda-guest:1,hosts=1,gpus=0+1,undo=TresPerNode=gres/gpu:2;ReqNodeList=n1"

    def made_a_guest(job_ids: Sequence[int]) -> dict[int, str | SlurmReplyError]:
        guest.other_gres, guest.extra = "gres/sharedgpu:g0:1,gres/sharedgpu:g1:1", record
        return extras(job_ids)

    monkeypatch.setattr(slurm, "extras", made_a_guest)
    daemon = sodad(slurm, fresh_store)
    daemon.run()
    slurm.advance(1)
    daemon.follow(3)
    assert (guest.state, guest.guest, guest.extra) == ("RUNNING", True, record)
    assert [row.phase for row in shares(daemon)] == ["started"]


def test_who_would_pass_a_limit_is_not_joined(fresh_store: Path, told: JoinAsTold) -> None:
    slurm, told.wanted = cluster(), dict(PAIR)
    alice = {"alice": (Association("acc", gpu_limit="MaxTRESPU=gres/gpu"),)}
    slurm.limits = AccountingLimits(enforced=True, qos_enforced=True, users=alice, accounts={"acc": Account()},
                                    qos={"normal": ""}, qos_gpu={"normal": ""})  # fmt: skip
    daemon = sodad(slurm, fresh_store)
    daemon.follow(3)
    assert slurm.requests()[2] == OWN
    assert "MaxTRESPU=gres/gpu of its owner's association" in str(daemon.job(2).note["shares"])


def test_who_has_not_agreed_is_not_joined(fresh_store: Path, told: JoinAsTold) -> None:
    for silent in (1, 2):
        slurm, told.wanted = cluster(), dict(PAIR)
        slurm.all[silent].hints = type(slurm.all[silent].hints)()
        daemon = sodad(slurm, fresh_store)
        daemon.follow(3)
        assert slurm.requests()[2] == OWN
        assert shares(daemon) == []
        assert "not agreed to share" in daemon.job(2).note["shares"]["refused"]


SITE = {"sharing": {"partitions": ["main"], "different_users": ["main"]}, "preemption": {"max_per_job": 4}}


def hosts_leave(slurm: SharingSlurm, daemon: Daemon, told: JoinAsTold, host: int, *, runs_s: float, times: int) -> int:
    """The owner of the host submits it again before he cancels it, over and over; gives the last one's id."""
    for _ in range(times):
        following = max(host, 9_999) + 1
        slurm.submit(following, gpus=4, work_s=1e6, priority=10_000)
        told.wanted = {guest: ((host,), gpus) for guest, (_, gpus) in told.wanted.items()}
        daemon.follow(runs_s)
        slurm._finish(slurm.all[host], "CANCELLED", "0:15", slurm.clock.now_s())
        daemon.follow(6)
        host = following
    told.wanted = {guest: ((host,), gpus) for guest, (_, gpus) in told.wanted.items()}
    daemon.run()
    return host


def of_bob(path: Path, told: JoinAsTold) -> tuple[SharingSlurm, Daemon]:
    """Beside the host of alice waits a guest of bob's."""
    slurm, told.wanted = cluster(), dict(PAIR)
    slurm.all[1].work_s = slurm.all[2].work_s = 1e6
    slurm.all[2].user, slurm.only_guests = "bob", frozenset({2})
    return slurm, sodad(slurm, path, **SITE)


@pytest.mark.parametrize(("runs_s", "times"), [(4.0, 12), (90.0, 5)])
def test_hosts_that_leave_do_not_send_a_guest_away_without_end(
    fresh_store: Path, told: JoinAsTold, runs_s: float, times: int
) -> None:
    slurm, daemon = of_bob(fresh_store, told)
    last = hosts_leave(slurm, daemon, told, 1, runs_s=runs_s, times=times)
    assert 2 <= slurm.all[2].restarts <= 4
    last = hosts_leave(slurm, sodad(slurm, fresh_store, **SITE), told, last, runs_s=90.0, times=3)
    assert slurm.all[2].restarts == 4
    daemon = sodad(slurm, fresh_store, **SITE)
    hosts_leave(slurm, daemon, told, last, runs_s=90.0, times=1)
    assert slurm.all[2].restarts == 4
    assert "preemption.max_per_job" in daemon.job(2).note["shares"]["refused"]


def test_users_whose_hosts_leave_at_once_do_the_same_to_no_other_job_of_that_user(
    fresh_store: Path, told: JoinAsTold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_pauses, "FIRST_PAUSE_S", 30.0)
    slurm, daemon = of_bob(fresh_store, told)
    last = hosts_leave(slurm, daemon, told, 1, runs_s=5.0, times=1)
    assert slurm.all[2].restarts == 1
    slurm.submit(200, gpus=2, work_s=1e6, user="bob")
    slurm.submit(201, gpus=2, work_s=1e6, user="carol")
    told.wanted = {200: ((last,), (0, 1)), 201: ((last,), (2, 3))}
    for restarted in (False, True):
        daemon = sodad(slurm, fresh_store, **SITE) if restarted else daemon
        daemon.run()
        assert slurm.requests()[200] == OWN
        assert "jobs of bob lost their places beside alice's" in daemon.job(200).note["shares"]["refused"]
    assert slurm.all[201].guest


def test_owners_that_do_not_share_are_told_apart_to_the_policy() -> None:
    pauses, guest = PairPauses(), lambda at: replace(REVOKED, guest=at)
    for at in range(3):
        pauses.note(guest(at + 10), 0.0)
    assert pauses.owners_apart(3.0) == {("bob", "alice")}
    assert pauses.owners_apart(4.0) == set()
    pauses.note(replace(guest(20), users=("alice", "alice")), 5.0)
    assert pauses.owners_apart(5.0) == set()


def test_a_guest_that_never_starts_is_pinned_less_and_less_whoever_its_hosts_are(
    fresh_store: Path, told: JoinAsTold
) -> None:
    slurm = SharingSlurm(FakeClock())
    for host in (1, 3):
        slurm.submit(host, gpus=2, work_s=1e6)
    slurm.tick()
    slurm.submit(2, gpus=2, work_s=60.0)
    slurm.held, pinned = True, 0
    daemon = sodad(slurm, fresh_store)
    for second in range(400):
        told.wanted = {2: [((1,), (0, 1)), ((3,), (2, 3))][second // 31 % 2]}
        daemon.follow(1)
        pinned += slurm.all[2].guest
    assert 60 < pinned < 150, "30 s before pauses of 30, 60, 120 and 240 s"


def test_what_a_guest_cannot_have_is_asked_again_later_and_later() -> None:
    pauses, asks = PairPauses(), record(2, tres_per_node="gres/gpu:2")
    tries, now_s = [], 0.0
    while now_s < 20_000:
        if not pauses.why_refused(asks, now_s):
            tries.append(now_s)
            pauses.note_refused(2, "it has --mem-per-gpu", shown_request(asks), now_s)
        now_s += 1.0
    assert tries == [0, 60, 180, 420, 900, 1860, 3780, 7380, 10980, 14580, 18180]
    changed = replace(asks, tres_per_node="gres/gpu:1")
    assert (pauses.why_refused(asks, now_s), pauses.why_refused(changed, now_s)) == ("it has --mem-per-gpu", "")
    pauses.keep({3})
    assert pauses.why_refused(asks, now_s) == ""
