"""Which stages are proposed, for gains that are given; and a gain as it is simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.scope.scope import Scope
from slurm_soda.simulator.cluster import SimulatedCluster, parse_cluster
from slurm_soda.simulator.runs.policy_choice import PolicyChoice
from slurm_soda.simulator.site_plan.scope_gain import GroupGain, ScopeGain, ScopeGains
from slurm_soda.simulator.site_plan.stages import partition_uses, propose_stages
from slurm_soda.simulator.whatif.candidate_runs import CandidateRunner, WhatIfQuestion
from slurm_soda.simulator.whatif.observed_site import ObservedSite
from slurm_soda.simulator.workload import Workload


def workload(sizes: Mapping[str, float], users: str = "u") -> Workload:
    """One job of one GPU in each partition, so many hours long; owners in turn."""
    rows = [
        {"submit_s": float(at), "run_s": hours * 3600.0, "partition": name, "user": users[at % len(users)]}
        for at, (name, hours) in enumerate(sizes.items())
    ]
    return Workload.build("test", rows)


def gains(found: Mapping[str, float], whole: float = 2.0, others: float = 1.0) -> Callable[[Scope], ScopeGain]:
    """So many times better is each partition, or user, alone; of several the mean."""

    def of(scope: Scope) -> ScopeGain:
        names = scope.partitions or scope.users
        ratio = float(np.mean([found[name] for name in names])) if names else whole
        outside = GroupGain(0 if not names else 5, 100.0, 100.0 / others, 0)
        return ScopeGain(scope, GroupGain(5, 100.0 * ratio, 100.0, 0), outside, 0.0)

    return of


def names(stages: Any) -> list[tuple[str, ...]]:
    return [tuple(sorted((*one.scope.partitions, *one.scope.users))) for one in stages.enforced]


def test_the_smallest_partition_that_gains_is_first_then_those_that_gain_then_all() -> None:
    jobs = workload({"huge": 90.0, "small": 1.0, "mid": 10.0, "tiny": 0.1})
    assert [use.name for use in partition_uses(jobs)] == ["tiny", "small", "mid", "huge"]
    found = propose_stages(jobs, gains({"tiny": 1.01, "small": 1.5, "mid": 1.3, "huge": 1.02}))
    assert names(found) == [("small",), ("mid", "small"), ()]
    assert [name for name, _ in found.tried] == ["tiny", "small", "mid", "huge"]


def test_what_scope_cannot_name_is_not_proposed() -> None:
    jobs = workload({"a b": 1.0, "dom\\x": 2.0, "c*": 3.0})
    found = propose_stages(jobs, gains({"dom\\x": 1.5}))
    assert names(found) == [("dom\\x",), ()]
    assert [name for name, _ in found.tried] == ["dom\\x"]
    rows = [
        {"submit_s": 0.0, "run_s": 3600.0 * hours, "partition": "p", "user": user}
        for user, hours in (("a b", 8), ("c", 4), ("d", 2))
    ]
    assert names(propose_stages(Workload.build("test", rows), gains({"c": 1.5}))) == [("c",), ()]


def test_a_second_stage_with_all_partitions_is_that_of_all() -> None:
    assert names(propose_stages(workload({"a": 1.0, "b": 2.0}), gains({"a": 1.5, "b": 1.5}))) == [("a",), ()]


def test_a_part_that_costs_the_others_is_none() -> None:
    jobs = workload({"a": 1.0, "b": 2.0})
    assert names(propose_stages(jobs, gains({"a": 1.5, "b": 1.5}, others=0.9))) == [()]


def test_nothing_is_enforced_that_gains_nothing() -> None:
    found = propose_stages(workload({"a": 1.0, "b": 2.0}), gains({"a": 1.5, "b": 1.0}, whole=1.04))
    assert (names(found), found.tried) == ([], ())


def test_in_one_partition_the_largest_users_are_first() -> None:
    jobs = Workload.build(
        "test",
        [{"submit_s": 0.0, "run_s": run_s, "user": user} for user, run_s in (("a", 90.0), ("b", 50.0), ("c", 9.0))],
    )
    assert names(propose_stages(jobs, gains({"a": 1.2}))) == [("a",), ()]
    assert names(propose_stages(jobs, gains({"a": 1.0}))) == [()]
    assert names(propose_stages(workload({"main": 1.0}), gains({}))) == [()]


@pytest.fixture
def site(few_variants: None) -> ObservedSite:
    """Two partitions without a common node: long jobs hold all GPUs, then come short ones."""
    long = [{"submit_s": 0.0, "run_s": 900.0, "gpus": 2, "partition": name} for name in "aabb"]
    short = [{"submit_s": 100.0 + at, "run_s": 20.0, "gpus": 2, "partition": "ab"[at % 2]} for at in range(8)]
    jobs = Workload.build("test", [{"time_limit_s": 2000.0, **job} for job in long + short])
    cluster = parse_cluster("4x2", ("a", "b"))
    member = np.repeat(np.eye(2, dtype=np.bool_), 2, axis=0)
    parts = {name: getattr(cluster, name) for name in cluster.__slots__} | {"in_partition": member}
    unknown = np.full(len(jobs), np.nan)
    return ObservedSite(jobs, SimulatedCluster(**parts), unknown, unknown, 0.0)  # type: ignore[arg-type]


def test_a_gain_is_of_jobs_in_scope_and_leaves_the_others(site: ObservedSite) -> None:
    rig = CandidateRunner(site, WhatIfQuestion(workers=1), 5.0, None)
    found = ScopeGains(rig, PolicyChoice("tiresias-las", {"min_run_s": 0.0, "thresholds_gpu_s": [150.0]}))
    gain = found.of(Scope(partitions=frozenset("a")))
    assert gain.is_seen
    assert gain.inside.ratio > 1.2
    assert gain.outside.ratio == pytest.approx(1.0)
    assert gain.outside.worse == 0
    assert gain.preemptions > 0
    assert (gain.inside.jobs, gain.outside.jobs) == (6, 6)
    assert found.of(Scope()).outside.jobs == 0
