"""When a link's incoming side counts as full, and when it does not any more."""

from __future__ import annotations

import pytest
from slurm_soda.agent.network.incoming import Incoming, received_bytes

LINK = 125e6


class Wire:
    """A link of 1 Gbit/s."""

    def __init__(self) -> None:
        self.incoming, self.now_s, self.bytes = Incoming(LINK), 100.0, 5_000_000_000
        self.incoming.see(self.now_s, self.bytes)

    def carry(self, ratio: float, seconds: float = 2.0) -> bool:
        self.now_s += seconds
        self.bytes += int(ratio * seconds * LINK)
        return self.incoming.see(self.now_s, self.bytes)


def test_full_at_the_first_reading_over_three_quarters_and_free_after_five_below() -> None:
    wire = Wire()
    assert [wire.carry(ratio) for ratio in (0.1, 0.74, 0.8, 0.7, 0.62)] == [False, False, True, True, True]
    assert [wire.carry(0.5) for _ in range(5)] == [True, True, True, True, False]


def test_one_that_fills_up_again_waits_longer_each_time_within_a_bound() -> None:
    wire, waited = Wire(), []
    for _ in range(7):
        assert wire.carry(0.95)
        readings = 1
        while wire.carry(0.3):
            readings += 1
        waited.append(readings)
    assert waited == [5, 10, 20, 40, 80, 80, 80]


def test_readings_close_together_and_a_counter_that_starts_anew_say_nothing() -> None:
    wire = Wire()
    assert not wire.carry(0.99, seconds=0.4)
    assert not wire.carry(0.99, seconds=0.4)
    assert wire.carry(0.99, seconds=0.4)
    assert wire.incoming.see(wire.now_s + 2.0, 17)


@pytest.mark.parametrize(("name", "found"), [("eth0", 4021), ("eth1", 7), ("eth", None), ("Inter-", None)])
def test_the_kernels_table(name: str, found: int | None) -> None:
    table = (
        "Inter-|   Receive                                                |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n"
        "  eth0:    4021      12    0    0    0     0          0         0     1000       9    0\n"
        "eth1:7 1 0 0 0 0 0 0 8 1 0\n"
    )
    assert received_bytes(table, name) == found
