"""Which pairs are not made, or not again, and how long pauses are."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_soda.daemon.sharing import pair_pauses
from slurm_soda.daemon.sharing.pair_pauses import PairPauses
from slurm_soda.daemon.sharing.share_state import Share
from slurm_soda.policies.cpu_fit.limits import Account, AccountingLimits, Association
from slurm_soda.slurm_ext.read.shown_request import shown_request
from slurm_soda.slurm_ext.sharing.guest_record import GuestRecord
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.harness import Daemon
from tests.daemon.records import record
from tests.daemon.sharing_daemon import OWN, PAIR, JoinAsTold, cluster, ends, running, shares, sodad, told
from tests.daemon.sharing_slurm import SharingSlurm

__all__ = ["told"]
REVOKED = Share(
    guest=2, submit_s=0.0, restart=0, nodes=("n1",), record=GuestRecord((1,), (0,)), wrote={}, phase="over", created_s=0.0,
    deadline_s=0.0, users=("bob", "alice"), started_s=1.0, end="revoked", ended_s=2.0,
)  # fmt: skip
SITE = {"sharing": {"partitions": ["main"], "different_users": ["main"]}, "preemption": {"max_per_job": 4}}


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
