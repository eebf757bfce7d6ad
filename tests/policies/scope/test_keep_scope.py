"""Nothing is done to jobs out of scope, and no job in scope gets before one of them by our order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.pipeline.actions import (
    Action,
    JoinGpus,
    OrderJobs,
    PreemptJob,
    ResizeRequest,
    RouteJob,
)
from slurm_soda.policies.pipeline.stages import Pipeline, pipeline_of
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.scope.keep_scope import KeepScope
from slurm_soda.policies.scope.scope import LeftOut, Scope
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, NodeTable
from slurm_soda.policies.snapshot_file.document import SnapshotDump, plan_bytes, read_dump, write_dump
from slurm_soda.slurm_ext.write.job_changes import order_changes, request_changes
from tests.policies.cases import cluster, running, waiting
from tests.policies.sharing.test_joins import draw_site
from tests.policies.worlds import on_some_worlds, worlds

MANY = {"min_run_s": 0.0}
POLICIES = [
    make_policy("soda"),
    make_policy("tiresias-las", {**MANY, "thresholds_gpu_s": [100, 3000]}),
    make_policy("srsf", MANY),
    make_policy("gandiva", {"quantum_s": 100.0}),
    make_policy("drf"),
    make_policy("fifo"),
]
WAITING = (JobState.PENDING, JobState.BLOCKED)


def without_scope(policy: Policy) -> Pipeline:
    """All stages but the last one."""
    return Pipeline(tuple(stage for stage in pipeline_of(policy).stages if not isinstance(stage, KeepScope)))


@st.composite
def scoped(draw: st.DrawFn) -> ClusterSnapshot:
    """A world with Slurm's priorities, lifts from an earlier cycle, SiteFactors of the site, and some jobs out of scope."""
    snapshot = draw(worlds())
    count = len(snapshot.jobs)

    def column(values: st.SearchStrategy[int]) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=count, max_size=count)), dtype=np.int64)

    natural, factor = column(st.integers(1, 20)), column(st.sampled_from([0, 0, 0, 5, 30, 1000]))
    jobs = snapshot.jobs.with_columns(
        priority=natural + factor, site_factor=factor, left_out=column(st.sampled_from([0, 0, 1, 2]))
    )
    return replace(snapshot, jobs=jobs)


def competing(snapshot: ClusterSnapshot, one: int, other: int) -> bool:
    """Whether two jobs, by row, may take a node in common."""
    of = snapshot.jobs.partition
    member = snapshot.nodes.in_partition
    return bool((member[:, of[one]] & member[:, of[other]]).any()) or of[one] == of[other]


def named_by(action: Action) -> Iterator[int]:
    """Jobs that something is done to."""
    if isinstance(action, PreemptJob):
        yield from (action.job_id, *action.for_jobs)
    elif isinstance(action, JoinGpus):
        yield from (action.job_id, *action.hosts)
    elif isinstance(action, RouteJob | ResizeRequest):
        yield action.job_id


def check_scope(snapshot: ClusterSnapshot, plan: Plan, skipping_limit_s: float = 0.0) -> None:
    jobs = snapshot.jobs
    outside = set(jobs.job_id[jobs.left_out > 0].tolist())
    assert not outside & {job_id for action in plan.actions for job_id in named_by(action)}
    orders = order_changes(plan, snapshot, skipping_limit_s=skipping_limit_s)
    changes = {one.job_id: int(one.new["SiteFactor"]) for one in orders}
    assert not outside & {*changes, *(change.job_id for change in request_changes(plan, snapshot))}

    natural = jobs.priority - jobs.site_factor
    lifted = [
        changes.get(job_id, factor) for job_id, factor in zip(jobs.job_id.tolist(), jobs.site_factor, strict=True)
    ]
    waits = [row for row in range(len(jobs)) if jobs.state[row] in WAITING]
    queued = {int(i) for one in plan.actions if isinstance(one, OrderJobs) for i in (*one.job_ids, *one.others)}
    queued |= {int(i) for one in plan.actions if isinstance(one, OrderJobs) for i in (*one.unranked, *one.guests)}
    for theirs in (row for row in waits if jobs.left_out[row]):
        key = (-int(jobs.priority[theirs]), theirs)
        for own in (row for row in waits if not jobs.left_out[row] and jobs.job_id.item(row) in queued):
            if competing(snapshot, own, theirs):
                before = (-int(natural[own]), own) < key
                assert ((-int(natural[own] + lifted[own]), own) < key) is before
    for action in plan.actions:
        if isinstance(action, PreemptJob | JoinGpus):
            for job_id in action.for_jobs if isinstance(action, PreemptJob) else (action.job_id,):
                own = jobs.row(job_id)
                rivals = [row for row in waits if jobs.left_out[row] and competing(snapshot, own, row)]
                assert all((-int(natural[own]), own) < (-int(jobs.priority[row]), row) for row in rivals)


@pytest.mark.sample(3)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@on_some_worlds
@given(snapshot=scoped())
def test_before_each_job_out_of_scope_are_the_jobs_that_would_be_there_without_us(
    policy: Policy, snapshot: ClusterSnapshot
) -> None:
    plan = pipeline_of(policy).decide(snapshot)
    check_scope(snapshot, plan)
    check_scope(snapshot, plan, skipping_limit_s=1e9)


@on_some_worlds
@given(seed=st.integers(0, 10**6), data=st.data())
def test_no_job_out_of_scope_shares_or_is_shared_with(seed: int, data: st.DataObject) -> None:
    snapshot = draw_site(random.Random(seed))
    count = len(snapshot.jobs)
    left_out = data.draw(st.lists(st.sampled_from([0, 0, 0, 1]), min_size=count, max_size=count))
    natural = data.draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    jobs = snapshot.jobs.with_columns(
        left_out=np.array(left_out, dtype=np.int64),
        priority=np.array(natural, dtype=np.int64) + snapshot.jobs.site_factor,
    )
    snapshot = replace(snapshot, jobs=jobs)
    check_scope(snapshot, pipeline_of(make_policy("soda")).decide(snapshot))


@on_some_worlds
@given(snapshot=scoped())
def test_a_scope_of_all_jobs_decides_as_no_scope(snapshot: ClusterSnapshot) -> None:
    everybody = np.zeros(len(snapshot.jobs), dtype=np.int64)
    whole, none = (
        replace(snapshot, jobs=snapshot.jobs.with_columns(left_out=one)) for one in (everybody, everybody[:0])
    )
    policy = POLICIES[1]
    assert plan_bytes(pipeline_of(policy).decide(whole)) == plan_bytes(without_scope(policy).decide(none))


@on_some_worlds
@given(snapshot=scoped())
def test_what_is_done_and_what_would_be_are_all_that_was_planned(snapshot: ClusterSnapshot) -> None:
    policy = POLICIES[2]
    wanted, plan = without_scope(policy).decide(snapshot), pipeline_of(policy).decide(snapshot)
    assert [one.id for one in wanted.actions if one in wanted.actions] == [
        one.id for one in wanted.actions if one.id in {each.id for each in (*plan.actions, *plan.withheld)}
    ]
    assert not {one.id for one in plan.actions} & {one.id for one in plan.withheld}
    assert (plan.order.tolist(), plan.starts.tolist()) == (wanted.order.tolist(), wanted.starts.tolist())


@on_some_worlds
@given(snapshot=scoped())
def test_a_decision_within_a_scope_is_the_same_from_its_file(snapshot: ClusterSnapshot) -> None:
    dump = SnapshotDump(snapshot, POLICIES[0], pipeline_of(POLICIES[0]).decide(snapshot))
    read = read_dump(write_dump(dump))
    assert dump.plan is not None
    assert plan_bytes(read.decide()) == plan_bytes(dump.plan)


def out_of_scope(snapshot: ClusterSnapshot, *job_ids: int) -> ClusterSnapshot:
    left_out = np.isin(snapshot.jobs.job_id, job_ids).astype(np.int64)
    return replace(snapshot, jobs=snapshot.jobs.with_columns(left_out=left_out))


def test_for_whom_not_all_make_way_that_would_have_to_for_them_none_does() -> None:
    nodes = NodeTable.uniform(2, 4)
    rows = [running(1, (0, 4), since_s=5000.0), running(2, (1, 4), since_s=5000.0)]
    snapshot = cluster([*rows, waiting(3, 8, nodes=2, gpus_per_node=4, remaining_s=1.0)], nodes)
    policy = make_policy("srsf", MANY)
    assert {one.job_id for one in pipeline_of(policy).decide(out_of_scope(snapshot)).preempts} == {1, 2}
    plan = pipeline_of(policy).decide(out_of_scope(snapshot, 2))
    assert plan.preempts == ()
    assert {one.id for one in plan.withheld} == {"preempt:1", "preempt:2"}


def test_nobody_makes_way_for_a_job_that_stays_behind_one_out_of_scope() -> None:
    nodes = NodeTable.uniform(1, 4)
    jobs = [running(1, (0, 4), since_s=5000.0), waiting(2, 4, remaining_s=1.0, priority=10)]
    snapshot = cluster([*jobs, waiting(3, 4, priority=20)], nodes)
    policy = make_policy("srsf", MANY)
    assert [one.job_id for one in pipeline_of(policy).decide(out_of_scope(snapshot, 9)).preempts] == [1]
    assert pipeline_of(policy).decide(out_of_scope(snapshot, 3)).preempts == ()
    first = cluster([*jobs, waiting(3, 4, priority=5)], nodes)
    assert [one.job_id for one in pipeline_of(policy).decide(out_of_scope(first, 3)).preempts] == [1]


def test_a_job_in_scope_passes_those_in_scope_up_to_the_next_one_out_of_scope() -> None:
    rows = [waiting(1, 4, priority=40), waiting(2, 4, priority=30), waiting(3, 4, priority=20)]
    rows += [waiting(4, 1, priority=10), running(5, (0, 3))]
    snapshot = cluster(rows, NodeTable.uniform(1, 4))
    policy = make_policy("smallest")
    lifts = [
        {
            change.job_id: int(change.new["SiteFactor"])
            for change in order_changes(pipeline_of(policy).decide(out_of_scope(snapshot, out)), snapshot)
        }
        for out in (9, 2, 3)
    ]
    assert lifts[0][4] + 10 > 40
    assert 20 < lifts[1][4] + 10 <= 30, "of equal priorities the job with the smaller id goes first"
    assert lifts[2] == {}


@pytest.mark.parametrize(
    ("scope", "why"),
    [
        (Scope(), LeftOut.NOT),
        (Scope(partitions=frozenset({"a", "b"})), LeftOut.NOT),
        (Scope(partitions=frozenset({"a"})), LeftOut.PARTITION),
        (Scope(partitions=frozenset({"a", "b"}), accounts=frozenset({"other"})), LeftOut.ACCOUNT),
        (Scope(accounts=frozenset({"acc"}), qos=frozenset({"high"})), LeftOut.QOS),
        (Scope(qos=frozenset({"low"}), users=frozenset({"bob"})), LeftOut.USER),
    ],
)
def test_a_job_is_in_scope_if_each_list_that_is_not_empty_names_it(scope: Scope, why: LeftOut) -> None:
    assert scope.leaves_out("a,b", "acc", "low", "alice") is why
    assert scope.whole is (scope == Scope())
