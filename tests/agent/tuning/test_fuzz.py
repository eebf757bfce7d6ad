"""Random concave curves with noise, through the controller as it runs on a node, on a clock that is set."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from slurm_soda.agent.cpusets.core_limits import CoreRange
from slurm_soda.agent.settings.core_tuning import CoreTuningSettings
from tests.agent.tuning.node import Node
from tests.policies.cpu_fit.models import FAMILIES, LIMIT, MODELS, random_job
from tests.sampling import examples

CURVES = examples(200)
NOISE_OF_A_SAMPLE = 0.05
"""Standard deviation of one sample: 0.65 % of a step's mean of 60."""


def test_of_many_random_curves_ninety_five_in_hundred_end_within_one_core(tmp_path: Path) -> None:
    """Starts from 1, 2 and 20 cores in turn; at most four steps each, and none ends worse than it began."""
    rng = random.Random(4)
    node = Node(tmp_path, CoreTuningSettings(enabled=True, free_unneeded=True), seed=4)
    jobs = [random_job(rng, FAMILIES[number % len(FAMILIES)]) for number in range(CURVES)]
    for number, job in enumerate(jobs, 1):
        start = (1, 2, 20)[number % 3]
        node.add(number, job.at, room=CoreRange(start, LIMIT), gpus=(number,), noise=NOISE_OF_A_SAMPLE)
    node.until(lambda: len({fit.job_id for fit in node.core_messages.fits}) == CURVES)
    within = 0
    for number, job in enumerate(jobs, 1):
        first = next(fit for fit in node.core_messages.fits if fit.job_id == number)
        within += abs(first.cores - job.best_fit) <= 1
        assert first.steps <= 4
        assert job.at(first.cores) >= 0.95 * job.at(first.start_cores)
    assert within >= 0.95 * CURVES
    assert node.faults == []


@pytest.mark.sample(8)
@pytest.mark.parametrize("start", [1, 2, 20])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_eight_models_end_within_one_core_and_two_per_cent(tmp_path: Path, model: object, start: int) -> None:
    job = model.job()  # type: ignore[attr-defined]
    node = Node(tmp_path, seed=start)
    node.add(7, job.at, room=CoreRange(start, LIMIT))
    node.tuned(7)
    (fit,) = node.core_messages.fits
    assert abs(fit.cores - job.best_fit) <= 1
    assert fit.steps <= 4
    assert node.util(7) >= 0.98 * max(job.ratios)
