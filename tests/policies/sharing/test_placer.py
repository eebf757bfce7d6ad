"""OJPP and OJPAP as policies: bounds that hold whatever happens, who is joined, who waits, who moves."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.sharing.arithmetic.memory_demand import MemoryDemand
from slurm_soda.policies.sharing.arithmetic.sharing_decision import Footprint
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.ojpp.policy import Ojpap, Ojpp
from slurm_soda.policies.sharing.ojpp.strategies import STRATEGIES
from slurm_soda.policies.sharing.ojpp.worker_moves import InterferenceTrigger
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingPolicy, SharingSnapshot
from slurm_soda.policies.snapshot import JobState, NodeTable
from tests.policies.cases import NOW_S, cluster, mixed_nodes, verdicts, waiting
from tests.policies.sharing.lodgers import Fitting, big, broken, random_scene
from tests.policies.sharing.scenes import Table, scene
from tests.sampling import examples

MILD = Fitting(else_xi=1.05)


def decide(snapshot: SharingSnapshot, policy: Policy | None = None) -> SharingPlan:
    plan = (policy or Ojpp()).decide(snapshot)
    assert isinstance(plan, SharingPlan)
    return plan


def waits(job_id: int, gpus: int = 1, **more: Any) -> dict[str, Any]:
    return {"job_id": job_id, "gpus": gpus, "cpus": gpus, "submit_s": float(job_id), **more}


@pytest.mark.parametrize("name", ["ojpp", "ojpap"])
def test_are_policies_that_share(name: str) -> None:
    policy = make_policy(name, {"strategy": "greedy", "jobs_per_gpu": 2})
    assert isinstance(policy, SharingPolicy)
    assert policy.name == name
    assert policy.jobs_per_gpu == 2


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 10**9), name=st.sampled_from(STRATEGIES), moves=st.booleans(), most=st.integers(1, 3),
    order=st.sampled_from(("submit", "paper")),
)  # fmt: skip
def test_no_bound_is_ever_broken(seed: int, name: str, moves: bool, most: int, order: str) -> None:
    rng = random.Random(seed)
    snapshot = random_scene(rng)
    kind = Ojpap if moves else Ojpp
    policy = kind(strategy=name, jobs_per_gpu=most, order=order, interference=rng.choice((0.06, 0.2, 0.4)))
    plan = decide(snapshot, policy)
    bound = policy.interference if name in ("i-greedy", "greedy", "ojpp") else np.inf
    assert broken(snapshot, plan, most, bound) == []
    assert set(plan.starts.tolist()) <= set(snapshot.jobs.job_id[snapshot.jobs.state == JobState.PENDING].tolist())


def test_active_gpus_before_new_ones() -> None:
    plan = decide(scene([{"job_id": 1, "on": (2,)}, waits(2)], NodeTable.uniform(1, 4), MILD))
    assert plan.devices == {2: (2,)}
    assert plan.facts["gpus_active"] == 1


def test_jobs_of_one_plan_share() -> None:
    plan = decide(scene([waits(at) for at in (1, 2, 3, 4)], NodeTable.uniform(1, 4), MILD))
    assert [plan.devices[at] for at in (1, 2, 3, 4)] == [(0,), (0,), (0,), (1,)]
    assert list(plan.places) == [1, 2, 3, 4]  # whoever is joined comes first


def test_a_gang_is_whole_and_takes_new_gpus_where_it_must() -> None:
    jobs = [{"job_id": 1, "on": (0,)}, waits(2, 3)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 4), MILD))
    assert plan.devices == {2: (0, 1, 2)}
    assert decide(scene([{"job_id": 1, "on": (0,)}, waits(2, 5)], NodeTable.uniform(1, 4), MILD)).devices == {}


def test_balance_keeps_a_gang_off_a_loud_gpu() -> None:
    loud = Fitting({("a", "b"): (1.15, 1.15)}, else_xi=1.0)
    jobs = [{"job_id": 1, "on": (0,), "model": "a"}, waits(2, 2, model="b")]
    snapshot = scene(jobs, NodeTable.uniform(1, 4), loud)
    assert decide(snapshot).devices == {2: (1, 2)}
    assert decide(snapshot, Ojpp(balance=0.2)).devices == {2: (0, 1)}


@pytest.mark.parametrize(
    ("old", "new", "known"),
    [
        ({"shares": False}, {}, MILD),
        ({}, {"shares": False}, MILD),
        ({"model": ""}, {}, MILD),
        ({"max_slowdown": 1.01}, {}, MILD),
        ({}, {"max_slowdown": 1.01}, MILD),
        ({"batch": 8, "sub_batch": 4}, {"batch": 8}, MILD),
        ({}, {}, Table(else_xi=1.0)),  # nobody can say that they fit
        ({}, {}, Fitting()),  # nobody knows the slowdown
        ({}, {}, Fitting(else_xi=1.0, misfits=frozenset({frozenset({"m"})}))),
    ],
)
@pytest.mark.parametrize("name", STRATEGIES)
def test_nobody_shares_against_bounds_consent_or_knowledge(
    name: str, old: dict[str, Any], new: dict[str, Any], known: Table
) -> None:
    jobs = [{"job_id": 1, "on": (0,), **old}, waits(2, **new)]
    assert decide(scene(jobs, NodeTable.uniform(1, 1), known), Ojpp(strategy=name)).devices == {}
    assert decide(scene(jobs, NodeTable.uniform(1, 2), known), Ojpp(strategy=name)).devices == {2: (1,)}


def test_footprints_tell_who_fits() -> None:
    known = Table(else_xi=1.0, footprints={"m": Footprint(400.0, 0.0)})
    jobs = [waits(at) for at in (1, 2, 3)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 2), known, memory_mib=1000.0))
    assert [plan.devices[at] for at in (1, 2, 3)] == [(0,), (0,), (1,)]


class Peaking(Table):
    """Somebody who knows how memory comes and goes."""

    def demand(self, kind: JobKind, device_mib: float) -> MemoryDemand | None:
        return MemoryDemand(0.3, 0.4, 0.2)


def test_peaks_meet_only_if_that_is_asked_for() -> None:
    known = Peaking(else_xi=1.0, footprints={"m": Footprint(700.0, 0.0)})
    snapshot = scene([waits(1), waits(2)], NodeTable.uniform(1, 2), known, memory_mib=1000.0)
    assert decide(snapshot).devices == {1: (0,), 2: (1,)}
    assert decide(snapshot, Ojpp(opportunistic=True)).devices == {1: (0,), 2: (0,)}
    assert decide(snapshot, Ojpp(opportunistic=True, collision=0.03)).devices == {1: (0,), 2: (1,)}


def test_cpus_of_nodes_are_taken_by_each_job() -> None:
    jobs = [waits(1, cpus=3), waits(2, cpus=3), waits(3, cpus=1)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 2, cpus=4), MILD))
    assert plan.devices == {1: (0,), 3: (0,)}
    assert verdicts(plan)[2] == "WAIT"


@pytest.mark.parametrize("policy", [Ojpp(), Ojpap()])
def test_without_single_gpus_it_is_fifo_that_skips_and_says_so(policy: Policy) -> None:
    plan = policy.decide(cluster([waiting(1, 2), waiting(2, 9), waiting(3, 1)], mixed_nodes(4)))
    assert plan.starts.tolist() == [1, 3]
    assert plan.policy == policy.name
    assert plan.facts["sharing_known"] == 0


LOUD = Fitting({("a", "b"): (1.5, 1.4)}, else_xi=1.0)


def met(**more: Any) -> list[dict[str, Any]]:
    return [
        {"job_id": 1, "on": (0,), "model": "a", "start_s": NOW_S - 3600.0, **more},
        {"job_id": 2, "on": (0,), "model": "b", "start_s": NOW_S - 3000.0},
    ]


def test_a_worker_moves_away_from_lasting_interference() -> None:
    plan = decide(scene(met(), NodeTable.uniform(2, 2), LOUD), Ojpap())
    (preempt,) = plan.preempts
    assert preempt.job_id == 1
    assert "from GPU 0 to GPU 1: interference there averages 0.50" in preempt.reason
    assert plan.devices == {1: (1,)}
    assert plan.places[1][0].node == 0
    assert verdicts(plan) == {1: "PREEMPT", 2: "RUN"}


@pytest.mark.parametrize(
    ("policy", "jobs"),
    [
        (Ojpap(interference=0.5), met()),
        (Ojpap(budget_gpu_s=59.0), met()),
        (Ojpap(min_run_s=4000.0), met()),
        (Ojpap(weight=0.999), met()),
        (Ojpap(strategy="best-fit"), met()),
    ],
)
def test_nobody_moves_within_bounds_budget_or_haste(policy: Ojpap, jobs: list[dict[str, Any]]) -> None:
    assert not decide(scene(jobs, NodeTable.uniform(1, 4), LOUD), policy).preempts


def test_only_jobs_that_can_checkpoint_move() -> None:
    jobs = met(preemptible=False)
    (preempt,) = decide(scene(jobs, NodeTable.uniform(1, 4), LOUD), Ojpap()).preempts
    assert preempt.job_id == 2


def test_nobody_joins_a_job_on_its_way() -> None:
    plan = decide(scene([*met(), waits(3, model="c")], NodeTable.uniform(1, 3), LOUD), Ojpap())
    assert plan.devices[1] == (1,)
    assert plan.devices[3] == (2,)


def test_moves_once_interference_has_lasted_and_looks_again_meanwhile() -> None:
    jobs = met()
    jobs[1]["start_s"] = NOW_S - 130.0
    snapshot = scene(jobs, NodeTable.uniform(1, 4), LOUD)
    plan = decide(snapshot, Ojpap(min_run_s=0.0))
    # (1 - 0.8^n) 0.5 exceeds 0.2 from the third observation on.
    assert not plan.preempts
    assert plan.next_event_s == NOW_S + 60.0
    assert len(decide(replace(snapshot, now_s=NOW_S + 60.0), Ojpap(min_run_s=0.0)).preempts) == 1
    assert math.isinf(decide(scene(met()[:1], NodeTable.uniform(1, 4), LOUD), Ojpap()).next_event_s)


@given(weight=st.floats(0, 0.95), theta=st.floats(0.01, 3), seen=st.integers(0, 50))
def test_the_trigger_is_the_filter_of_the_paper(weight: float, theta: float, seen: int) -> None:
    smoothed = 0.0
    for _ in range(seen):
        smoothed = weight * smoothed + (1 - weight) * theta  # Equation 18
    assert InterferenceTrigger(weight, 60.0).smoothed(theta, 60.0 * seen + 10.0) == pytest.approx(smoothed, abs=1e-9)


def test_senseless_triggers_are_refused() -> None:
    for weight, interval_s in ((1.0, 60.0), (-0.1, 60.0), (0.5, 0.0)):
        with pytest.raises(PolicyError):
            InterferenceTrigger(weight, interval_s)
    with pytest.raises(PolicyError):
        make_policy("ojpap", {"weight": 1.0})


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["ojpp", "ojpap", "colocation"])
def test_one_decision_over_2000_gpus_and_5000_jobs(name: str) -> None:
    snapshot = big(2_000, 5_000, busy=True)
    policy = make_policy(name)
    assert len(policy.decide(snapshot).starts) > 300
