"""Rankings of policies without preemption: a waiting job's key is all there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slurm_soda.policies.session.ranking import INFINITY, RankingRules, RankKey, SessionJob


@dataclass(frozen=True, slots=True)
class StaticRanking:
    """Jobs in the order of one key that never changes; running jobs run on."""

    key: Callable[[SessionJob], RankKey]
    rules: RankingRules

    def waiting(self, job: SessionJob) -> RankKey:
        return self.key(job)

    def running(self, job: SessionJob, now_s: float) -> RankKey:
        return self.key(job)

    def group(self, job: SessionJob) -> int:
        return 0

    def frozen(self, job: SessionJob) -> RankKey:
        return self.key(job)

    def changes_s(self, job: SessionJob) -> float:
        return INFINITY

    def change(self, job: SessionJob) -> None:
        """Never called: :meth:`changes_s` is infinite."""
