"""Jobs that may start behind an overdue one in what others leave: no two of them get the same GPUs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, SLURM, Mechanism
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.sharing.simulate_sharing import simulate_sharing
from slurm_soda.simulator.workload import Workload
from tests.simulator.engine.worlds import job


def waiting(
    submit_s: float, run_s: float, gpus: int, cpus: int, limit_s: float = math.inf, **more: Any
) -> dict[str, Any]:
    """One that shares with nobody and, unless it is said, cannot be preempted."""
    columns = {"preemptible": False, "user": "a", "model": "n", "shares": False, "time_limit_s": limit_s}
    return job(submit_s, run_s, gpus=gpus, cpus=cpus, **columns | more)


ROWS = [
    waiting(2.0, 24.5, 1, 2, user="b"),
    waiting(13.0, 92.0, 2, 2),
    waiting(9.25, 89.25, 1, 2, 178.5, preemptible=True),
    waiting(0.0, 66.75, 3, 6, 133.5, preemptible=True, model="m"),
    waiting(0.5, 58.25, 3, 3, 58.25, model="m"),
    waiting(0.25, 16.25, 4, 8, 32.5, nodes=2, gpus_per_node=2, user="b"),
    waiting(5.0, 19.5, 1, 2, 19.5, user="b"),
    waiting(4.25, 84.25, 3, 3, 168.5),
    waiting(13.5, 70.75, 2, 2, user="b", model="m"),
    waiting(0.0, 70.25, 1, 1, preemptible=True),
    waiting(5.75, 62.5, 2, 4, 62.5, preemptible=True, model="m"),
    waiting(4.75, 88.5, 4, 4, gpus_per_node=4, preemptible=True),
]
"""Some of them wait for longer than 30 s, and keep places from those behind them."""


@pytest.mark.parametrize("mechanism", [IDEAL, SLURM], ids=lambda mechanism: mechanism.name)
def test_two_jobs_behind_an_overdue_one_do_not_get_the_same_gpus(mechanism: Mechanism) -> None:
    outcome = simulate_sharing(
        Workload.build("overdue", ROWS),
        parse_cluster("3x4/8c"),
        make_policy("soda", {}),
        SharingRules(slowdown=1.2, mechanism=mechanism, knowledge="prior"),
        jobs_per_gpu=2,
        passing_limit_s=30.0,
    )
    assert not any(math.isnan(end_s) for end_s in outcome.end_s)
