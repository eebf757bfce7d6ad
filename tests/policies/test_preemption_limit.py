"""How soon and how often one job is preempted: the same for every policy, in snapshots and in simulations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurm_soda.policies.engine.preemption import find_next_preemptible_s, find_preemptible, limit_preemptions
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.workload import Workload
from tests.policies.cases import cluster, mixed_nodes, running, waiting


def test_at_the_instant_that_is_named_one_more_job_may_be_preempted() -> None:
    """Or a cycle would be due at an instant at which there is nothing to do."""
    snapshot = cluster([running(1, (0, 4), start_s=9999.9), waiting(2, 4)], mixed_nodes(4))
    at_s = find_next_preemptible_s(snapshot, np.array([JobVerdict.RUN, JobVerdict.WAIT], dtype=np.int8), 60.1)
    assert at_s == pytest.approx(10_060.0)
    assert not find_preemptible(snapshot, 60.1).any()
    assert find_preemptible(replace(snapshot, now_s=at_s), 60.1).tolist() == [True, False]


def test_who_was_preempted_so_often_keeps_its_gpus() -> None:
    jobs = [running(1, (0, 4), attained_gpu_s=1e6, preemptions=3), waiting(2, 4)]
    snapshot = cluster(jobs, mixed_nodes(4))
    assert limit_preemptions(snapshot.jobs, 4).preemptible.tolist() == snapshot.jobs.preemptible.tolist()
    assert not limit_preemptions(snapshot.jobs, 3).preemptible[0]
    assert limit_preemptions(snapshot.jobs, 0) is snapshot.jobs, "0 is no bound"


def one_long_job_and_a_stream() -> Workload:
    """A job of two hours on a cluster that short ones want every ten minutes."""
    rows = [{"submit_s": 0.0, "run_s": 7200.0, "gpus": 4}]
    rows += [{"submit_s": 600.0 * (1 + at), "run_s": 300.0, "gpus": 4} for at in range(30)]
    return Workload.build("stream", rows)


@pytest.mark.parametrize("policy", ["srtf", "srsf"])
@pytest.mark.parametrize("limit", [1, 3])
def test_a_simulated_job_is_preempted_so_often_at_most_and_then_runs_to_its_end(policy: str, limit: int) -> None:
    jobs = one_long_job_and_a_stream()
    jobs = jobs.with_columns(expected_s=jobs.run_s)
    free, bounded = (
        simulate(jobs, parse_cluster("1x4"), make_policy(policy, {}), costs=Costs(restart_s=30.0), max_preemptions=most)
        for most in (0, limit)
    )
    assert free.preemptions[0] > limit
    assert bounded.preemptions.max() == limit
    assert np.isfinite(bounded.end_s).all()
    assert bounded.end_s[0] < free.end_s[0]


def test_without_a_bound_nothing_changes_and_engines_that_know_none_refuse_one() -> None:
    jobs = one_long_job_and_a_stream()
    jobs = jobs.with_columns(expected_s=jobs.run_s)
    of = parse_cluster("1x4"), make_policy("srtf", {})
    ends = [
        simulate(jobs, *of, engine=engine, max_preemptions=most).end_s for engine, most in (("nodes", 0), ("auto", 99))
    ]
    np.testing.assert_array_equal(*ends)
    with pytest.raises(SimulatorError, match="preemptions of one job are bounded"):
        simulate(jobs, *of, engine="nodes", max_preemptions=2)
