"""soda beside a wide job that does not fit: who may be put before it in Slurm's queue, as it would make way for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.pipeline.stages import pipeline_of
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.sharing.soda.policy import Soda
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, NodeTable
from slurm_soda.slurm_ext.write.job_changes import order_changes
from tests.policies.cases import cluster, running, waiting
from tests.policies.worlds import carried_out, on_some_worlds

SODA = Soda(change_s=10.0)
WIDE, NARROW = 8, 9


def beside_a_wide_job(narrow: dict[str, Any], *others: dict[str, Any], **wide: Any) -> ClusterSnapshot:
    """Two nodes of 4 GPUs. One has a job that nobody may stop; the wide job wants both, the narrow one the idle one."""
    jobs = [
        running(1, (0, 4), remaining_s=600.0, preemptible=False),
        waiting(WIDE, 8, nodes=2, gpus_per_node=4, **{"remaining_s": 100.0, "priority": 900, **wide}),
        waiting(
            NARROW,
            4,
            nodes=1,
            gpus_per_node=4,
            **{"remaining_s": 1000.0, "priority": 900, "preemptible": True, **narrow},
        ),
        *others,
    ]
    return cluster(jobs, NodeTable.uniform(2, 4))


def lifted(plan: Plan, snapshot: ClusterSnapshot) -> list[int]:
    changes = order_changes(plan, snapshot, skipping_limit_s=0.0)
    return [change.job_id for change in changes if int(change.new["SiteFactor"]) > 0]


def decide(snapshot: ClusterSnapshot) -> Plan:
    plan = pipeline_of(SODA).decide(snapshot)
    assert plan.starts.tolist() == [NARROW]
    return plan


def test_a_job_that_would_make_way_is_put_before_a_wide_one() -> None:
    snapshot = beside_a_wide_job({})
    plan = decide(snapshot)
    assert plan.skips.tolist() == [NARROW]
    assert lifted(plan, snapshot) == [NARROW]


@pytest.mark.parametrize(
    ("remaining_s", "skips"), [(300.0, True), (600.0, True), (700.0, False), (830.0, False), (1000.0, True)]
)
def test_it_would_still_make_way_when_the_wide_job_fits_or_has_ended(remaining_s: float, skips: bool) -> None:
    """The wide job fits after 600 s. Of 830 s too little is left then, and a stream of such jobs would keep it waiting."""
    plan = decide(beside_a_wide_job({"remaining_s": remaining_s}))
    assert plan.skips.tolist() == ([NARROW] if skips else [])


def test_it_does_not_skip_where_too_many_different_jobs_wait_to_look_at_each() -> None:
    others = [
        waiting(at, 8, nodes=2, gpus_per_node=4, cpus=2 * at, remaining_s=100.0, priority=900) for at in range(20, 28)
    ]
    assert decide(beside_a_wide_job({}, *others[:6])).skips.tolist() == [NARROW]
    assert not len(decide(beside_a_wide_job({}, *others)).skips)


def test_it_stays_behind_a_job_without_gpus_for_which_nobody_makes_way() -> None:
    """It wants all cores of both nodes."""
    on_cpus = waiting(7, 0, nodes=2, cpus=56, priority=950, remaining_s=100.0)
    snapshot = beside_a_wide_job({}, on_cpus)
    plan = decide(snapshot)
    assert plan.skips.tolist() == [NARROW]
    factors = {one.job_id: int(one.new["SiteFactor"]) for one in order_changes(plan, snapshot, skipping_limit_s=0.0)}
    assert set(factors) == {NARROW}
    assert 900 < 900 + factors[NARROW] <= 950


def test_it_makes_way_as_soon_as_the_wide_job_fits() -> None:
    plan = SODA.decide(carried_out(beside_a_wide_job({}), decide(beside_a_wide_job({})), leaving=True))
    assert not plan.preempts
    jobs = [
        running(NARROW, (1, 4), remaining_s=1000.0),
        waiting(WIDE, 8, nodes=2, gpus_per_node=4, remaining_s=100.0),
    ]
    assert [one.job_id for one in SODA.decide(cluster(jobs, NodeTable.uniform(2, 4))).preempts] == [NARROW]


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ({"preemptible": False}, {}),
        # Once it runs it needs 4 x 215 GPU s, the wide one 8 x 100 and 8 x 10 to start.
        ({"remaining_s": 215.0}, {}),
        # To stop it would gain (900 - 880) / 8 s, and cost 10 s or more.
        ({"remaining_s": 225.0}, {}),
        ({}, {"may_preempt": False}),
        ({"band": 1}, {"band": 0}),
    ],
)
def test_others_wait_behind_it(narrow: dict[str, Any], wide: dict[str, Any]) -> None:
    snapshot = beside_a_wide_job(narrow, **wide)
    plan = pipeline_of(SODA).decide(snapshot)
    assert not len(plan.skips)
    assert not lifted(plan, snapshot)


def test_whoever_makes_way_for_one_wide_job_but_not_for_another_waits() -> None:
    # 8 x 497 GPU s are more than 4 x 985, and less than 4 x 995, with what it takes to start.
    second = waiting(10, 8, nodes=2, gpus_per_node=4, remaining_s=487.0, priority=900)
    snapshot = beside_a_wide_job({"remaining_s": 985.0}, second)
    assert not len(pipeline_of(SODA).decide(snapshot).skips)
    assert pipeline_of(SODA).decide(beside_a_wide_job({"remaining_s": 985.0})).skips.tolist() == [NARROW]


def crowd(seed: int) -> ClusterSnapshot:
    """Three nodes of 4 GPUs, on which some jobs run; others want one to three whole nodes. Some run times are known."""
    rng = np.random.default_rng(seed)
    jobs: list[dict[str, Any]] = []
    for job_id in range(1, int(rng.integers(3, 12))):
        known = {"remaining_s": float(rng.lognormal(6.0, 1.5))} if rng.random() < 0.7 else {}
        columns = {"preemptible": bool(rng.random() < 0.7), "submit_s": 1000.0 + job_id, **known}
        if job_id < 3 and rng.random() < 0.7:
            jobs.append(running(job_id, (job_id, 4), **columns))
        else:
            nodes = int(rng.integers(1, 4))
            jobs.append(waiting(job_id, 4 * nodes, nodes=nodes, gpus_per_node=4, **columns))
    return cluster(jobs, NodeTable.uniform(3, 4))


@on_some_worlds
@given(seed=st.integers(0, 10**6))
def test_who_skips_ranks_behind_all_that_wait_before_it_as_soon_as_it_runs(seed: int) -> None:
    snapshot = crowd(seed)
    plan, jobs = SODA.decide(snapshot), snapshot.jobs
    assert np.isin(plan.skips, plan.starts).all()
    before = plan.notes.position
    after = SODA.decide(carried_out(snapshot, plan, leaving=True)).notes.position
    waits = (jobs.state == JobState.PENDING) & ~np.isin(jobs.job_id, list(plan.places))
    for row in np.flatnonzero(np.isin(jobs.job_id, plan.starts)).tolist():
        ahead = waits & (before < before[row])
        if jobs.job_id[row] in plan.skips:
            assert jobs.preemptible[row]
            assert ahead.any()
            assert (after[ahead] < after[row]).all()


def test_some_skip_and_others_do_not() -> None:
    plans = [SODA.decide(crowd(seed)) for seed in range(1000)]
    skips = sum(len(plan.skips) for plan in plans)
    assert 10 < skips < sum(len(plan.starts) for plan in plans) / 2
