"""sodad over a store on PostgreSQL: crashes as on SQLite, and leadership by the server's clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text, update
from sqlalchemy.exc import DBAPIError

from benchmarks.postgresql import new_store_url
from slurm_soda.daemon.cycle.epoch import AnotherDaemonError, SupersededError, begin_epoch, supersede_daemon
from slurm_soda.daemon.cycle.lease import LeaseTiming
from slurm_soda.daemon.cycle.standby import LeadershipClaim
from slurm_soda.daemon.store import server
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.tables.scheduling import Epoch, Standby
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.test_crash import check, play, scenario
from tests.postgresql import postgresql_server


@pytest.fixture
def url() -> str:
    postgresql_server()
    return new_store_url()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()


@pytest.mark.sample(2)
@pytest.mark.parametrize("kill_at", range(1, 101))
def test_a_kill_at_every_point(url: str, tmp_path: Path, kill_at: int) -> None:
    (tmp_path / "store.url").write_text(url)
    slurm = scenario()
    sodad, passed = play(slurm, tmp_path, kill_at)
    assert passed == kill_at
    check(slurm, sodad)


def claim(store: Store, clock: FakeClock, host: str = "ctl2") -> LeadershipClaim:
    return LeadershipClaim(store, clock, host, "/var/lib/slurm-soda", 7, "0", LeaseTiming(60.0, 60.0))


def age(store: Store, seconds: float) -> None:
    """Let the last heartbeat be older, by the server's clock."""
    with store.write() as session:
        session.execute(update(Epoch).values(heartbeat_s=Epoch.heartbeat_s - seconds))


def test_the_backup_waits_for_lease_and_command_by_the_servers_clock(store: Store) -> None:
    clock = FakeClock()  # years away from the server's
    first = claim(store, clock, "ctl1").begin()
    second = claim(store, clock)
    assert second.try_begin() is None
    age(store, 115)
    assert second.try_begin() is None, "the last command may still be on its way"
    with pytest.raises(AnotherDaemonError, match=r"pid 7 on ctl1\) was active 11\d s ago .* or wait [1-5] s"):
        second.begin()
    age(store, 5)
    epoch = second.try_begin()
    assert epoch is not None
    with store.read() as session, pytest.raises(SupersededError):
        first.daemon_epoch.check(session)


def test_a_leader_that_renews_is_waited_for(store: Store) -> None:
    clock = FakeClock()
    first, second = claim(store, clock, "ctl1").begin(), claim(store, clock)
    age(store, 119)
    with store.write() as session:
        first.daemon_epoch.write_heartbeat(session, 0.0)
    age(store, 2)
    assert second.try_begin() is None


def test_a_servers_clock_that_is_set_back_keeps_nobody_waiting_for_ever(store: Store) -> None:
    clock = FakeClock()
    claim(store, clock, "ctl1").begin()
    age(store, -7200)
    second = claim(store, clock)
    assert second.try_begin() is None
    clock.at_s += 119
    assert second.try_begin() is None
    clock.at_s += 1
    assert second.try_begin() is not None


def test_lifts_that_were_taken_back_do_not_shorten_the_wait(store: Store) -> None:
    """A command of the daemon before may still be on its way."""
    clock = FakeClock()
    claim(store, clock, "ctl1").begin()
    assert supersede_daemon(store, host="ctl2", version="0", now_s=0.0, unless=lambda _: False) is not None
    second = claim(store, clock)
    assert second.try_begin() is None
    age(store, 120)
    assert second.try_begin() is not None


def test_one_that_ended_or_was_on_this_controller_is_followed_at_once(store: Store) -> None:
    clock = FakeClock()
    claim(store, clock, "ctl1").begin()
    epoch = claim(store, clock, "ctl1").begin()
    with store.write() as session:
        epoch.daemon_epoch.end(session, 0.0)
    assert claim(store, clock).try_begin() is not None


def test_another_state_directory_of_one_host_is_another_controller(store: Store) -> None:
    begin_epoch(store, host="ctl1", pid=1, version="0", now_s=0.0, state_dir="/a")
    with pytest.raises(AnotherDaemonError):
        begin_epoch(store, host="ctl1", pid=2, version="0", now_s=0.0, state_dir="/b")


def test_a_standby_shows_itself_and_leaves(store: Store) -> None:
    clock = FakeClock()
    claim(store, clock, "ctl1").begin()
    second = claim(store, clock)
    second.try_begin()
    with store.read() as session:
        (row,) = session.query(Standby).all()
        assert (row.host, row.pid) == ("ctl2", 7)
        assert abs(row.seen_s - time.time()) < 60
    second.leave()
    with store.read() as session:
        assert session.query(Standby).all() == []


def test_a_standby_dates_its_lock_at_each_heartbeat_of_the_leader_and_not_after_the_last(store: Store) -> None:
    clock, dated_s = FakeClock(), []
    lease = claim(store, clock, "ctl1").begin()
    second = claim(store, clock)
    second.on_heartbeat = lambda: dated_s.append(clock.at_s)
    begun_s = clock.at_s
    for second_s in range(40):
        clock.at_s = begun_s + second_s
        if second_s <= 12:
            lease.renew()
        second.try_begin()
    assert [at_s - begun_s for at_s in dated_s] == [0, 6, 12]


def test_a_longer_lease_holds_once_the_store_promises_it(store: Store) -> None:
    clock = FakeClock()
    lease = claim(store, clock, "ctl1").begin()
    lease.use(600.0)
    clock.at_s += 55
    with pytest.raises(Exception, match="without a heartbeat"):
        lease.check_age()
    lease.renew()
    with store.write() as session:
        lease.write_heartbeat(session)
    with store.read() as session:
        assert session.get_one(Epoch, 1).take_over_after_s == 660.0
    clock.at_s += 55
    lease.check_age()


def test_who_pauses_within_a_transaction_holds_nobody_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(server._SESSION, "idle_in_transaction_session_timeout", "1s")
    paused, other = open_store(url), open_store(url)

    def write_and_pause() -> None:
        with paused.write() as session:
            session.execute(text("SELECT 1"))
            began_s = time.monotonic()
            with other.write() as second:  # waits for the writers' lock
                second.execute(text("SELECT 1"))
            assert 0.5 < time.monotonic() - began_s < 5
            session.execute(text("SELECT 1"))

    with pytest.raises(DBAPIError, match=r"idle-in-transaction|terminating|closed"):
        write_and_pause()
    paused.close()
    other.close()


@pytest.mark.parametrize("secret", ["soda:{}@h/db", "soda@h/db?password={}", "h/db?user=soda&sslpassword={}"])
def test_no_password_is_shown(secret: str) -> None:
    shown = server.shown_url(server.make_url("postgresql+psycopg://" + secret.format("hunter2")))
    assert "hunter2" not in shown
    assert "***" in shown or "hidden" in shown
    assert server.has_password("postgresql+psycopg://" + secret.format("hunter2"))
    assert not server.has_password("postgresql+psycopg://soda@h/db")


def test_a_server_that_is_away_gives_one_line_without_the_password() -> None:
    with pytest.raises(Exception, match=r"check store\.url and the database server") as caught:
        open_store("postgresql+psycopg://soda:hunter2@127.0.0.1:9/db?password=hunter2")
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)
