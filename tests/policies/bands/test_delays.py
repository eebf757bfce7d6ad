"""Plans in bands: who may pass a better band, and what holds for every policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.pipeline.stages import pipeline_of
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.registry.catalog import make_policy, policy_names
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState
from tests.policies.cases import cluster, mixed_nodes, running, verdicts, waiting
from tests.policies.worlds import on_some_worlds, worlds

NO_PREEMPTION = ("fifo-skip", "sjf", "smallest", "drf", "kelp-drf")
PREEMPTIVE = ("tiresias-las", "srsf", "srtf", "gandiva")


def decide(name: str, snapshot: ClusterSnapshot) -> Plan:
    return pipeline_of(make_policy(name)).decide(snapshot)


def job(job_id: int, gpus: int, band: int, **columns: Any) -> dict[str, Any]:
    return waiting(job_id, gpus, band=band, time_limit_s=1000.0, remaining_s=10.0, user=f"u{job_id}", **columns)


@pytest.mark.parametrize("name", [*NO_PREEMPTION, *PREEMPTIVE, "fifo", "backfill", "multifactor", "kelp-fifo", "coda"])
def test_a_better_band_goes_first(name: str) -> None:
    jobs = [job(1, 4, 1, submit_s=1), job(2, 4, 0, submit_s=9), job(3, 4, 2, submit_s=2)]
    assert decide(name, cluster(jobs, mixed_nodes(4))).starts.tolist() == [2]


@pytest.mark.parametrize("name", [*NO_PREEMPTION, *PREEMPTIVE])
def test_a_long_job_does_not_take_what_a_better_band_will_need(name: str) -> None:
    """Job 2 needs all GPUs in 500 s; job 3 would stay longer, job 4 is over by then."""
    jobs = [
        running(1, (0, 1), since_s=500.0, time_limit_s=1000.0, preemptible=False), job(2, 4, 0),
        job(3, 2, 1, preemptible=False), job(4, 1, 1, preemptible=False) | {"time_limit_s": 500.0},
    ]  # fmt: skip
    plan = decide(name, cluster(jobs, mixed_nodes(4)))
    assert plan.starts.tolist() == [4]
    assert plan.notes.of(3).behind == 2
    assert verdicts(plan)[3] == "WAIT"
    assert 3 in plan.order.tolist()


@pytest.mark.parametrize("name", PREEMPTIVE)
def test_who_makes_way_may_use_it_meanwhile(name: str) -> None:
    jobs = [
        running(1, (0, 2), since_s=500.0, time_limit_s=1000.0, preemptible=False), job(2, 4, 0),
        job(3, 2, 1, preemptible=True),
    ]  # fmt: skip
    assert decide(name, cluster(jobs, mixed_nodes(4))).starts.tolist() == [3]


@pytest.mark.parametrize("name", NO_PREEMPTION)
def test_nobody_makes_way_where_nothing_is_preempted(name: str) -> None:
    jobs = [
        running(1, (0, 2), since_s=500.0, time_limit_s=1000.0, preemptible=False), job(2, 4, 0),
        job(3, 2, 1, preemptible=True),
    ]  # fmt: skip
    assert decide(name, cluster(jobs, mixed_nodes(4))).starts.tolist() == []


def test_other_nodes_do_not_matter() -> None:
    jobs = [
        running(1, (0, 2), time_limit_s=1500.0, preemptible=False), job(2, 4, 0, gpus_per_node=4), job(3, 1, 1),
        job(4, 2, 1), job(5, 1, 1),
    ]  # fmt: skip
    plan = decide("sjf", cluster(jobs, mixed_nodes(4, 2)))
    assert {one: plan.places[one][0].node for one in plan.starts.tolist()} == {3: 1, 5: 1}
    assert plan.notes.behind.tolist() == [0, 0, 0, 2, 0]


def test_two_that_are_too_much_only_together() -> None:
    """What job 2 leaves when job 1 ends is one GPU: one of the two may have it."""
    jobs = [
        running(1, (0, 2), time_limit_s=1500.0, preemptible=False), job(2, 3, 0), job(3, 1, 1), job(4, 1, 1), job(5, 1, 2),
    ]  # fmt: skip
    assert decide("sjf", cluster(jobs, mixed_nodes(4))).starts.tolist() == [3]


@pytest.mark.parametrize("name", PREEMPTIVE)
def test_a_worse_band_makes_way_whatever_the_policys_order(name: str) -> None:
    mine = {"remaining_s": 1.0, "executed_s": 100.0, "attained_gpu_s": 1.0, "since_s": 100.0}
    jobs = [
        running(1, (0, 4), band=1, **mine),
        job(2, 4, 0, waited_s=0.0) | {"remaining_s": 9e6, "attained_gpu_s": 9e6},
    ]
    plan = decide(name, cluster(jobs, mixed_nodes(4)))
    assert [one.job_id for one in plan.preempts] == [1]


@pytest.mark.parametrize("name", PREEMPTIVE)
def test_nobody_of_a_better_band_is_preempted(name: str) -> None:
    mine = {"remaining_s": 9e6, "executed_s": 9000.0, "since_s": 9000.0, "waited_s": 0.0}
    jobs = [running(1, (0, 4), band=0, **mine), job(2, 4, 1, waited_s=9e5)]
    assert decide(name, cluster(jobs, mixed_nodes(4))).preempts == ()


@st.composite
def banded(draw: st.DrawFn) -> ClusterSnapshot:
    snapshot = draw(worlds())
    bands = draw(st.lists(st.integers(0, 2), min_size=len(snapshot.jobs), max_size=len(snapshot.jobs)))
    return replace(snapshot, jobs=snapshot.jobs.with_columns(band=np.array(bands, dtype=np.int64)))


@on_some_worlds
@given(snapshot=banded(), name=st.sampled_from(policy_names()))
def test_what_a_better_band_gets_does_not_depend_on_worse_ones_that_wait(snapshot: ClusterSnapshot, name: str) -> None:
    """Under each policy the jobs of the best bands start if and only if they would if no job of a worse one waited."""
    plan = decide(name, snapshot)
    jobs = snapshot.jobs
    for band in (0, 1):
        hidden = (jobs.state == JobState.PENDING) & (jobs.band > band)
        state = np.where(hidden, np.int8(JobState.BLOCKED), jobs.state)
        alone = decide(name, replace(snapshot, jobs=jobs.with_columns(state=state)))
        better = set(jobs.job_id[jobs.band <= band].tolist())
        assert [one for one in plan.starts.tolist() if one in better] == alone.starts.tolist(), name


@on_some_worlds
@given(snapshot=banded(), name=st.sampled_from(policy_names()))
def test_nobody_is_preempted_for_worse_bands(snapshot: ClusterSnapshot, name: str) -> None:
    plan, jobs = decide(name, snapshot), snapshot.jobs
    for one in plan.preempts:
        rows = [jobs.row(other) for other in one.for_jobs]
        assert not rows or jobs.band[rows].min() <= jobs.band[jobs.row(one.job_id)]


@on_some_worlds
@given(snapshot=worlds(), name=st.sampled_from(policy_names()))
def test_one_band_changes_nothing(snapshot: ClusterSnapshot, name: str) -> None:
    one = replace(snapshot, jobs=snapshot.jobs.with_columns(band=np.full(len(snapshot.jobs), 3)))
    plan, plain = decide(name, one), make_policy(name).decide(snapshot)
    assert plan.starts.tolist() == plain.starts.tolist()
    assert plan.places == plain.places
    assert JobVerdict.START not in plan.notes.verdict[plan.notes.behind > 0] if len(plan.notes.behind) else True
