"""Counters to rates: groups that come and go, counters that start anew, values that are not there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.agent.contention.bandwidth import BandwidthMeter, BandwidthRates

Reading = dict[str, dict[int, int | None]]
SODA = "mon_groups/soda-1"


def rates(before: Reading, after: Reading, seconds: float = 2.0) -> BandwidthRates:
    meter = BandwidthMeter()
    assert meter.read(10.0, before) is None
    found = meter.read(10.0 + seconds, after)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("before", "after", "node", "complete", "jobs"),
    [
        ({"": {0: 0}}, {"": {0: 20}}, 10, True, {}),
        ({"": {0: 0, 1: 5}}, {"": {0: 20, 1: 15}}, 15, True, {}),
        # the root's count contains its monitoring groups', those of top-level groups it does not
        ({"": {0: 10}, SODA: {0: 10}}, {"": {0: 50}, SODA: {0: 30}}, 20, True, {1: 10}),
        ({"": {0: 10}, "soda-1": {0: 10}}, {"": {0: 50}, "soda-1": {0: 30}}, 30, True, {1: 10}),
        # made in between: counted from 0
        ({"": {0: 10}}, {"": {0: 50}, SODA: {0: 30}}, 20, True, {1: 15}),
        # removed in between: its part leaves the root's count, the root's own stays known
        ({"": {0: 100}, SODA: {0: 90}}, {"": {0: 20}}, 5, True, {}),
        # measured before, throttled now
        ({"": {0: 100}, SODA: {0: 90}}, {"": {0: 20}, "soda-1": {0: 8}}, 9, True, {1: 4}),
        ({"": {0: 10}, "site": {0: 70}}, {"": {0: 30}, "site": {0: 6}}, 10, False, {}),
        ({"": {0: 10}, SODA: {0: 8}}, {"": {0: 30}, SODA: {0: None}}, 0, False, {1: 0}),
        ({"": {0: 10}, "site": {0: None}}, {"": {0: 30}, "site": {0: 9}}, 10, False, {}),
        # a domain that went offline or came
        ({"": {0: 10}}, {"": {0: 30, 1: 100}}, 10, False, {}),
    ],
)
def test_rates(before: Reading, after: Reading, node: float, complete: bool, jobs: dict[int, float]) -> None:
    found = rates(before, after)
    assert (found.node, found.complete, found.jobs) == (node, complete, jobs)


def test_the_fullest_socket_is_seen() -> None:
    assert rates({"": {0: 0, 1: 0}}, {"": {0: 200, 1: 20}}).domains == {0: 100, 1: 10}


def test_files_read_one_after_the_other_may_disagree_a_little() -> None:
    """The groups counted 2 bytes more after the root was read: less than nothing is left for the root's own."""
    skewed = rates({"": {0: 1000}, SODA: {0: 1000}}, {"": {0: 1998}, SODA: {0: 2000}})
    assert (skewed.node, skewed.complete) == (500, True)
    assert not rates({"": {0: 1000}, SODA: {0: 900}}, {"": {0: 1000}, SODA: {0: 1000}}).complete


def test_readings_too_close_together_wait_for_the_next() -> None:
    meter = BandwidthMeter()
    meter.read(1.0, {"": {0: 0}})
    assert meter.read(1.05, {"": {0: 5}}) is None
    found = meter.read(2.0, {"": {0: 10}})
    assert found is not None
    assert found.node == 10


def test_a_mount_that_goes_away_starts_anew() -> None:
    meter = BandwidthMeter()
    meter.read(1.0, {"": {0: 100}})
    assert meter.read(2.0, {}) is None
    assert meter.read(3.0, {"": {0: 500}}) is None
    found = meter.read(4.0, {"": {0: 510}})
    assert found is not None
    assert found.node == 10


counts = st.one_of(st.none(), st.integers(0, 1 << 64))
readings = st.dictionaries(
    st.sampled_from(["", "site", "soda-1", "soda-2", SODA, "mon_groups/x"]),
    st.dictionaries(st.integers(0, 2), counts, min_size=1),
)


@given(before=readings, after=readings)
def test_no_rate_is_ever_negative_or_more_than_the_node(before: Reading, after: Reading) -> None:
    meter = BandwidthMeter()
    meter.read(0.0, before)
    found = meter.read(1.0, after)
    if found is None:
        return
    assert found.node >= 0
    assert all(0 <= rate <= found.node * 1.001 for rate in (*found.jobs.values(), *found.domains.values()))
