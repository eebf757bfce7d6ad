"""What admins want shared: sodad keeps it, and carries it out as it does a policy's plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from slurm_soda.daemon.learning.profile_rows import row_columns
from slurm_soda.daemon.sharing.manual_shares import SHARE_WITHIN_S, ManualShares
from slurm_soda.daemon.sharing.share_state import Share
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.manual_shares import put_manual_share
from slurm_soda.daemon.store.tables.kind_profiles import ProfileValueRow
from slurm_soda.daemon.store.tables.sharing import ManualShareRow
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileSubject, ProfileValue
from slurm_soda.policies.sharing.snapshot import SharingJobs
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.sharing.guest_record import GuestRecord
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.harness import Daemon, KilledError, Killer
from tests.daemon.records import record
from tests.daemon.sharing_daemon import OWN, ends, shares, sodad
from tests.daemon.sharing_slurm import SharingSlurm

KIND = Hints(model="m", batch_size=8, share=True)


def know(store: Store) -> None:
    """How long an iteration takes, and that two of them hardly slow each other down."""
    values = []
    for gpus, others in ((2, 4), (4, 2)):
        kind, other = JobKind("m", 8, "", gpus), JobKind("m", 8, "", others)
        values.append(ProfileValue(ProfileSubject(kind), "iteration_s", Estimate(1.0, 0.0, Source.SET)))
        values.append(ProfileValue(ProfileSubject.of(kind, other), "xi", Estimate(1.1, 0.0, Source.SET)))
        values.append(ProfileValue(ProfileSubject.of(kind, other), "fits", Estimate(1.0, 0.0, Source.SET)))
    with store.write() as session:
        session.add_all(ProfileValueRow(**row_columns(value)) for value in values)


def site(path: Path, killer: Killer | None = None, **more: Any) -> tuple[SharingSlurm, Daemon]:
    """Job 1 runs on all four GPUs, job 2 waits, the policy never shares, and sodad knows both."""
    slurm = SharingSlurm(FakeClock())
    slurm.submit(1, gpus=4, work_s=2000.0, hints=replace(KIND, iterations=2000))
    slurm.tick()
    slurm.submit(2, gpus=2, work_s=60.0, checkpoint="TERM", hints=replace(KIND, iterations=60))
    daemon = sodad(slurm, path, **more)
    know(daemon.store)
    daemon.follow(3)
    assert slurm.requests()[2] == OWN
    return slurm, daemon


def want(daemon: Daemon, kind: Any, hosts: tuple[int, ...] = (1,), guest: int = 2) -> None:
    now_s = daemon.slurm.clock.now_s()
    with daemon.store.write() as session:
        put_manual_share(session, kind, guest, daemon.job(guest).submit_s, hosts, now_s=now_s, by="root")


def wanted(daemon: Daemon) -> list[tuple[str, str]]:
    return [(row.phase, row.why) for row in daemon.rows(ManualShareRow)]


def shared(path: Path) -> tuple[SharingSlurm, Daemon]:
    slurm, daemon = site(path)
    want(daemon, "share")
    daemon.follow(3)
    assert (slurm.all[2].state, slurm.all[2].guest, slurm.all[2].devices) == ("RUNNING", True, (0, 1))
    assert ends(daemon) == [("started", "")]
    return slurm, daemon


def test_a_policy_that_never_shares_and_an_admin_who_does(fresh_store: Path) -> None:
    slurm, daemon = shared(fresh_store)
    assert wanted(daemon) == [("over", "it started beside job 1")]
    assert shares(daemon)[0].why.startswith("by hand: guest of job 1")
    daemon.follow(90)
    assert slurm.all[2].state == "COMPLETED"
    assert [action.kind for action in daemon.actions() if action.job_id == 2 and action.kind != "order"] == ["share"]


def test_a_running_guest_is_sent_back_and_not_put_there_again(fresh_store: Path) -> None:
    slurm, daemon = shared(fresh_store)
    want(daemon, "unshare")
    daemon.follow(60)
    assert ends(daemon) == [("over", "unshared")]
    assert slurm.requests()[2] == OWN
    assert (slurm.all[2].state, slurm.all[2].restarts) == ("PENDING", 1)
    assert wanted(daemon)[-1] == ("kept", "")
    assert [p.phase for p in daemon.preemptions()] == ["done"]
    daemon = sodad(slurm, fresh_store, policy={"name": "sjf-bsbf"})
    daemon.follow(100)
    assert ends(daemon) == [("over", "unshared")]
    want(daemon, "share")
    daemon.follow(5)
    assert slurm.all[2].guest, "a later word of an admin's holds"
    assert wanted(daemon)[1] == ("over", "a later word of an admin holds")


def test_a_guest_that_waits_gets_its_request_back(fresh_store: Path) -> None:
    slurm, daemon = site(fresh_store)
    slurm.held = True
    want(daemon, "share")
    daemon.follow(2)
    assert slurm.all[2].other_gres == "gres/sharedgpu:g0:1,gres/sharedgpu:g1:1"
    want(daemon, "unshare")
    daemon.follow(3)
    assert slurm.requests()[2] == OWN
    assert ends(daemon) == [("over", "unshared")]
    assert wanted(daemon)[-1] == ("kept", "")


@pytest.mark.parametrize("mode", ["observe", "advise"])
def test_nothing_is_done_in_modes_that_do_nothing(fresh_store: Path, mode: str) -> None:
    slurm, daemon = site(fresh_store, mode=mode)
    want(daemon, "share")
    daemon.follow(10)
    assert slurm.requests()[2] == OWN
    assert daemon.actions() == []
    assert [phase for phase, _ in wanted(daemon)] == ["asked"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"hints": replace(KIND, iterations=60, share=False)}, "not everybody allows sharing"),
        ({"user": "bob"}, "a job of another user is there"),
        ({"hints": replace(KIND, iterations=60, max_slowdown=1.05)}, "slows a job 1.100 times, allowed 1.050"),
        ({"batch": False}, "it cannot be requeued"),
    ],
)
def test_what_may_not_be_is_told_tried_for_an_hour_and_given_up(
    fresh_store: Path, change: dict[str, Any], why: str
) -> None:
    slurm, daemon = site(fresh_store)
    slurm.all[1].work_s = 1e6
    for name, value in change.items():
        setattr(slurm.all[2], name, value)
    want(daemon, "share")
    daemon.follow(5)
    ((phase, told),) = wanted(daemon)
    assert phase == "asked"
    assert why in told
    slurm.clock.at_s += SHARE_WITHIN_S
    daemon.run()
    ((phase, told),) = wanted(daemon)
    assert (phase, told.split(";")[0]) == ("over", "given up after 60 min")
    assert slurm.requests()[2] == OWN


def test_an_old_word_is_not_carried_out_by_a_sodad_that_starts(fresh_store: Path) -> None:
    slurm, daemon = site(fresh_store)
    slurm.all[1].work_s = 1e6
    want(daemon, "share")
    slurm.clock.at_s += SHARE_WITHIN_S + 1
    daemon = sodad(slurm, fresh_store)
    daemon.follow(3)
    assert slurm.requests()[2] == OWN
    assert wanted(daemon) == [("over", "given up after 60 min; it did not start")]


@pytest.mark.parametrize(
    ("share_phase", "created_s", "phase", "joins"),
    [("started", 90.0, "asked", ((20, 1),)), ("rewritten", 100.0, "asked", ()), ("started", 100.0, "over", ())],
    ids=["an earlier word's", "on its way", "there"],
)
def test_of_an_array_one_task_joins_for_each_word(
    share_phase: Any, created_s: float, phase: str, joins: tuple[tuple[int, int], ...]
) -> None:
    row = ManualShareRow(
        id=1, guest=20, submit_s=0.0, kind="share", hosts=[1], phase="asked", why="", asked_s=95.0, asked_by="root"
    )
    jobs = {
        1: record(1, "RUNNING"),
        20: record(20, "PENDING", array_job_id=20, array_task="3-9"),
        21: record(21, "RUNNING", array_job_id=20, array_task="2"),
    }
    share = Share(
        guest=21, submit_s=0.0, restart=0, nodes=("n1",), record=GuestRecord((1,), (0,)), wrote={}, phase=share_phase,
        created_s=created_s, deadline_s=0.0,
    )  # fmt: skip
    cache: Any = SimpleNamespace(submit_s=lambda _: 0.0)
    manual = ManualShares([row])
    manual.conclude(None, parts=True, refusals={}, shares={21: share}, jobs=jobs, job_cache=cache, now_s=101.0)
    assert row.phase == phase
    number, amount, agreed = np.zeros(3, dtype=np.int64), np.zeros(3), np.ones(3, dtype=np.bool_)
    sharing = SharingJobs((), number, number, number, amount, agreed, amount)
    assert manual.mark(sharing, list(jobs), 102.0).manual_joins == joins


@pytest.mark.parametrize(("ahead_s", "held"), [(0.5, 0), (0.0, 1), (-5.0, 1), (3600.0, 1)])
def test_a_word_that_comes_in_the_middle_of_a_cycle_is_the_next_ones(
    fresh_store: Path, ahead_s: float, held: int
) -> None:
    _, daemon = site(fresh_store)
    want(daemon, "share")
    manual = ManualShares()
    manual.read(daemon.store, daemon.slurm.clock.now_s() - ahead_s)
    assert len(manual.rows) == held


@pytest.mark.parametrize(("how", "why"), [("host", "job 1 no longer runs"), ("guest", "job 2 has ended")])
def test_it_ends_with_its_jobs(fresh_store: Path, how: str, why: str) -> None:
    slurm, daemon = site(fresh_store)
    slurm.all[2].batch = False
    want(daemon, "share")
    daemon.run()
    slurm._finish(slurm.all[1 if how == "host" else 2], "COMPLETED", "0:0", slurm.clock.now_s())
    daemon.run()
    assert wanted(daemon) == [("over", why)]


def test_killed_between_any_two_steps_the_end_is_the_same(fresh_store: Path, tmp_path: Path) -> None:
    points = 0
    while True:
        points += 1
        (path := tmp_path / str(points)).mkdir()
        slurm, daemon = site(path)
        want(daemon, "share")
        try:
            killer = Killer(at=points)
            sodad(slurm, path, killer).follow(4)
        except KilledError:
            daemon = sodad(slurm, path)
            daemon.follow(20)
            assert ends(daemon)[-1] == ("started", ""), points
            assert {phase for phase, _ in ends(daemon)[:-1]} <= {"over"}, points
            assert wanted(daemon) == [("over", "it started beside job 1")], points
            continue
        break
    assert points > 8


def test_a_guest_that_cannot_leave_says_so(fresh_store: Path) -> None:
    slurm, daemon = shared(fresh_store)
    slurm.all[2].checkpoint = None
    want(daemon, "unshare")
    daemon.follow(5)
    ((phase, why),) = [row for row in wanted(daemon) if row[0] != "over"]
    assert phase == "asked"
    assert why.startswith("it cannot be made to leave now")
    assert slurm.all[2].guest
