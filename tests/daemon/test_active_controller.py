"""Two controllers with a store each: only the sodad beside the active slurmctld acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.daemon.cycle.active_controller import ActiveController, is_this_host, parse_ping
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from tests.daemon.fake_slurm import FakeClock, FakeSlurm
from tests.daemon.harness import Daemon

BOTH = "Slurmctld(primary) at ctl1 is UP\nSlurmctld(backup) at ctl2 is UP\n"
SECOND = "Slurmctld(primary) at ctl1 is DOWN\nSlurmctld(backup) at ctl2 is UP\n"
ONE = "Slurmctld(primary) at elsewhere is UP\n"


@dataclass
class Ping:
    """What scontrol says."""

    text: str
    asked: int = 0
    slurm_conf: Path = Path("/nonexistent")

    def __call__(self, argv: Any, **_: Any) -> CompletedCommand:
        if tuple(argv) == ("scontrol", "show", "config"):
            return CompletedCommand(tuple(argv), 0, f"SLURM_CONF              = {self.slurm_conf}\n".encode(), b"")
        assert tuple(argv) == ("scontrol", "ping")
        self.asked += 1
        return CompletedCommand(tuple(argv), 0, self.text.encode(), b"")


def controller(host: str, ping: Ping, clock: FakeClock) -> ActiveController:
    return ActiveController(ping, clock, 20.0, 120.0, is_here=lambda name: name == host)


def test_the_words_of_scontrol_ping() -> None:
    assert parse_ping(SECOND.encode()) == [("ctl1", False), ("ctl2", True)]
    assert parse_ping(b"Slurmctld(backup1) at c2.example is UP\n") == [("c2.example", True)]
    assert parse_ping(b"slurm_load: Unable to contact slurm controller\n") == []


def test_a_site_with_one_controller_asks_for_nothing_more() -> None:
    ping, clock = Ping(ONE), FakeClock()
    one = controller("ctl1", ping, clock)
    assert [one.reason_to_observe() for _ in range(5)] == [""] * 5
    assert ping.asked == 1


def asked_in(seconds: int, one: ActiveController, ping: Ping, clock: FakeClock) -> int:
    """How often Slurm was asked in cycles that begin every second."""
    before = ping.asked
    for _ in range(seconds):
        clock.at_s += 1
        assert one.reason_to_observe() == ""
    return ping.asked - before


def test_a_site_with_one_controller_asks_seldom_and_after_a_change_of_slurm_conf(tmp_path: Path) -> None:
    ping, clock = Ping(ONE, slurm_conf=tmp_path / "slurm.conf"), FakeClock()
    ping.slurm_conf.write_text("SlurmctldHost=elsewhere\n")
    one = controller("ctl1", ping, clock)
    assert asked_in(600, one, ping, clock) == 2
    ping.slurm_conf.write_text("SlurmctldHost=ctl1\nSlurmctldHost=ctl2\n")
    ping.text = BOTH
    clock.at_s += 1
    assert "may have acted just now" in one.reason_to_observe()


def test_a_site_whose_slurm_conf_cannot_be_looked_at_is_asked_as_one_with_two_controllers() -> None:
    ping, clock = Ping(ONE), FakeClock()
    assert asked_in(600, controller("ctl1", ping, clock), ping, clock) == 60


def test_one_controller_is_asked_for_now_and_then_although_slurm_conf_stays(tmp_path: Path) -> None:
    ping, clock = Ping(ONE, slurm_conf=tmp_path), FakeClock()
    assert asked_in(3600, controller("ctl1", ping, clock), ping, clock) in (7, 8)


def test_after_a_fail_over_of_slurm_the_next_sodad_acts_once_the_first_one_is_surely_done() -> None:
    ping, clock = Ping(BOTH), FakeClock()
    first, second = controller("ctl1", ping, clock), controller("ctl2", ping, clock)
    assert "may have acted just now: 120 s left" in first.reason_to_observe()
    assert "active on ctl1, not on this host" in second.reason_to_observe()
    clock.at_s += 120
    assert first.reason_to_observe() == ""
    ping.text = SECOND
    clock.at_s += 10
    assert "active on ctl2" in first.reason_to_observe()
    assert "120 s left" in second.reason_to_observe()
    clock.at_s += 120
    assert second.reason_to_observe() == ""
    assert "active on ctl2" in first.reason_to_observe()


def test_slurm_that_says_nothing_changes_nothing() -> None:
    ping, clock = Ping(BOTH), FakeClock()
    second = controller("ctl2", ping, clock)
    before = second.reason_to_observe()
    ping.text = ""
    clock.at_s += 60
    assert second.reason_to_observe() == before


@pytest.mark.parametrize(("name", "here"), [("localhost", True), ("192.0.2.1", False), ("no-such-host.invalid", False)])
def test_a_host_is_known_by_its_addresses_too(name: str, here: bool) -> None:
    assert is_this_host(name) is here


def test_a_daemon_with_a_reason_to_observe_changes_nothing_and_says_why(
    slurm: FakeSlurm, daemon: Callable[..., Daemon]
) -> None:
    slurm.submit(1, gpus=4, work_s=1e6)
    slurm.tick()
    slurm.advance(200)
    slurm.submit(2, gpus=4, work_s=5.0)
    sodad = daemon(reason_to_observe=lambda: "slurmctld is active elsewhere")
    sodad.follow(5)
    assert (sodad.actions(), sodad.last_cycle().mode) == ([], "observe")
    assert "slurmctld is active elsewhere" in sodad.last_cycle().facts["problems"]
