"""For how long jobs waited and for what, as the cache of jobs and the store keep it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.jobs.wait_times import MAX_REASONS, OTHER, WaitTimes
from slurm_soda.daemon.store.queries import find_job
from slurm_soda.slurm_ext.client import SlurmJob
from tests.daemon.records import record


def look(store: Store, *looks: tuple[float, SlurmJob], restarts_after: Sequence[int] = ()) -> dict[str, float]:
    """Seconds by reason in the store after so many looks; sodad starts anew after some of them."""
    cache = JobCache(store)
    for place, (now_s, job) in enumerate(looks):
        cache.observe([job], now_s)
        with store.write() as session:
            cache.save(session, now_s)
        cache.saved()
        if place in restarts_after:
            cache = JobCache(store)
    with store.read() as session:
        found = find_job(session, 1)
        assert found is not None
        return WaitTimes.from_json(found.waits).until(looks[-1][0])


LOOKS = [
    (1003.0, record(reason="Resources")),
    (1004.0, record(reason="Resources")),
    (1020.0, record(reason="Priority")),
    (1050.0, record(reason="Resources")),
    (1062.0, record(state="RUNNING", reason="None", start_s=1060.0)),
    (1500.0, record(state="RUNNING", reason="None", start_s=1060.0)),
]


@pytest.mark.parametrize("restarts_after", [(), (0,), (2, 3), (4,), (0, 1, 2, 3, 4)])
def test_each_reason_counts_from_its_first_look_and_the_first_from_the_submission(
    store: Store, restarts_after: Sequence[int]
) -> None:
    assert look(store, *LOOKS, restarts_after=restarts_after) == {"Resources": 30.0, "Priority": 30.0}


def test_a_job_that_waits_still_counts_until_now(store: Store) -> None:
    assert look(store, *LOOKS[:1], (1033.0, record(reason="Resources"))) == {"Resources": 33.0}


def test_a_requeued_job_waits_from_the_end_of_its_run(store: Store) -> None:
    again = {"restarts": 1, "submit_s": 2000.0}
    found = look(
        store,
        *LOOKS,
        (2003.0, record(reason="BeginTime", **again)),
        (2010.0, record(reason="Resources", **again)),
        (2031.0, record(state="RUNNING", reason="None", start_s=2030.0, **again)),
    )
    assert found == {"Resources": 50.0, "Priority": 30.0, "BeginTime": 10.0}


def test_a_job_that_never_ran_waited_until_its_end(store: Store) -> None:
    ended = record(state="CANCELLED", reason="None", end_s=1100.0)
    assert look(store, LOOKS[0], (1102.0, ended)) == {"Resources": 100.0}


def test_memory_that_slurm_no_longer_tells_of_an_ended_job_stays(store: Store) -> None:
    ended = record(state="COMPLETED", start_s=1060.0, end_s=1600.0, node_names="n1")
    look(store, (1003.0, record(memory_mib=4096)), (1601.0, ended))
    with store.read() as session:
        found = find_job(session, 1)
        assert found is not None
        assert found.memory_mib == 4096


def test_lists_of_nodes_are_no_reason_and_odd_bytes_are_spelled_out() -> None:
    waits = WaitTimes()
    waits.wait("ReqNodeNotAvail, UnavailableNodes:n[1-900]", 0.0, 1.0)
    waits.wait("odd \udcff\x1b", 0.0, 5.0)
    assert waits.until(7.0) == {"ReqNodeNotAvail": 5.0, "odd \\udcff\x1b": 2.0}
    json.dumps(waits.to_json()).encode("ascii")


@given(st.lists(st.tuples(st.floats(0.0, 1000.0), st.integers(0, 30)), max_size=60))
def test_all_reasons_together_are_the_time_waited_and_few(steps: list[tuple[float, int]]) -> None:
    waits, now_s = WaitTimes(), 100.0
    for step_s, reason in steps:
        waits.wait(f"reason {reason}", 100.0, now_s)
        now_s += step_s
    found = waits.until(now_s)
    assert abs(sum(found.values()) - (now_s - 100.0)) <= 0.1 * len(steps)
    assert len(found) <= MAX_REASONS + 1
    assert OTHER not in found or len(found) > MAX_REASONS
    assert WaitTimes.from_json(json.loads(json.dumps(waits.to_json()))) == waits
    assert all(one[1] >= 0 for pair in pairwise(found.items()) for one in pair)
