"""What must hold of every plan of every policy, on random small clusters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.engine.allocations import list_allocations
from slurm_soda.policies.engine.demand import Demand, group_snapshot_requests
from slurm_soda.policies.engine.placement import FreeNodes, NodeAllocation, NodeGroups
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.registry.catalog import make_policy, policy_names
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState
from slurm_soda.policies.tiresias.consolidation import place_by_skew
from tests.policies.cases import preempted
from tests.policies.worlds import carried_out, on_some_worlds, worlds

MIN_RUN_S = 100.0
PARAMETERS: dict[str, dict[str, object]] = {
    "tiresias-las": {"thresholds_gpu_s": [100, 3000], "promote_knob": 4, "min_run_s": MIN_RUN_S},
    "tiresias-gittins": {
        "thresholds_gpu_s": [100, 3000],
        "min_run_s": MIN_RUN_S,
        "samples_gpu_s": [90, 400, 5000, 9e4],
    },
    "srsf": {"min_run_s": MIN_RUN_S},
    "srtf": {"min_run_s": MIN_RUN_S},
    "gandiva": {"quantum_s": 100.0},
}
RIPE_S = dict.fromkeys(PARAMETERS, MIN_RUN_S) | {"gandiva": 1e-3}
"""How long a job must have run before it may give way; every world is at the beginning of one of Gandiva's slices."""
ALL = [make_policy(name, PARAMETERS.get(name)) for name in policy_names()]
ALL.append(make_policy("tiresias-las", {**PARAMETERS["tiresias-las"], "packlimit": 0.4}))
HOLDING_BACK = ("fifo", "backfill", "multifactor", "drf", "kelp-fifo", "kelp-drf", "coda")
"""Policies that let a job wait although it fits, for the sake of jobs before it."""
SKIPPING = [policy for policy in ALL if policy.name not in HOLDING_BACK]
PREEMPTIVE = [policy for policy in ALL if policy.name in PARAMETERS]
EAGER = [
    make_policy(name, {**PARAMETERS[name], "min_run_s": 0})  # nothing but the order itself prevents thrashing
    for name in ("tiresias-las", "tiresias-gittins", "srsf", "srtf")
] + [make_policy("gandiva", PARAMETERS["gandiva"])]


def demand_by(policy: Policy, snapshot: ClusterSnapshot) -> Demand:
    """What jobs ask for, and how the policy lets them be placed."""
    demand, packlimit = group_snapshot_requests(snapshot), getattr(policy, "packlimit", np.inf)
    return demand if packlimit == np.inf else place_by_skew(demand, snapshot.jobs, snapshot.nodes, packlimit)


each = pytest.mark.parametrize
by_name = {"ids": lambda policy: policy.name}


def free_now(snapshot: ClusterSnapshot) -> FreeNodes:
    nodes = snapshot.nodes
    return FreeNodes(NodeGroups(nodes), nodes.gpus_free, nodes.cpus_free, nodes.memory_free_mib)


def vacated(snapshot: ClusterSnapshot, plan: Plan) -> list[list[NodeAllocation]]:
    jobs = snapshot.jobs
    leaving = {row for row in range(len(jobs)) if jobs.state[row] == JobState.COMPLETING}
    leaving |= {jobs.row(item.job_id) for item in plan.preempts}
    return [list_allocations(jobs, row) for row in sorted(leaving)]


def assert_not_overdrawn(pool: FreeNodes) -> None:
    assert pool.gpus.min() >= 0
    assert pool.cpus.min() >= 0
    assert pool.memory_mib.min() >= 0


@pytest.mark.sample(4)
@each("policy", ALL, **by_name)
@on_some_worlds
@given(snapshot=worlds())
def test_nothing_is_given_twice(policy: Policy, snapshot: ClusterSnapshot) -> None:
    plan = policy.decide(snapshot)
    now = free_now(snapshot)
    for job_id in plan.starts.tolist():
        now.take(list(plan.places[job_id]))
    assert_not_overdrawn(now)
    soon = free_now(snapshot)
    for pieces in vacated(snapshot, plan):
        soon.give(pieces)
    for places in plan.places.values():
        soon.take(list(places))
    assert_not_overdrawn(soon)


@pytest.mark.sample(4)
@each("policy", ALL, **by_name)
@on_some_worlds
@given(snapshot=worlds())
def test_gangs_are_whole_and_where_they_may_be(policy: Policy, snapshot: ClusterSnapshot) -> None:
    plan = policy.decide(snapshot)
    jobs, nodes = snapshot.jobs, snapshot.nodes
    for job_id, places in plan.places.items():
        row = jobs.row(job_id)
        job = jobs.view(row)
        at = [piece.node for piece in places]
        assert len(set(at)) == len(at) >= min(job.nodes, max(job.gpus, 1))
        assert sum(piece.gpus for piece in places) == job.gpus
        assert sum(piece.cpus for piece in places) >= job.cpus
        assert sum(piece.memory_mib for piece in places) >= job.memory_mib
        if job.gpus_per_node:
            assert {piece.gpus for piece in places} == {job.gpus_per_node}
        assert nodes.usable[at].all()
        assert nodes.in_partition[at, snapshot.partitions.index(job.partition)].all()
        if jobs.gpu_type[row] >= 0:
            wanted = jobs.gpu_types[int(jobs.gpu_type[row])]
            assert {nodes.gpu_types[kind] if kind >= 0 else "" for kind in nodes.gpu_type[at].tolist()} == {wanted}


@pytest.mark.sample(4)
@each("policy", ALL, **by_name)
@on_some_worlds
@given(snapshot=worlds())
def test_order_lists_the_pending_jobs_with_the_starts_in_front(policy: Policy, snapshot: ClusterSnapshot) -> None:
    plan = policy.decide(snapshot)
    jobs = snapshot.jobs
    pending = jobs.job_id[jobs.state == JobState.PENDING]
    assert sorted(plan.order.tolist()) == pending.tolist()
    assert plan.order[: len(plan.starts)].tolist() == plan.starts.tolist()
    verdict = {job_id: plan.notes.of(job_id).verdict for job_id in jobs.job_id.tolist()}
    assert [verdict[job_id] == JobVerdict.START for job_id in plan.order.tolist()] == sorted(
        (verdict[job_id] == JobVerdict.START for job_id in plan.order.tolist()), reverse=True
    )
    position = [plan.notes.of(job_id).position for job_id in plan.starts.tolist()]
    assert position == sorted(position)
    for row, state in enumerate(jobs.state.tolist()):
        if state == JobState.BLOCKED:
            assert verdict[int(jobs.job_id[row])] == JobVerdict.BLOCKED


@pytest.mark.sample(4)
@each("policy", ALL, **by_name)
@on_some_worlds
@given(snapshot=worlds(), random=st.randoms(use_true_random=False))
def test_the_same_snapshot_gives_the_same_plan(policy: Policy, snapshot: ClusterSnapshot, random: object) -> None:
    first, second = policy.decide(snapshot), policy.decide(replace(snapshot))
    assert first.order.tolist() == second.order.tolist()
    assert first.preempts == second.preempts
    assert first.places == second.places
    assert first.next_event_s == second.next_event_s
    for column in ("job_id", "verdict", "queue", "score", "position"):
        np.testing.assert_array_equal(getattr(first.notes, column), getattr(second.notes, column))


@pytest.mark.sample(3)
@each("policy", SKIPPING, **by_name)
@on_some_worlds
@given(snapshot=worlds())
def test_no_job_that_fits_beside_the_plan_is_left_waiting(policy: Policy, snapshot: ClusterSnapshot) -> None:
    plan = policy.decide(snapshot)
    pool = free_now(snapshot)
    for places in plan.places.values():
        pool.take(list(places))  # what is to be vacated stays out: only what is free beside all claims counts
    pool = FreeNodes(pool.classes, pool.gpus, pool.cpus, pool.memory_mib)
    demand = demand_by(policy, snapshot)
    for job_id in plan.order.tolist():
        if plan.notes.of(job_id).verdict == JobVerdict.WAIT:
            assert pool.find(demand.shapes[int(demand.code[snapshot.jobs.row(job_id)])]) is None


@pytest.mark.sample(3)
@each("policy", PREEMPTIVE, **by_name)
@on_some_worlds
@given(snapshot=worlds())
def test_only_ripe_preemptible_jobs_give_way_and_only_to_better_ranked_ones(
    policy: Policy, snapshot: ClusterSnapshot
) -> None:
    plan = policy.decide(snapshot)
    jobs = snapshot.jobs
    for item in plan.preempts:
        job = jobs.view(jobs.row(item.job_id))
        assert job.state == JobState.RUNNING
        assert job.preemptible
        assert job.gpus > 0
        assert snapshot.now_s - job.start_s >= RIPE_S[policy.name]
        assert item.for_jobs
        for job_id in item.for_jobs:
            note = plan.notes.of(job_id)
            assert note.verdict in (JobVerdict.WAIT_FOR_PREEMPTION, JobVerdict.PREEMPT)


@pytest.mark.sample(3)
@each("policy", PREEMPTIVE, **by_name)
@on_some_worlds
@given(snapshot=worlds())
def test_every_victim_is_needed(policy: Policy, snapshot: ClusterSnapshot) -> None:
    """Were one victim to stay, those that take its place would find no other room beside the plan."""
    plan = policy.decide(snapshot)
    jobs, demand = snapshot.jobs, demand_by(policy, snapshot)
    for victim, for_jobs in preempted(plan).items():
        soon = free_now(snapshot)
        for pieces in vacated(snapshot, plan):
            soon.give(pieces)
        for job_id, places in plan.places.items():
            if job_id not in (*for_jobs, victim):
                soon.take(list(places))
        soon.take(list_allocations(jobs, jobs.row(victim)))
        homeless = min(soon.gpus.min(), soon.cpus.min(), soon.memory_mib.min()) < 0
        for job_id in for_jobs:
            pieces = None if homeless else soon.find(demand.shapes[int(demand.code[jobs.row(job_id)])])
            homeless = homeless or pieces is None
            if pieces:
                soon.take(pieces)
        assert homeless


@pytest.mark.sample(3)
@each("policy", PREEMPTIVE, **by_name)
@on_some_worlds
@given(snapshot=worlds())
def test_no_waiting_job_could_still_be_served_by_preempting_worse_ranked_jobs(
    policy: Policy, snapshot: ClusterSnapshot
) -> None:
    plan = policy.decide(snapshot)
    jobs, demand = snapshot.jobs, demand_by(policy, snapshot)
    for job_id in plan.order.tolist():
        note = plan.notes.of(job_id)
        row = jobs.row(job_id)
        if note.verdict != JobVerdict.WAIT or not jobs.gpus[row]:
            continue
        wide = free_now(snapshot)
        for pieces in vacated(snapshot, plan):
            wide.give(pieces)
        for other in range(len(jobs)):
            lesser = plan.notes.of(int(jobs.job_id[other]))
            ripe = jobs.preemptible[other] and snapshot.now_s - jobs.start_s[other] >= RIPE_S[policy.name]
            if lesser.verdict == JobVerdict.RUN and lesser.position > note.position and ripe and jobs.gpus[other]:
                wide.give(list_allocations(jobs, other))
        for places in plan.places.values():
            wide.take(list(places))
        assert wide.find(demand.shapes[int(demand.code[row])]) is None


@pytest.mark.sample(3)
@each("policy", EAGER, **by_name)
@on_some_worlds
@given(snapshot=worlds())
def test_carrying_a_plan_out_settles_without_ping_pong(policy: Policy, snapshot: ClusterSnapshot) -> None:
    """Within one instant no job is preempted twice, none is started and preempted, and the plan comes to rest."""
    started: set[int] = set()
    gave_way: set[int] = set()
    for _ in range(2 * len(snapshot.jobs) + 2):
        plan = policy.decide(snapshot)
        victims = set(preempted(plan))
        assert not victims & started, "started and preempted in one instant"
        assert not victims & gave_way, "preempted twice in one instant"
        if not victims and not len(plan.starts):
            return
        started |= set(plan.starts.tolist())
        gave_way |= victims
        snapshot = carried_out(snapshot, plan, leaving=False)
    pytest.fail("the plan never comes to rest")


@pytest.mark.sample(3)
@each("policy", EAGER, **by_name)
@on_some_worlds
@given(snapshot=worlds())
def test_it_also_settles_when_preempted_jobs_take_time_to_leave(policy: Policy, snapshot: ClusterSnapshot) -> None:
    """A job that is leaving has no place in line, so others may start meanwhile and give way once it is back.

    Only the minimum run time, 0 in this test, protects them; but all comes to rest.
    """
    for _ in range(4 * len(snapshot.jobs) + 4):
        plan = policy.decide(snapshot)
        leaving = bool(np.any(snapshot.jobs.preemptible & (snapshot.jobs.state == JobState.COMPLETING)))
        if not plan.preempts and not len(plan.starts) and not leaving:
            return
        snapshot = carried_out(snapshot, plan, leaving=True)
    pytest.fail("the plan never comes to rest")
