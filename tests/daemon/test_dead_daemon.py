"""sodad dies on a saturated cluster and nobody takes its lifts back: no job starves, and none waits much longer for it."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_soda.policies.pipeline.stages import pipeline_of
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import ClusterSnapshot, NodeTable
from slurm_soda.slurm_ext.write.job_changes import order_changes
from tests.daemon.slurm_model import ModelJob, SlurmModel, saturating_jobs

UNTIL_S = 4 * 3600.0


def run_with(policy: str, seed: int, dies_s: float, *, lifts_stay: bool = True) -> tuple[list[ModelJob], list[int]]:
    """The jobs after they have all started, and every SiteFactor that was written."""
    pipeline, written = pipeline_of(make_policy(policy)), []

    def cycle(snapshot: ClusterSnapshot) -> dict[int, int]:
        changes = order_changes(pipeline.decide(snapshot), snapshot)
        new = {change.job_id: int(change.new["SiteFactor"]) for change in changes}
        written.extend(new.values())
        return new

    jobs = saturating_jobs(seed, 50, gpus=16, until_s=UNTIL_S)
    SlurmModel(jobs, NodeTable.uniform(4, 4), cycle, 60.0, dies_s, lifts_stay=lifts_stay).run(20 * UNTIL_S)
    return jobs, written


def waits(jobs: list[ModelJob], left: list[int]) -> tuple[float, float]:
    """Longest and 95th percentile."""
    waited_s = [jobs[at].waited_s for at in left]
    return max(waited_s), float(np.percentile(waited_s, 95))


@pytest.mark.parametrize(("policy", "seed"), [("sjf", 1), ("smallest", 2)])
def test_sodad_dies_and_every_job_starts_about_as_soon_as_if_its_lifts_had_died_with_it(policy: str, seed: int) -> None:
    dies_s = float(np.random.default_rng(seed).uniform(0.2, 0.9)) * UNTIL_S
    ours, written = run_with(policy, seed, dies_s)
    assert written, "sodad had something to do"
    assert min(written) >= 0
    assert max(written) < 5_000, "no more than QOS and age account for"
    left = [at for at, job in enumerate(ours) if not job.start_s < dies_s]
    alone, _ = run_with(policy, seed, dies_s, lifts_stay=False)
    for found, control in zip(waits(ours, left), waits(alone, left), strict=True):
        assert found <= 2 * control
