"""A policy for which jobs without GPUs come last is asked less often, and what happens is the same."""

from __future__ import annotations

import math
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.baselines.sort_key import SortKeyPolicy
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, SLURM, Mechanism
from slurm_soda.policies.sharing.snapshot import SharingPolicy
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.sharing.simulate_sharing import simulate_sharing
from slurm_soda.simulator.workload import Workload
from tests.simulator.engine.worlds import job

SHAPES = (
    {"gpus": 1}, {"gpus": 2}, {"gpus": 4, "gpus_per_node": 4}, {"gpus": 4, "nodes": 2, "gpus_per_node": 2}, {"gpus": 3},
)  # fmt: skip


class Asked:
    """Counts how often a policy is asked; ``cpu_jobs_last`` is the policy's own business."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self.name, self.times = policy, policy.name, 0

    @property
    def jobs_per_gpu(self) -> int:
        return self._policy.jobs_per_gpu if isinstance(self._policy, SharingPolicy) else 1

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        self.times += 1
        return self._policy.decide(snapshot)


class AskedLess(Asked):
    """Says that it need not be asked about jobs without GPUs."""

    @property
    def cpu_jobs_last(self) -> Literal[True]:
        return True


@st.composite
def mixed_workloads(draw: st.DrawFn, *, cpu_cores: int, preemptible: bool) -> Workload:
    """Gangs that ask for a core a GPU, and jobs of up to so many cores."""
    rows = [
        job(
            draw(st.integers(0, 40)) / 4,
            draw(st.integers(1, 120)) / 4,
            **shape,
            cpus=shape["gpus"] or draw(st.integers(1, cpu_cores)),
            preemptible=preemptible,
            user=draw(st.sampled_from("ab")),
            model="m",
        )
        for shape in draw(st.lists(st.sampled_from((*SHAPES, {"gpus": 0}, {"gpus": 0})), min_size=2, max_size=16))
    ]
    return Workload.build("drawn", rows)


def run(
    workload: Workload, cluster: str, policy: Asked, mechanism: Mechanism = IDEAL, passing_limit_s: float = math.inf
) -> SimulationOutcome:
    rules, most = SharingRules(slowdown=1.3, mechanism=mechanism), policy.jobs_per_gpu
    return simulate_sharing(
        workload, parse_cluster(cluster), policy, rules, jobs_per_gpu=most, passing_limit_s=passing_limit_s
    )


def same(one: SimulationOutcome, other: SimulationOutcome) -> bool:
    columns = ("job", "start_s", "end_s", "node_start", "node", "node_gpus")
    return all(getattr(one.segments, name).tolist() == getattr(other.segments, name).tolist() for name in columns)


@pytest.mark.sample(2)
@given(workload=mixed_workloads(cpu_cores=2, preemptible=True))
def test_gpus_that_jobs_wait_for_go_to_the_same_jobs(workload: Workload) -> None:
    often, seldom = (kind(SortKeyPolicy("srsf", 0.0)) for kind in (Asked, AskedLess))
    assert same(run(workload, "2x4/64c", often), run(workload, "2x4/64c", seldom))
    assert seldom.times <= often.times


@pytest.mark.sample(2)
@given(workload=mixed_workloads(cpu_cores=6, preemptible=False))
def test_cores_that_jobs_wait_for_go_to_the_same_jobs(workload: Workload) -> None:
    often, seldom = (kind(SortKeyPolicy("srsf", 0.0)) for kind in (Asked, AskedLess))
    assert same(run(workload, "3x4/6c", often), run(workload, "3x4/6c", seldom))


@pytest.mark.sample(1)
@pytest.mark.parametrize("mechanism", [IDEAL, SLURM], ids=lambda mechanism: mechanism.name)
@given(workload=mixed_workloads(cpu_cores=6, preemptible=True))
def test_nobody_is_forgotten(mechanism: Mechanism, workload: Workload) -> None:
    policy = make_policy("srsf-share", {"min_run_s": 0.0})
    outcome = run(workload, "2x4/6c", AskedLess(policy), mechanism)
    assert outcome.end_s.tolist() == pytest.approx(outcome.end_s.tolist())  # no NaN: all end


def test_a_job_without_gpus_delays_no_overdue_job() -> None:
    """It fits beside the job that runs, and would hold a core that the overdue one waits for."""
    alike = {"preemptible": False, "gpus_per_node": 4}
    rows = [job(0, 100, 2, **{**alike, "gpus_per_node": 2}, cpus=4, time_limit_s=100)]
    rows += [job(1, 5, 4, **alike, cpus=8, time_limit_s=5)]
    rows += [job(95, 8, 0, cpus=1, time_limit_s=8)]
    outcome = run(Workload.build("w", rows), "1x4/8c", AskedLess(SortKeyPolicy("srsf", 0.0)), passing_limit_s=20.0)
    assert outcome.first_start_s[1] == 100.0


def test_it_is_asked_only_where_somebody_waits_for_gpus() -> None:
    rows = [job(0, 10, 4, gpus_per_node=4, cpus=4), job(2, 8, 4, gpus_per_node=4, cpus=4)]
    rows += [job(at / 4, 1, 0, cpus=1) for at in range(40)]
    policy = AskedLess(SortKeyPolicy("srsf", 0.0))
    run(Workload.build("w", rows), "1x4/8c", policy)
    # The second job comes, the first ends and the second starts.
    assert policy.times == 2
