"""``soda``: least expected service first, preempted where that pays, shared where all jobs together end earlier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.session.ranking import Ranking
from slurm_soda.policies.sharing.known_order import PossibleGuest, PossibleHost
from slurm_soda.policies.sharing.plan import mark_unshared
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.sharing.soda.expected_service import ServiceRule
from slurm_soda.policies.sharing.soda.guest_places import JOBS_PER_GPU
from slurm_soda.policies.sharing.soda.known_run_times import may_gain, rank_known_services
from slurm_soda.policies.sharing.soda.ordered_places import OrderedPlaces
from slurm_soda.policies.sharing.soda.sharing_round import SharingRound
from slurm_soda.policies.snapshot import ClusterSnapshot

SODA = "soda"


@dataclass(frozen=True, slots=True)
class Soda:
    """At each instant it starts, preempts and joins jobs as far as that makes the sum of completion times smaller, as
    expected by what is known of run times. docs/policies/soda.md derives it.

    On a snapshot that does not know single GPUs nobody joins anybody, and its facts say so (``sharing_known`` is 0).

    Attributes:
        change_s: GPU time lost on each GPU when a job is preempted: to save its state, to start it again, and the work
            since it was last saved; as far as the snapshot has learned nothing of jobs like it.
        resolution: a running job gives way only to jobs whose learned rank is so many times smaller: predictions are off by
            about that factor, so smaller differences say nothing, and jobs that are alike would take turns. Where run times
            are known it has no effect.
        moves: whether running jobs move to other nodes so that a waiting one fits.
    """

    change_s: float = 60.0
    resolution: float = 1.75
    moves: bool = True

    @property
    def name(self) -> str:
        return SODA

    @property
    def jobs_per_gpu(self) -> int:
        return JOBS_PER_GPU

    @property
    def shares_where_possible(self) -> Literal[True]:
        """Where nothing is known of pairs it orders and preempts all the same."""
        return True

    @property
    def cpu_jobs_last(self) -> Literal[True]:
        """They take the cores that the others leave."""
        return True

    @property
    def goes_by_spread(self) -> Literal[True]:
        """It places jobs by how much slower they run on more nodes than they need, where that was measured."""
        return True

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """O(n log n) in jobs, and O(log m) in nodes for a start or a preemption; then O(GPUs) once, and O(hosts) in numpy
        for a job that looks for hosts.
        """
        rule = ServiceRule(self.change_s, self.resolution)
        if isinstance(snapshot, SharingSnapshot):
            return SharingRound(snapshot, rule, moves=self.moves).run(SODA)
        places = OrderedPlaces(snapshot, rule, moves=self.moves)
        preempts = places.place_gpu_jobs()
        places.place_cpu_jobs()
        return mark_unshared(places.plan(SODA, preempts), SODA)

    @property
    def prices_preemption(self) -> bool:
        """Where it costs something, that is weighed against what all gain."""
        return self.change_s > 0

    def known_order(self) -> Ranking:
        """Expected service where it is known."""
        return rank_known_services(self.change_s, moves=self.moves)

    def may_gain_by_joining(self, guest: PossibleGuest, host: PossibleHost, gpus: int, waiting: int) -> bool:
        """See :func:`.may_gain`."""
        return may_gain(guest, host, gpus, waiting, self.change_s)
