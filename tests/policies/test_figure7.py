"""The worked example of Tiresias, Figure 7: three jobs, two GPUs, rounds of one unit of time."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import JobState
from tests.policies.cases import PAPER, cluster, mixed_nodes

JOBS = {1: (2, 2), 2: (1, 8), 3: (2, 6)}
"""GPUs and run time, by job id; all are submitted at 0."""


class Rounds:
    """Carries out what a policy plans, at once and free of charge, at the start of every round."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.ran = dict.fromkeys(JOBS, 0)
        self.first: dict[int, int] = {}
        self.running: dict[int, int] = {}
        """Start of the present run, by job id."""
        self.done: dict[int, int] = {}

    def row(self, job_id: int) -> dict[str, Any]:
        gpus, run_time = JOBS[job_id]
        ran = self.ran[job_id]
        row = {
            "job_id": job_id, "gpus": gpus, "executed_s": ran, "attained_gpu_s": gpus * ran, "preemptible": True,
            "remaining_s": run_time - ran, "first_start_s": self.first.get(job_id, float("nan")),
        }  # fmt: skip
        if job_id in self.running:
            row |= {"state": JobState.RUNNING, "start_s": self.running[job_id], "alloc": [(0, gpus, 1)]}
        return row

    def step(self, now: int) -> None:
        rows = [self.row(job_id) for job_id in JOBS if job_id not in self.done]
        plan = self.policy.decide(cluster(rows, mixed_nodes(2), float(now)))
        for item in plan.preempts:
            del self.running[item.job_id]
        for job_id in plan.order.tolist():
            if plan.notes.of(job_id).verdict in (JobVerdict.START, JobVerdict.WAIT_FOR_PREEMPTION):
                self.running[job_id] = now
                self.first.setdefault(job_id, now)
        assert sum(JOBS[job_id][0] for job_id in self.running) <= 2
        for job_id in list(self.running):
            self.ran[job_id] += 1
            if self.ran[job_id] == JOBS[job_id][1]:
                self.done[job_id] = now + 1
                del self.running[job_id]


# The figure's 2D-LAS is continuous: one queue for each unit of service. The figure's Gittins index is that of the
# distribution 4, 8, 12 (Appendix C, Figure 20), whose steps are the queues' limits.
CASES: list[tuple[str, dict[str, Any], dict[int, int], float]] = [
    ("srsf", {}, {1: 2, 2: 10, 3: 16}, 9.3),
    (
        "tiresias-gittins",
        {**PAPER, "thresholds_gpu_s": [4, 8], "samples_gpu_s": [4, 8, 12]},
        {1: 2, 2: 12, 3: 16},
        10.0,
    ),
    ("tiresias-las", {**PAPER, "thresholds_gpu_s": list(range(1, 13))}, {1: 5, 2: 14, 3: 16}, 11.7),
]


@pytest.mark.parametrize(("name", "parameters", "ends", "average"), CASES, ids=[case[0] for case in CASES])
def test_figure_7(name: str, parameters: dict[str, Any], ends: dict[int, int], average: float) -> None:
    rounds = Rounds(make_policy(name, {"min_run_s": 0, **parameters}))
    for now in range(16):
        rounds.step(now)
    assert rounds.done == ends
    assert round(sum(ends.values()) / len(ends), 1) == average
