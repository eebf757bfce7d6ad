"""Co-location as a policy: who is placed first, where, and what is never risked."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput
from slurm_soda.policies.sharing.co_runners.report import CoRunnersReport
from slurm_soda.policies.sharing.colocation.policy import (
    Colocation,
    choose_speedup_model,
    collect_load_samples,
    estimate_load,
)
from slurm_soda.policies.sharing.colocation.speedup_models import GpuLoad, LinearSpeedup, OccupancyThreshold
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, KindProfile, Source
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingPolicy, SharingSnapshot
from slurm_soda.policies.snapshot import NodeTable
from tests.policies.cases import cluster, mixed_nodes, waiting
from tests.policies.sharing.lodgers import Fitting, broken, random_scene
from tests.policies.sharing.scenes import Table, scene
from tests.sampling import examples

SIZES = {"tiny": 1.0, "small": 1.2, "large": 2.0}
"""Models, by how much two of them slow each other down."""
KNOWN = Fitting({
    **{(one, one): (xi, xi) for one, xi in SIZES.items()},
    ("tiny", "small"): (1.1, 1.1), ("tiny", "large"): (1.9, 2.1), ("small", "large"): (2.4, 2.2),
})  # fmt: skip


def decide(snapshot: SharingSnapshot, **parameters: Any) -> SharingPlan:
    plan = Colocation(**parameters).decide(snapshot)
    assert isinstance(plan, SharingPlan)
    return plan


def waits(job_id: int, model: str, **more: Any) -> dict[str, Any]:
    return {"job_id": job_id, "gpus": 1, "cpus": 1, "submit_s": float(job_id), "model": model, **more}


def test_is_a_policy_that_shares() -> None:
    policy = make_policy("colocation", {"jobs_per_gpu": 2, "mps": False, "speedup_model": "linear"})
    assert isinstance(policy, SharingPolicy)
    assert policy.jobs_per_gpu == 2


def test_least_occupancy_first_onto_least_summed_occupancy() -> None:
    jobs = [waits(1, "large"), waits(2, "small"), waits(3, "tiny"), waits(4, "tiny")]
    plan = decide(scene(jobs, NodeTable.uniform(1, 2), KNOWN))
    # Both tiny ones take the free GPUs, the small one joins; the large one would not gain anywhere.
    assert plan.devices == {3: (0,), 4: (1,), 2: (0,)}
    assert plan.starts.tolist() == [3, 4, 2]
    assert plan.facts["occupancy_limit"] == pytest.approx(1.35)


def test_two_or_three_jobs_a_gpu() -> None:
    jobs = [waits(at, "tiny") for at in range(1, 6)]
    snapshot = scene(jobs, NodeTable.uniform(1, 1), KNOWN)
    assert len(decide(snapshot, limit=9.0).devices) == 3
    assert len(decide(snapshot, limit=9.0, jobs_per_gpu=2).devices) == 2
    assert len(decide(snapshot, limit=1.0).devices) == 2
    assert len(decide(snapshot, limit=0.0).devices) == 1  # an empty GPU takes any job


def test_a_gang_finds_all_its_gpus() -> None:
    jobs = [waits(1, "tiny"), waits(2, "small", gpus=2, cpus=2), waits(3, "small", gpus=3, cpus=3)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 2), KNOWN))
    assert plan.devices == {1: (0,), 2: (0, 1)}


@pytest.mark.parametrize(
    ("old", "new", "known"),
    [
        ({"shares": False}, {}, KNOWN),
        ({}, {"shares": False}, KNOWN),
        ({"model": ""}, {}, KNOWN),
        ({"max_slowdown": 1.01}, {}, KNOWN),
        ({}, {"max_slowdown": 1.01}, KNOWN),
        ({}, {}, Table(KNOWN.pairs)),  # nobody can say that they fit
        ({}, {}, Fitting()),
        ({}, {}, Fitting(KNOWN.pairs, misfits=frozenset({frozenset({"small"})}))),
    ],
)
def test_nobody_shares_against_bounds_consent_or_knowledge(
    old: dict[str, Any], new: dict[str, Any], known: Table
) -> None:
    jobs = [{"job_id": 1, "on": (0,), "model": "small", **old}, waits(2, "small", **new)]
    assert decide(scene(jobs, NodeTable.uniform(1, 1), known), limit=9.0).devices == {}
    assert decide(scene(jobs, NodeTable.uniform(1, 2), known), limit=9.0).devices == {2: (1,)}


@pytest.mark.parametrize("bounded", [0, 1])
def test_a_bound_holds_also_where_a_slowdown_is_worse_than_expected(bounded: int) -> None:
    unsure = Fitting(KNOWN.pairs, error=0.2)
    jobs = [{"job_id": 1, "on": (0,), "model": "small"}, waits(2, "small")]
    jobs[bounded]["max_slowdown"] = 1.5
    snapshot = scene(jobs, NodeTable.uniform(1, 1), unsure)
    plan = decide(snapshot, limit=9.0)
    assert plan.devices == {}
    told = plan.decisions[2]
    assert isinstance(told, CoRunnersReport)
    (measure,) = (one for one in told.bound_checks if one.name == "slowdown (owner's bound)")
    assert (measure.value, measure.bound, measure.holds) == (pytest.approx(1.98), 1.5, False)
    assert decide(snapshot, limit=9.0, bound_caution=1.4).devices == {2: (0,)}


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 10**9), most=st.integers(1, 3), model=st.sampled_from(("threshold", "linear")))
def test_no_bound_is_ever_broken(seed: int, most: int, model: str) -> None:
    snapshot = random_scene(random.Random(seed))
    plan = decide(snapshot, jobs_per_gpu=most, speedup_model=model)
    assert broken(snapshot, plan, most) == []


@dataclass(frozen=True, slots=True)
class Profiled(Fitting):
    """Kinds that were profiled."""

    profiles: dict[str, KindProfile] = field(default_factory=dict)

    def profile(self, kind: JobKind) -> KindProfile | None:
        return self.profiles.get(kind.model)


def test_occupancy_from_a_profile_or_from_two_of_a_kind() -> None:
    kind = JobKind("m", 32, "v100")
    measured = {"m": KindProfile(kind, Estimate(0.03, 0.0, Source.MEASURED), Estimate(0.01, 0.0, Source.MEASURED),
                             Estimate(0.9, 0.0, Source.MEASURED))}  # fmt: skip
    known = Profiled({("m", "m"): (1.6, 1.6)}, throughputs={"m": Throughput(0.02, 0.00125)}, profiles=measured)
    assert estimate_load(known, kind, mps=True) == pytest.approx((0.5, 0.01 / 0.06))
    assert estimate_load(known, kind, mps=False) == pytest.approx((0.9, 0.0))
    assert estimate_load(Fitting({("m", "m"): (1.6, 1.6)}), kind, mps=True) == GpuLoad(0.8)
    assert estimate_load(Fitting({("m", "m"): (0.9, 0.9)}), kind, mps=True) == GpuLoad(0.5)
    assert estimate_load(Fitting(), kind, mps=True) is None
    assert estimate_load(Table({("m", "m"): (1.6, 1.6)}), kind, mps=True) is None


def test_judges_are_fitted_to_pairs() -> None:
    kinds = [JobKind(name, 0, "v100") for name in SIZES]
    loads = {kind: load for kind in kinds if (load := estimate_load(KNOWN, kind, mps=True))}
    samples = collect_load_samples(KNOWN, loads)
    assert len(samples) == 6
    threshold = choose_speedup_model(Colocation(), samples)
    assert isinstance(threshold, OccupancyThreshold)
    assert threshold.wrong == 0
    assert isinstance(choose_speedup_model(Colocation(speedup_model="linear"), samples), LinearSpeedup)
    assert choose_speedup_model(Colocation(limit=0.7), samples) == OccupancyThreshold(0.7)
    assert choose_speedup_model(Colocation(), []) == OccupancyThreshold(1.0)


def test_without_single_gpus_it_is_fifo_that_skips_and_says_so() -> None:
    plan = Colocation().decide(cluster([waiting(1, 2), waiting(2, 9), waiting(3, 1)], mixed_nodes(4)))
    assert plan.starts.tolist() == [1, 3]
    assert plan.policy == "colocation"
    assert plan.facts["sharing_known"] == 0


def test_jobs_without_gpus_run_beside() -> None:
    jobs: Sequence[dict[str, Any]] = [waits(1, "tiny"), {"job_id": 2, "gpus": 0, "cpus": 3, "model": ""}]
    plan = decide(scene(jobs, NodeTable.uniform(1, 1), KNOWN))
    assert sorted(plan.starts.tolist()) == [1, 2]
    assert np.isinf(plan.notes.of(2).score)
