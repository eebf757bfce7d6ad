"""When a link's incoming side counts as full, and when it does not any more."""

from __future__ import annotations

import pytest

from slurm_soda.agent.network.network_controller import received_bytes
from slurm_soda.policies.node_limits.incoming_congestion import IncomingCongestion

LINK = 125e6


class Wire:
    """A link of 1 Gbit/s."""

    def __init__(self) -> None:
        self.incoming, self.now_s, self.bytes = IncomingCongestion(LINK), 100.0, 5_000_000_000
        self.gpu_bytes: int | None = 1000
        self.asked = 0
        self.incoming.observe(self.now_s, self.bytes, self.gpu_received)

    def gpu_received(self) -> int | None:
        self.asked += 1
        return self.gpu_bytes

    def carry(self, ratio: float, gpu: float = 0.1, seconds: float = 2.0) -> bool:
        self.now_s += seconds
        self.bytes += int(ratio * seconds * LINK)
        if self.gpu_bytes is not None:
            self.gpu_bytes += int(gpu * seconds * LINK)
        return self.incoming.observe(self.now_s, self.bytes, self.gpu_received)


def test_full_at_the_second_reading_over_three_quarters_and_free_after_five_below() -> None:
    wire = Wire()
    ratios = (0.1, 0.74, 0.8, 0.7, 0.9, 0.8, 0.7, 0.62)
    assert [wire.carry(ratio) for ratio in ratios] == [False] * 5 + [True] * 3
    assert [wire.carry(0.5) for _ in range(5)] == [True, True, True, True, False]
    assert wire.asked == 3, "programs are run while the link is full and nobody is limited, not else"


def test_cpu_jobs_alone_may_fill_the_link() -> None:
    wire = Wire()
    assert [wire.carry(0.98, gpu=0.01) for _ in range(9)] == [False] * 9
    assert wire.carry(0.98, gpu=0.03)


def test_nothing_is_limited_where_it_is_not_known_who_receives() -> None:
    wire = Wire()
    wire.gpu_bytes = None
    assert [wire.carry(0.98) for _ in range(4)] == [False] * 4
    wire.gpu_bytes = 5
    assert not wire.carry(0.98)
    assert wire.carry(0.98)


def test_one_that_fills_up_again_waits_longer_each_time_within_a_bound() -> None:
    wire, waited = Wire(), []
    for _ in range(7):
        wire.carry(0.95)
        assert wire.carry(0.95)
        readings = 1
        while wire.carry(0.3):
            readings += 1
        waited.append(readings)
    assert waited == [5, 10, 20, 40, 80, 80, 80]


def test_readings_close_together_and_a_counter_that_starts_anew_say_nothing() -> None:
    wire = Wire()
    assert [wire.carry(0.99, seconds=0.4) for _ in range(6)] == [False] * 5 + [True]
    assert wire.incoming.observe(wire.now_s + 2.0, 17, wire.gpu_received)


@pytest.mark.parametrize(("name", "found"), [("eth0", 4021), ("eth1", 7), ("eth", None), ("Inter-", None)])
def test_the_kernels_table(name: str, found: int | None) -> None:
    table = (
        "Inter-|   Receive                                                |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n"
        "  eth0:    4021      12    0    0    0     0          0         0     1000       9    0\n"
        "eth1:7 1 0 0 0 0 0 0 8 1 0\n"
    )
    assert received_bytes(table, name) == found
