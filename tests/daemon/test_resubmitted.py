"""Cancel and resubmit: what the daemon remembers of it, over a real store."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.read.snapshot import build_snapshot
from tests.daemon.records import record

GPUS = 2
RAN_S = 36_000.0
END_S = 1000.0 + RAN_S


def observe(cache: JobCache, store: Store, now_s: float, *records: SlurmJob) -> None:
    cache.observe(records, now_s)
    with store.write() as session:
        cache.save(session, now_s)
    cache.saved()


def ran(cache: JobCache, store: Store, job_id: int = 1, **more: Any) -> None:
    observe(cache, store, 1500.0, record(job_id, "RUNNING", start_s=1000.0, **more))


def ended(job_id: int = 1, state: str = "CANCELLED", **more: Any) -> SlurmJob:
    values: dict[str, Any] = {"start_s": 1000.0, "end_s": END_S}
    return record(job_id, state, **(values | more))


def anew(job_id: int, **more: Any) -> SlurmJob:
    values: dict[str, Any] = {"submit_s": END_S + 5.0, "eligible_s": END_S + 5.0}
    return record(job_id, **(values | more))


def executed_s(cache: JobCache, job_id: int) -> float:
    past = cache.past().get(job_id)
    return 0.0 if past is None else past.executed_s


def test_a_resubmitted_job_goes_on_in_the_queue_that_the_cancelled_one_had_reached(store: Store) -> None:
    """Before, the resubmitted job was as new as the other one and went first by its submission."""
    cache = JobCache(store)
    ran(cache, store)
    jobs = [anew(2), anew(3, user="bob", submit_s=END_S + 6.0)]
    observe(cache, store, END_S + 10, ended(), *jobs)
    snapshot = build_snapshot(END_S + 10, jobs, [], {}, cache.past(), {})
    assert snapshot.jobs.attained_gpu_s.tolist() == [GPUS * RAN_S, 0.0]
    assert make_policy("tiresias-las", {}).decide(snapshot).order.tolist() == [3, 2]


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED"])
def test_only_cancelled_jobs_pass_service_on(store: Store, state: str) -> None:
    cache = JobCache(store)
    ran(cache, store)
    observe(cache, store, END_S + 10, ended(state=state), anew(2))
    assert executed_s(cache, 2) == 0.0


def test_one_successor_inherits_and_a_later_daemon_knows_it(store: Store) -> None:
    cache = JobCache(store)
    ran(cache, store)
    observe(cache, store, END_S + 10, ended(), *(anew(job_id) for job_id in range(2, 12)))
    assert [executed_s(cache, job_id) for job_id in range(2, 12)] == [RAN_S, *[0.0] * 9]
    later = JobCache(store)
    observe(later, store, END_S + 20, *(anew(job_id) for job_id in range(2, 13)))
    assert [executed_s(later, job_id) for job_id in range(2, 13)] == [RAN_S, *[0.0] * 10]


def test_service_passes_from_one_cancelled_job_to_the_next(store: Store) -> None:
    cache = JobCache(store)
    ran(cache, store)
    observe(cache, store, END_S + 10, ended(), anew(2))
    gone = anew(2, state="CANCELLED", end_s=END_S + 20, start_s=float("nan"), node_names="")
    observe(cache, store, END_S + 30, gone)
    observe(cache, store, END_S + 40, anew(3, submit_s=END_S + 35))
    assert executed_s(cache, 3) == RAN_S


def test_a_job_that_slurm_no_longer_lists_still_has_a_successor(store: Store) -> None:
    cache = JobCache(store)
    ran(cache, store)
    observe(cache, store, END_S + 10, ended())
    later = JobCache(store)
    later.forget(set(), END_S + 20, accounting=False)
    observe(later, store, END_S + 600, anew(2, submit_s=END_S + 590))
    assert executed_s(later, 2) == RAN_S


def test_a_waiting_array_inherits_nothing_and_the_first_task_that_runs_does(store: Store) -> None:
    cache = JobCache(store)
    ran(cache, store)
    rest = anew(5, array_job_id=5, array_task="0-9")
    observe(cache, store, END_S + 10, ended(), rest)
    assert executed_s(cache, 5) == 0.0
    task = anew(6, state="RUNNING", array_job_id=5, array_task="0", start_s=END_S + 15, node_names="n1")
    observe(cache, store, END_S + 20, ended(), rest, task)
    assert (executed_s(cache, 5), executed_s(cache, 6)) == (0.0, RAN_S)


def test_a_promotion_forgives_what_was_inherited(store: Store) -> None:
    cache = JobCache(store)
    ran(cache, store)
    observe(cache, store, END_S + 10, ended(), anew(2))
    cache.promote([2], END_S + 20)
    assert executed_s(cache, 2) == 0.0
