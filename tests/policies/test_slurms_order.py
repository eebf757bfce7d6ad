"""What a plan's SiteFactors make of Slurm's order, by a plain model of how Slurm sorts, for each policy."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.pipeline.stages import pipeline_of
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.snapshot import ClusterSnapshot, IntColumn, JobState
from slurm_soda.slurm_ext.write.job_changes import order_changes
from tests.policies.test_properties import ALL
from tests.policies.worlds import on_some_worlds, worlds

SKIPPING_LIMIT_S = 600.0
Sorts = tuple[int, float, int]


@dataclass(frozen=True)
class SlurmQueue:
    """Jobs by row, as Slurm has them."""

    snapshot: ClusterSnapshot
    own: IntColumn
    """Priority before SiteFactor, which may be below 1."""
    held: IntColumn
    """0 of a job that is held, else 1."""

    def shown(self, factors: IntColumn) -> IntColumn:
        """Priorities as Slurm shows them and sorts by them."""
        found: IntColumn = self.held * np.maximum(self.own + factors, 1)
        return found

    def keys(self, factors: IntColumn) -> list[Sorts]:
        """Sorts as Slurm tries jobs: by priority, submit time, and id."""
        jobs = self.snapshot.jobs
        return list(zip((-self.shown(factors)).tolist(), jobs.queued_s.tolist(), jobs.id_place.tolist(), strict=True))

    def compete(self, row: int, other: int) -> bool:
        """Whether both may take one of the nodes."""
        partition, nodes = self.snapshot.jobs.partition, self.snapshot.nodes.in_partition
        return bool(partition[row] == partition[other] or (nodes[:, partition[row]] & nodes[:, partition[other]]).any())


def queue_of(world: ClusterSnapshot, seed: int) -> SlurmQueue:
    """The world's jobs with priorities close to each other or far apart, lifts of before, and some of them left alone."""
    rng, jobs = np.random.default_rng(seed), world.jobs
    count = len(jobs)
    own = rng.integers(1, 6, count) if rng.random() < 0.6 else rng.integers(-3000, 3000, count)
    factors = rng.integers(0, 50, count) * (rng.random(count) < 0.3)
    held = 1 - (jobs.state == JobState.BLOCKED) * (rng.random(count) < 0.5)
    table = jobs.with_columns(
        site_factor=factors,
        left_out=(rng.random(count) < rng.choice([0.0, 0.2])).astype(np.int64),
        nice=100 * rng.integers(0, rng.integers(1, 3), count),
        queued_s=rng.integers(0, 3, count).astype(np.float64),
        id_place=rng.permutation(count),
        preemptions=(rng.random(count) < 0.2).astype(np.int64),
    )
    queue = SlurmQueue(replace(world, jobs=table), own, held)
    table = table.with_columns(priority=queue.shown(factors))
    return replace(queue, snapshot=replace(world, jobs=table))


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.name)
@on_some_worlds
@given(world=worlds(), seed=st.integers(0, 10**6))
def test_who_starts_is_tried_first_but_for_those_that_nobody_may_pass(
    policy: Policy, world: ClusterSnapshot, seed: int
) -> None:
    queue = queue_of(world, seed)
    jobs, plan = queue.snapshot.jobs, pipeline_of(policy).decide(queue.snapshot)
    factors = jobs.site_factor.copy()
    for change in order_changes(plan, queue.snapshot, skipping_limit_s=SKIPPING_LIMIT_S):
        factors[jobs.row(change.job_id)] = int(change.new["SiteFactor"])
    assert (factors >= 0).all()
    assert (factors == jobs.site_factor)[jobs.left_out > 0].all()
    waits, starts = jobs.state == JobState.PENDING, np.isin(jobs.job_id, plan.starts)
    others = np.flatnonzero((waits | (jobs.state == JobState.BLOCKED)) & (queue.held > 0)).tolist()
    stock, ours = queue.keys(jobs.site_factor * (jobs.left_out > 0)), queue.keys(factors)
    for row in np.flatnonzero(waits & (jobs.left_out == 0)).tolist():
        rivals = [one for one in others if one != row and queue.compete(row, one)]
        ahead = [one for one in rivals if stock[one] < stock[row]]
        firm = [one for one in ahead if jobs.left_out[one] or (waits[one] and jobs.nice[one] < jobs.nice[row])]
        assert all(ours[one] < ours[row] for one in firm)
        if not starts[row] or firm or any(jobs.waited_s[one] >= SKIPPING_LIMIT_S for one in ahead):
            continue
        if queue.own.min() >= 1:  # else Slurm does not show how much is missing
            behind = [one for one in rivals if waits[one] and not starts[one] and jobs.gpus[one] and jobs.gpus[row]]
            assert all(ours[row] < ours[one] for one in behind if not jobs.left_out[one])
