"""Preempted jobs that come back a little later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import ClusterSnapshot, NodeTable
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.runs.estimates import with_estimates
from slurm_soda.simulator.runs.requeued_jobs import RequeuedJobsWait
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.workload import Workload
from tests.policies.cases import NOW_S, cluster, waiting

SHORT = {"remaining_s": 10.0, "submit_s": 0.0}
LONG = {"remaining_s": 1000.0, "submit_s": 0.0}


def two_wait_for_a_gpu(waited_s: float, preemptions: int = 1) -> ClusterSnapshot:
    """Job 1 goes before job 2, but has waited for so long only since it was preempted."""
    jobs = [waiting(1, **SHORT, preemptions=preemptions, waited_s=waited_s), waiting(2, **LONG, waited_s=500.0)]
    return cluster(jobs, NodeTable.uniform(1, 1))


@pytest.mark.parametrize("policy", ["soda", "srsf", "srtf"])
@pytest.mark.parametrize(
    ("waited_s", "preemptions", "starts", "again_s"),
    [(0.5, 1, [2], 1.5), (2.0, 1, [1], np.inf), (0.5, 0, [1], np.inf)],
)
def test_another_job_has_its_place_meanwhile(
    policy: str, waited_s: float, preemptions: int, starts: list[int], again_s: float
) -> None:
    plan = RequeuedJobsWait(make_policy(policy, {}), 2.0).decide(two_wait_for_a_gpu(waited_s, preemptions))
    assert plan.starts.tolist() == starts
    assert plan.next_event_s == pytest.approx(NOW_S + again_s)


def test_who_may_not_start_for_another_reason_still_may_not() -> None:
    class Watched:
        name = "watched"

        def decide(self, snapshot: ClusterSnapshot) -> Plan:
            assert snapshot.jobs.may_start.tolist() == [False, False]
            return make_policy("srsf", {}).decide(snapshot)

    snapshot = two_wait_for_a_gpu(0.5)
    jobs = snapshot.jobs.with_columns(may_start=np.array([True, False]))
    assert not RequeuedJobsWait(Watched(), 2.0).decide(replace(snapshot, jobs=jobs)).starts.size


@pytest.mark.parametrize("requeue_s", [0.0, 2.0])
def test_a_preempted_job_moves_to_another_node_no_sooner(requeue_s: float) -> None:
    """Two long jobs run, one on each node; the first ends, and then a job comes that fits nowhere but where the other is."""
    rows = [
        {"submit_s": 0.0, "run_s": 150.0, "gpus": 1},
        {"submit_s": 1.0, "run_s": 900.0, "gpus": 1},
        {"submit_s": 200.0, "run_s": 5.0, "gpus": 2, "gpus_per_node": 2},
    ]
    jobs = with_estimates(Workload.build("moves", rows), "predicted")
    scenario = Scenario(jobs, parse_cluster("1x1+1x2"), predicted=True, requeue_s=requeue_s)
    runs = scenario.run(make_policy("soda", {"change_s": 1.0})).segments
    mine = np.flatnonzero(runs.job == 1)
    first, again = mine[np.argsort(runs.start_s[mine])].tolist()
    assert runs.start_s[again] - runs.end_s[first] == pytest.approx(requeue_s, abs=0.01)
    assert runs.start_s[runs.job == 2].tolist() == [runs.end_s[first]], "its place is free at once"
