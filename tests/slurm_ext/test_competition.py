"""Which waiting jobs compete: requests that fit nowhere where a smaller one does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurm_soda.policies.engine.demand import group_snapshot_requests
from slurm_soda.slurm_ext.write.competition import find_larger
from tests.policies.cases import cluster, mixed_nodes, waiting

NODES = replace(mixed_nodes(4, 4), gpu_type=np.array([0, 1]), gpu_types=("a100", "v100"))


@pytest.mark.parametrize("gpus_per_node", [0, 4], ids=["any split", "on one node"])
def test_a_larger_request_is_one_of_the_same_type(gpus_per_node: int) -> None:
    """Where one A100 is missing, four V100 may be free, and four of any type as well."""
    types = {1: "a100", 2: "a100", 3: "v100", 4: ""}
    jobs = [
        waiting(job_id, 1 if job_id == 1 else 4, gpu_type=gpu_type, gpus_per_node=0 if job_id == 1 else gpus_per_node)
        for job_id, gpu_type in types.items()
    ]
    demand = group_snapshot_requests(cluster(jobs, NODES))
    job_of = {size: job_id for job_id, size in zip(types, demand.code.tolist(), strict=True)}
    larger = find_larger(sorted(job_of), demand.shapes)
    found = {job_of[size]: {job_of[other] for other in others} for size, others in larger.items()}
    assert found == {1: {1, 2}, 2: {2}, 3: {3}, 4: {2, 3, 4}}
