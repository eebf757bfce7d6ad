"""``soda`` where every run time is known: then single jobs tell its order, and few questions need a whole decision.

The rank of a job whose run time is known is what is left of it, and what it costs to start it if it waits. So the service
of a running job falls, that of a waiting one stays, and as long as nothing happens nobody comes to be preempted who was
not. :mod:`.guest_places` says when a job joins a host; of a pair of which both run times are known that can be told by a
few numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from slurm_soda.policies.baselines.sort_key import SORT_KEYS, SortKeyRanking
from slurm_soda.policies.session.ranking import RankingRules, RankKey, SessionJob
from slurm_soda.policies.sharing.known_order import PossibleGuest, PossibleHost

_ROUNDING = 1e-6
"""Times that differ by less, relatively, may be the same in another sum."""


@dataclass(frozen=True, slots=True)
class KnownServiceRanking(SortKeyRanking):
    """GPUs x time left, with what a start costs; then submit time, job id. Jobs without GPUs come last, oldest first.

    A running job that ties with a waiting one ranks behind it, so that the policy is asked.
    """

    change_s: float = 0.0
    moves: bool = False

    @property
    def rules(self) -> RankingRules:
        price_s = self.change_s if self.moves else math.inf
        return replace(super(KnownServiceRanking, self).rules, least_move_price_s=price_s)

    def waiting(self, job: SessionJob) -> RankKey:
        if not job.gpus:
            return (True, 0.0, job.submit_s, job.job_id)
        return (False, job.gpus * (max(job.remaining_s, 1.0) + self.change_s), job.submit_s, job.job_id)

    def running(self, job: SessionJob, now_s: float) -> RankKey:
        done_s = max(now_s - job.resumes_s, 0.0) * job.speed_ratio
        return (False, job.gpus * max(job.remaining_s - done_s, 1.0), math.inf, job.job_id)


def rank_known_services(change_s: float, *, moves: bool) -> KnownServiceRanking:
    """The order of ``soda`` where ``change_s`` is what a start costs, and running jobs may move for others or not."""
    return KnownServiceRanking(SORT_KEYS["srsf"], by_gpus=True, min_run_s=0.0, change_s=change_s, moves=moves)


def may_gain(guest: PossibleGuest, host: PossibleHost, gpus: int, waiting: int, change_s: float) -> bool:
    """Whether all jobs together may end earlier if a job joins a host; where in doubt, they may.

    Who loses all that it did when its host ends gains only beside hosts that it does not outlive, or if it moves to GPUs of
    its own before. Of both the time together is known. As long as nothing happens the wait of the one and the work of the
    other fall, so a pair that gains nothing now gains nothing later either.

    Args:
        guest: who waits; ``wait_s`` may be too long, but not too short.
        host: who runs alone.
        gpus: of the cluster.
        waiting: jobs that wait for GPUs.
        change_s: what a preemption costs on each GPU.
    """
    terms = guest.terms
    if not terms.revokes or math.isfinite(terms.saves_every_s):
        return True
    xi, its = max(host.guest_xi, 1.0), max(host.host_xi, 1.0)
    start_s = min(terms.start_s, host.left_s)
    end_s = terms.start_s + xi * guest.work_s
    until_s = start_s + its * (host.left_s - start_s)
    rounding_s = _ROUNDING * max(end_s, guest.wait_s, 1.0)
    host_weight, behind = 1.0 + waiting * host.gpus / gpus, guest.behind * guest.gpus / gpus
    if guest.preemptible:
        # The true wait may be shorter; what moving gains is linear in it, and nothing without any.
        together_s = max(min(guest.wait_s, end_s, host.left_s) - terms.start_s, 0.0)
        before_s = together_s / xi - change_s
        if (1.0 + behind) * before_s > host_weight * together_s * (1.0 - 1.0 / its) - rounding_s:
            return True
    if end_s > until_s + rounding_s:
        return False
    gain_s = guest.wait_s + guest.work_s - end_s + behind * guest.work_s
    later_s = end_s - start_s - xi * guest.work_s / its
    return gain_s > host_weight * later_s - rounding_s
