"""A job on all nodes against a stream of jobs on one: it starts as on stock Slurm, or as soon as it may not be passed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.policies.pipeline.stages import pipeline_of
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import ClusterSnapshot, NodeTable
from slurm_soda.policies.waiting.overdue import mark_overdue
from slurm_soda.slurm_ext.write.job_changes import order_changes
from tests.daemon.slurm_model import ModelJob, SlurmModel

WIDE = 1000


def wide_job_waits_s(
    of_node: dict[str, int],
    *,
    enforces: bool,
    passing_limit_s: float,
    skipping_limit_s: float = math.inf,
    policy: str = Settings().policy.name,
) -> float:
    """Wait of a job that wants two whole nodes while one for a single node comes every nine seconds and takes twenty."""
    pipeline = pipeline_of(make_policy(policy))

    def cycle(snapshot: ClusterSnapshot) -> dict[int, int]:
        snapshot = mark_overdue(snapshot, passing_limit_s)
        changes = order_changes(pipeline.decide(snapshot), snapshot, skipping_limit_s=skipping_limit_s)
        return {change.job_id: int(change.new["SiteFactor"]) for change in changes}

    def job(job_id: int, submit_s: float, nodes: int) -> ModelJob:
        asked: dict[str, Any] = {"gpus": 0, **{name: nodes * amount for name, amount in of_node.items()}}
        return ModelJob(job_id, submit_s, 20.0, 40.0, nodes=nodes, **asked)

    wide = job(WIDE, 25.0, 2)
    jobs = [job(at, 9.0 * at, 1) for at in range(1, 40)]
    SlurmModel([*jobs, wide], NodeTable.uniform(2, 4, cpus=4), cycle, dies_s=1e9 if enforces else 0.0).run(3600.0)
    return wide.waited_s


@pytest.mark.parametrize("of_node", [{"cpus": 4}, {"gpus": 4}])
def test_a_wide_job_that_may_not_be_passed_starts_as_on_stock_slurm(of_node: dict[str, int]) -> None:
    stock_s = wide_job_waits_s(of_node, enforces=False, passing_limit_s=0.0)
    assert wide_job_waits_s(of_node, enforces=True, passing_limit_s=0.0) <= 1.1 * stock_s


@pytest.mark.parametrize("of_node", [{"cpus": 4}, {"gpus": 4}])
def test_a_wide_job_that_the_policy_ranks_by_arrival_starts_as_on_stock_slurm(of_node: dict[str, int]) -> None:
    """Nothing but the policy itself puts a job back (`soda` would: it asks for more GPUs; that ends with the limit)."""
    cycle = Settings().cycle
    stock_s = wide_job_waits_s(of_node, enforces=False, passing_limit_s=0.0)
    ours_s = wide_job_waits_s(
        of_node,
        enforces=True,
        passing_limit_s=cycle.passing_limit_s,
        skipping_limit_s=cycle.skipping_limit_s,
        policy="tiresias-las",
    )
    assert ours_s <= 1.1 * stock_s


def test_a_wide_gpu_job_is_passed_no_longer_than_the_limit() -> None:
    stock_s = wide_job_waits_s({"gpus": 4}, enforces=False, passing_limit_s=0.0)
    assert wide_job_waits_s({"gpus": 4}, enforces=True, passing_limit_s=120.0) <= 120.0 + 1.1 * stock_s
