"""``soda``: least expected service per expected completion first, shared where two get more done, preempted where that pays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.run_times.gittins_rank import find_ranks
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.sharing.soda.decision import SodaDecision
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, JobState

SODA = "soda"


@dataclass(frozen=True, slots=True)
class Soda:
    """See docs/policies/soda.md.

    Attributes:
        change_s: GPU time lost on each GPU when jobs change places.
        resolution: ranks of which the larger is less than so many times the smaller are equal, where they are learned.
    """

    change_s: float = 60.0
    resolution: float = 1.0

    @property
    def name(self) -> str:
        return SODA

    @property
    def jobs_per_gpu(self) -> int:
        """A host and a guest."""
        return 2

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        assert isinstance(snapshot, SharingSnapshot)
        return SodaDecision(self, snapshot, self._service(snapshot)).run()

    def _service(self, snapshot: ClusterSnapshot) -> FloatColumn:
        jobs, expected = snapshot.jobs, snapshot.run_times
        cost_s = np.where(jobs.state == JobState.RUNNING, 0.0, self.change_s)
        return jobs.gpus * find_ranks(expected, jobs.remaining_s, jobs.executed_s, cost_s)
