"""What must hold of every plan of coda, on random crowded clusters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from slurm_soda.policies.engine.allocations import list_allocations
from slurm_soda.policies.engine.demand import group_snapshot_requests
from slurm_soda.policies.engine.placement import FreeNodes, NodeGroups
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.pools.kinds import LARGE_FROM_GPUS
from slurm_soda.policies.pools.policy import Coda
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState
from tests.policies.cases import cluster
from tests.policies.pools.worlds import CORES, borrowing, crowds, division_of, may_be_aborted, policies
from tests.policies.worlds import carried_out, on_some_worlds


def free_at_last(snapshot: ClusterSnapshot, plan: Plan) -> FreeNodes:
    """What is free once everybody who leaves has left and everybody who has places is there."""
    nodes, jobs = snapshot.nodes, snapshot.jobs
    pool = FreeNodes(NodeGroups(nodes), nodes.gpus_free, nodes.cpus_free, nodes.memory_free_mib)
    leaving = np.flatnonzero((jobs.state == JobState.COMPLETING) | (plan.notes.verdict == JobVerdict.PREEMPT))
    for row in leaving.tolist():
        pool.give(list_allocations(jobs, row))
    for places in plan.places.values():
        pool.take(list(places))
    return pool


@on_some_worlds
@given(snapshot=crowds(), policy=policies())
def test_nothing_is_given_twice(snapshot: ClusterSnapshot, policy: Coda) -> None:
    pool = free_at_last(snapshot, policy.decide(snapshot))
    assert min(column.min() for column in (pool.gpus, pool.cpus, pool.memory_mib)) >= 0


@on_some_worlds
@given(snapshot=crowds(), policy=policies())
def test_only_borrowers_are_aborted_and_only_for_their_owners(snapshot: ClusterSnapshot, policy: Coda) -> None:
    plan, jobs = policy.decide(snapshot), snapshot.jobs
    cpu = {row for rows in borrowing(policy, snapshot, guests=False).values() for row in rows}
    guests = {row for rows in borrowing(policy, snapshot, guests=True).values() for row in rows}
    for item in plan.preempts:
        row = jobs.row(item.job_id)
        assert jobs.preemptible[row]
        assert jobs.preemptions[row] < policy.max_aborts
        (owner,) = (jobs.row(job_id) for job_id in item.for_jobs)
        assert plan.notes.verdict[owner] == JobVerdict.WAIT_FOR_PREEMPTION
        if jobs.gpus[row]:
            assert row in guests
            assert jobs.gpus[owner] >= LARGE_FROM_GPUS
        else:
            assert row in cpu
            assert jobs.gpus[owner] > 0


@on_some_worlds
@given(snapshot=crowds(), policy=policies())
def test_beyond_the_share_of_a_node_are_only_cpu_jobs_that_can_be_aborted(
    snapshot: ClusterSnapshot, policy: Coda
) -> None:
    """Firm jobs together hold no more than the share, unless they did before, or one could not run otherwise."""
    jobs, division, after = snapshot.jobs, division_of(policy, snapshot), policy.decide(snapshot)
    before_cores, cores = (np.zeros(len(snapshot.nodes), dtype=np.int64) for _ in range(2))
    for row in range(len(jobs)):
        if jobs.gpus[row] or may_be_aborted(policy, snapshot, row):
            continue
        if jobs.state[row] == JobState.RUNNING:
            for piece in list_allocations(jobs, row):
                before_cores[piece.node] += piece.cpus
        for piece in after.places.get(int(jobs.job_id[row]), ()):
            wide = int(jobs.nodes[row]) > 1 or piece.cpus > int(division.cpu_cores.max())
            cores[piece.node] += 0 if wide else piece.cpus
    assert np.all((cores == 0) | (before_cores + cores <= division.cpu_cores))


@on_some_worlds
@given(snapshot=crowds(), policy=policies())
def test_no_gpu_job_waits_for_cores_or_gpus_that_could_be_given_back(snapshot: ClusterSnapshot, policy: Coda) -> None:
    plan, jobs, division = policy.decide(snapshot), snapshot.jobs, division_of(policy, snapshot)
    then, demand = carried_out(snapshot, plan, leaving=True), group_snapshot_requests(snapshot)
    for row in np.flatnonzero((plan.notes.verdict == JobVerdict.WAIT) & (jobs.gpus > 0)).tolist():
        large = jobs.gpus[row] >= LARGE_FROM_GPUS
        wide = free_at_last(snapshot, plan)
        for guests in (False, True) if large else (False,):
            for node, rows in borrowing(policy, then, guests=guests).items():
                for borrower in rows:
                    wide.give([piece for piece in list_allocations(then.jobs, borrower) if piece.node == node])
        if not large and not may_be_aborted(policy, snapshot, row):
            for node in np.flatnonzero(division.lent).tolist():
                wide.put(node, 0, 0, 0)
        assert wide.find(demand.shapes[int(demand.code[row])]) is None


@on_some_worlds
@given(snapshot=crowds(), policy=policies())
def test_every_job_starts_on_an_empty_cluster(snapshot: ClusterSnapshot, policy: Coda) -> None:
    jobs, table = snapshot.jobs, snapshot.nodes
    for row in range(len(jobs)):
        view = jobs.view(row)
        asked = {"job_id": 1, "gpus": view.gpus, "nodes": view.nodes, "gpus_per_node": view.gpus_per_node,
                 "cpus": view.cpus, "preemptible": view.preemptible, "preemptions": view.preemptions}  # fmt: skip
        plan = policy.decide(cluster([asked], table))
        assert plan.notes.of(1).verdict in (JobVerdict.START, JobVerdict.TOO_LARGE)
        if view.nodes == 1 and not view.gpus:
            assert (plan.notes.of(1).verdict == JobVerdict.START) == (view.cpus <= CORES * len(table))


@on_some_worlds
@given(snapshot=crowds(), policy=policies())
def test_carrying_a_plan_out_comes_to_rest_within_the_limit_of_aborts(snapshot: ClusterSnapshot, policy: Coda) -> None:
    limit = np.maximum(snapshot.jobs.preemptions, policy.max_aborts)
    for _ in range(3 * len(snapshot.jobs) + 3):
        plan = policy.decide(snapshot)
        if not plan.preempts and not len(plan.starts):
            return
        snapshot = carried_out(snapshot, plan, leaving=False)
        assert np.all(snapshot.jobs.preemptions <= limit)
    pytest.fail("the plan never comes to rest")
