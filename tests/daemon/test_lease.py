"""How long a daemon may send and others wait: its own lease ends first, and lasts as long as it goes on."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.daemon.cycle import standby
from slurm_soda.daemon.cycle.lease import Lease, LeaseLapsedError, LeaseTiming
from slurm_soda.daemon.cycle.slurm_access import make_partition_client, make_slurm_client
from slurm_soda.daemon.cycle.standby import LeadershipClaim
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.tables.scheduling import Epoch
from slurm_soda.slurm_ext import cli_client
from slurm_soda.slurm_ext.client import JobUpdate
from slurm_soda.slurm_ext.command_runner import CompletedCommand, LocalCommandRunner
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.write.sending import CHUNK_UPDATES
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.test_odd_text import OneDaemon

TIMING = LeaseTiming(35.0, 64.0)


def begin(store: Store, clock: FakeClock) -> Lease:
    return LeadershipClaim(store, clock, "ctl", "/state", 7, "0", TIMING).begin()


def heartbeat_s(store: Store) -> float:
    with store.read() as session:
        return session.get_one(Epoch, 1).heartbeat_s


@pytest.mark.parametrize("slow", ["begin_epoch", "leave"])
def test_a_lease_counts_from_before_others_see_it(store: Store, monkeypatch: pytest.MonkeyPatch, slow: str) -> None:
    clock, owner = FakeClock(), standby if slow == "begin_epoch" else LeadershipClaim
    call = getattr(owner, slow)

    def slowly(*arguments: Any, **named: Any) -> Any:
        result = call(*arguments, **named)
        clock.at_s += 10
        return result

    monkeypatch.setattr(owner, slow, slowly)
    lease = begin(store, clock)
    clock.at_s += 20
    with pytest.raises(LeaseLapsedError):
        lease.check_age()
    assert clock.now_s() - heartbeat_s(store) == 30


def test_the_store_says_what_the_lease_and_a_claim_to_it_say(store: Store) -> None:
    clock = FakeClock()
    lease = begin(store, clock)
    for duration_s in (35.0, 50.0):
        lease.use(duration_s)
        clock.at_s += 20
        lease.renew()
        with store.read() as session:
            assert session.get_one(Epoch, 1).take_over_after_s == lease.timing.take_over_after_s == duration_s + 64


@pytest.mark.parametrize(("duration_s", "renewed"), [(35.0, [4, 8, 12]), (3600.0, [8, 16, 24])])
def test_a_long_lease_has_heartbeats_as_often_as_those_who_look_expect(
    store: Store, duration_s: float, renewed: list[int]
) -> None:
    clock = FakeClock()
    lease = begin(store, clock)
    lease.use(duration_s)
    began_s, found = clock.at_s, [heartbeat_s(store)]
    while len(found) < 4:
        clock.at_s += 1
        lease.renew()
        if heartbeat_s(store) != found[-1]:
            found.append(heartbeat_s(store))
            assert clock.at_s - began_s == renewed[len(found) - 2]


def test_others_wait_until_the_last_command_of_a_chunk_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, limits_s = Settings(), list[float]()

    def start(argv: Sequence[str], **_: Any) -> Any:
        limits_s.append(float(argv[argv.index("KILL") + 1]))
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "Popen", start)
    client = make_slurm_client(settings.slurm, LocalCommandRunner(), settings.sharing.gres)
    partitions = make_partition_client(settings.slurm, lambda: None)
    for call in (
        lambda: client.update([JobUpdate(1, (("SiteFactor", "0"),))] * CHUNK_UPDATES),
        lambda: client.requeue(1),
        lambda: client.signal(1, "TERM"),
        lambda: partitions.delete("gpu_small"),
    ):
        with pytest.raises(SlurmError):
            call()
    assert len(limits_s) == 4
    last_begins_s = settings.cycle.lease_s + cli_client._RETRY_WITHIN_S
    assert LeaseTiming.of(settings).take_over_after_s == pytest.approx(last_begins_s + max(limits_s))


class SlowSlurm:
    """Each command takes so long; remembers how old the last heartbeat was at most, as others see it."""

    def __init__(self, daemon: OneDaemon, command_s: float) -> None:
        self.daemon, self.command_s, self.replayed = daemon, command_s, daemon.replayed
        self.commands, self.oldest_s = 0, 0.0

    def __call__(self, argv: Sequence[str], **more: Any) -> CompletedCommand:
        self.commands += 1
        self.daemon.clock.at_s += self.command_s
        self.oldest_s = max(self.oldest_s, self.daemon.clock.now_s() - heartbeat_s(self.daemon.store))
        return self.replayed(argv, **more)


def test_slow_reads_leave_a_living_sodad_its_lifts(fresh_store: Path) -> None:
    daemon = OneDaemon(fresh_store)
    daemon.replayed = slow = SlowSlurm(daemon, 19.0)  # type: ignore[assignment]
    assert daemon.cycles.run().error == ""
    assert slow.commands >= 4
    assert slow.oldest_s < daemon.settings.cycle.lease_s


def test_a_pause_within_a_read_voids_what_was_read(fresh_store: Path) -> None:
    daemon = OneDaemon(fresh_store)
    daemon.replayed = slow = SlowSlurm(daemon, 61.0)  # type: ignore[assignment]
    assert "without a heartbeat" in daemon.cycles.run().error
    assert slow.commands == 1
    assert slow.oldest_s == 61, "a command that hangs keeps no lease"


def test_a_cycle_that_goes_on_for_ever_loses_its_lease(store: Store) -> None:
    clock = FakeClock()
    lease = begin(store, clock)
    began_s = clock.at_s
    lease.renew()
    for _ in range(100):
        clock.at_s += 10
        lease.keep()
    assert 290 <= heartbeat_s(store) - began_s <= 300
    with pytest.raises(LeaseLapsedError):
        lease.check()
    lease.renew()
    lease.check()


def test_a_store_that_others_held_for_long_renews_no_lapsed_lease(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, write = FakeClock(), Store.write
    lease = begin(store, clock)
    clock.at_s += 10

    def write_late(self: Store) -> Any:
        clock.at_s += 40
        return write(self)

    monkeypatch.setattr(Store, "write", write_late)
    with pytest.raises(LeaseLapsedError):
        lease.check()
    assert clock.now_s() - heartbeat_s(store) == 50
