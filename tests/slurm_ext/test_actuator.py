from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slurm_soda
from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.pipeline.actions import OrderJobs, PreemptJob, RouteJob
from slurm_soda.policies.plan import JobNotes, JobVerdict, Plan
from slurm_soda.policies.snapshot import ClusterSnapshot, NodeTable
from slurm_soda.slurm_ext.client import JobUpdate, JobUpdateResult
from slurm_soda.slurm_ext.errors import SlurmCommandError
from slurm_soda.slurm_ext.write import job_changes, sending
from slurm_soda.slurm_ext.write.job_changes import (
    JobChange,
    order_changes,
    release_changes,
    request_changes,
    requeue_change,
    signal_change,
    start_now_change,
)
from slurm_soda.slurm_ext.write.lifts import PRIORITY_CEILING
from slurm_soda.slurm_ext.write.sending import apply_changes
from tests.slurm_ext.records import job


def plan(order: Sequence[int], starts: Sequence[int] = ()) -> Plan:
    none = np.zeros(0, dtype=np.int64)
    notes = JobNotes(none, none.astype(np.int8), none, none.astype(np.float64), none)
    ids = np.array(order, dtype=np.int64)
    return Plan("fifo", ids, np.array(starts, dtype=np.int64), notes, (OrderJobs("fifo", job_ids=ids),))


def snapshot(*rows: dict[str, int]) -> ClusterSnapshot:
    return ClusterSnapshot(0.0, build_job_table(list(rows)), NodeTable.uniform(1, 4))


def test_changes_carry_the_old_value_the_reason_and_come_most_urgent_first() -> None:
    world = snapshot(
        {"job_id": 1, "priority": 12}, {"job_id": 2, "priority": 5}, {"job_id": 3, "priority": 6, "site_factor": 2}
    )
    changes = order_changes(plan([3, 2, 1], starts=[3]), world)
    assert [change.job_id for change in changes] == [3, 2]
    assert changes[0].old == {"SiteFactor": "2"}
    assert changes[0].reason == "fifo: starts now, position 1 of 3"
    assert changes[1].reason == "fifo: waits, position 2 of 3"
    assert int(changes[0].new["SiteFactor"]) + 4 > int(changes[1].new["SiteFactor"]) + 5 > 12


@pytest.mark.parametrize(("depth", "written"), [(1, 1), (2, 2), (1000, 4)])
def test_depth_bounds_how_many_jobs_are_lifted(depth: int, written: int) -> None:
    world = snapshot(*({"job_id": i, "priority": i} for i in range(1, 6)))
    assert len(order_changes(plan([1, 2, 3, 4, 5]), world, depth=depth)) == written


def test_a_withdrawn_lift_says_so() -> None:
    world = snapshot({"job_id": 1, "priority": 9}, {"job_id": 2, "priority": 900, "site_factor": 899})
    (change,) = order_changes(plan([1, 2]), world)
    assert (change.job_id, change.new, change.old) == (2, {"SiteFactor": "0"}, {"SiteFactor": "899"})
    assert "an earlier lift is withdrawn" in change.reason


def test_who_starts_goes_first_then_who_gets_vacated_places_then_the_rest() -> None:
    world = snapshot(*({"job_id": i, "priority": 10 * i, "gpus": 4 - i} for i in (1, 2, 3)))
    verdicts = (JobVerdict.WAIT, JobVerdict.WAIT_FOR_PREEMPTION, JobVerdict.START)
    whole = plan([1, 2, 3], starts=[3])
    notes = replace(whole.notes, job_id=world.jobs.job_id, verdict=np.array(verdicts, dtype=np.int8))
    assert order_changes(replace(whole, notes=notes), world) == []
    swapped = replace(notes, verdict=notes.verdict[::-1].copy())
    changes = order_changes(replace(plan([3, 2, 1], starts=[1]), notes=swapped), world)
    assert [change.job_id for change in changes] == [1, 2]
    assert int(changes[0].new["SiteFactor"]) + 10 > int(changes[1].new["SiteFactor"]) + 20 > 30


@pytest.mark.parametrize("verdict", [JobVerdict.START, JobVerdict.WAIT_FOR_PREEMPTION])
def test_only_who_gets_the_places_of_preempted_jobs_skips_a_waiting_job(verdict: JobVerdict) -> None:
    """A job that waits for another one's end does not, although its places are on their way to be free."""
    world = snapshot(*({"job_id": i, "priority": 40 - 10 * i, "gpus": 4 - i} for i in (1, 2, 3)))
    whole = plan([1, 2, 3], starts=[2] if verdict is JobVerdict.START else [])
    verdicts = np.array((JobVerdict.WAIT, verdict, JobVerdict.RUN), dtype=np.int8)
    whole = replace(
        whole, notes=replace(whole.notes, job_id=ids_of(1, 2, 3), verdict=verdicts, position=ids_of(0, 1, 2))
    )

    def lifted(wanted: Plan, **settings: Any) -> list[int]:
        return [change.job_id for change in order_changes(wanted, world, **settings)]

    preempts = PreemptJob(4, (2,), "its place goes to job 2")
    assert lifted(whole) == [2]
    assert lifted(whole, skipping_limit_s=1.0) == [2], "job 1 has not waited so long"
    assert lifted(whole, skipping_limit_s=0.0) == []
    assert lifted(whole, skipping_limit_s=0.0, successors={2}) == [2]
    assert lifted(replace(whole, actions=(*whole.actions, preempts)), skipping_limit_s=0.0) == [2]


def ids_of(*job_ids: int) -> Any:
    return np.array(job_ids, dtype=np.int64)


def test_release_takes_back_everything_of_ours_and_nothing_else() -> None:
    jobs = [
        job(1),
        job(2),
        job(3, reason="BeginTime", restarts=1, eligible_s=1100.0, submit_s=979.0),
        job(4, reason="BeginTime", eligible_s=1100.0),
        job(5, reason="BeginTime", restarts=1, eligible_s=9000.0),
        job(6, state="RUNNING"),
        job(7, reason="JobHeldUser", priority=0),
        job(8, reason="BeginTime", restarts=1, eligible_s=1120.0, submit_s=999.0),
        job(9, state="COMPLETED", reason="None"),
        job(10, state="FAILED", reason="NonZeroExitCode"),
        job(11, state="CANCELLED", reason="BeginTime", restarts=1, eligible_s=1100.0),
        job(12, reason="BeginTime", restarts=1, eligible_s=1100.0, submit_s=919.0),  # its owner's begin time
    ]
    changes = release_changes(jobs, {1: 700, 2: 0})
    assert [(c.job_id, dict(c.new), dict(c.old)) for c in changes] == [
        (1, {"SiteFactor": "0"}, {"SiteFactor": "700"}),
        (3, {"SiteFactor": "0"}, {}),
        (4, {"SiteFactor": "0"}, {}),
        (5, {"SiteFactor": "0"}, {}),
        (7, {"SiteFactor": "0"}, {}),
        (8, {"SiteFactor": "0"}, {}),
        (12, {"SiteFactor": "0"}, {}),
    ]


@dataclass
class Recorder:
    """The writing half of a client: notes what it is asked, refuses job 13."""

    calls: list[object] = field(default_factory=list)

    def update(self, updates: Sequence[JobUpdate]) -> list[JobUpdateResult]:
        self.calls.append([u.job_id for u in updates])
        return [JobUpdateResult(u.job_id, "no such job" if u.job_id == 13 else "") for u in updates]

    def signal(self, job_id: int, signal: str) -> None:
        self.calls.append((signal, job_id))

    def requeue(self, job_id: int, *, ended: bool = False) -> None:
        self.calls.append(("requeue", job_id))
        if job_id == 13:
            raise SlurmCommandError(("scontrol", "requeue"), 1, "no such job", "look")


def order(job_id: int) -> JobChange:
    return JobChange(job_id, "order", {"SiteFactor": "1"}, {"SiteFactor": "0"}, "test")


def test_changes_are_sent_in_order_and_neighbours_share_a_process() -> None:
    client = Recorder()
    changes = [
        order(1),
        order(13),
        signal_change(2, "USR1", "why"),
        requeue_change(2, "why"),
        start_now_change(3, "why"),
        order(4),
    ]
    results = apply_changes(client, changes)  # type: ignore[arg-type]  # only the writing half is needed
    assert client.calls == [[1, 13], ("USR1", 2), ("requeue", 2), [3, 4]]
    assert [r.change for r in results] == changes
    assert [r.error for r in results] == ["", "no such job", "", "", "", ""]


def test_a_refusal_is_a_result_and_the_rest_is_sent() -> None:
    client = Recorder()
    results = apply_changes(client, [requeue_change(13, "why"), order(1)])  # type: ignore[arg-type]  # only the writing half is needed
    assert "no such job" in results[0].error
    assert results[1].error == ""


@pytest.mark.parametrize("changes", [[], [order(1)]])
def test_no_change_is_no_call(changes: list[JobChange]) -> None:
    client = Recorder()
    apply_changes(client, changes)  # type: ignore[arg-type]  # only the writing half is needed
    assert len(client.calls) == len(changes)


def test_of_several_requeued_jobs_the_first_in_the_plan_goes_first() -> None:
    world = snapshot(
        {"job_id": 1, "priority": 5, "site_factor": 2}, {"job_id": 2, "priority": 4}, {"job_id": 3, "priority": 70}
    )
    ids = world.jobs.job_id
    routes = [RouteJob(i, "back", "a,b", "b,a", first_in="main/cpu", ends_wait=True) for i in (1, 2)]
    whole = replace(plan([1, 2, 3]), actions=(*routes, OrderJobs("fifo", "main/cpu", ids)))
    first, second = request_changes(whole, world)
    assert int(first.new["SiteFactor"]) > int(second.new["SiteFactor"]) > 70
    assert first.new | {"SiteFactor": ""} == {"Partition": "a,b", "SiteFactor": "", "StartTime": "now"}
    assert (first.old, second.old) == (
        {"Partition": "b,a", "SiteFactor": "2"},
        {"Partition": "b,a", "SiteFactor": "0"},
    )
    keys = [change.key for change in (first, second, *order_changes(whole, world))]
    assert len(set(keys)) == len(keys)


def test_a_job_that_goes_first_in_its_pool_stays_below_the_ceiling() -> None:
    world = snapshot({"job_id": 1, "priority": 1}, {"job_id": 2, "priority": PRIORITY_CEILING})
    actions = (
        RouteJob(1, "back", first_in="main/cpu", ends_wait=True),
        OrderJobs("fifo", "main/cpu", world.jobs.job_id),
    )
    (change,) = request_changes(replace(plan([1, 2]), actions=actions), world)
    assert int(change.new["SiteFactor"]) < PRIORITY_CEILING


def test_a_pools_next_job_that_has_waited_long_passes_smaller_ones_too() -> None:
    world = snapshot(*({"job_id": i, "priority": i, "gpus": 5 - i} for i in range(1, 5)))
    pool = OrderJobs("fifo", "main/large", world.jobs.job_id, reserving=2)
    changes = order_changes(replace(plan([1, 2, 3, 4]), actions=(pool,)), world)
    factors = {change.job_id: int(change.new["SiteFactor"]) for change in changes}
    assert list(factors) == [1, 2]
    assert factors[1] + 1 > factors[2] + 2 > 4


def test_changes_are_made_in_one_place_and_sent_by_another() -> None:
    folders = [folder.resolve() for folder in Path(slurm_soda.__file__).parent.iterdir()]
    made = {
        (node.func.id, path)
        for folder in folders
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("JobChange", "JobUpdate")
    }
    assert made == {
        ("JobChange", Path(job_changes.__file__).resolve()),
        ("JobUpdate", Path(sending.__file__).resolve()),
    }
