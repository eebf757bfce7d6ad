"""A policy that shares GPUs and whose order single jobs tell, where run times are known."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from slurm_soda.policies.session.ranking import Ranking
from slurm_soda.policies.sharing.arithmetic.revocation import GuestTerms


class PossibleGuest(NamedTuple):
    """A job that may join another one instead of waiting."""

    work_s: float
    """Left, alone."""
    gpus: int
    wait_s: float
    """Until it would have GPUs of its own, at the most."""
    behind: int
    """Jobs that wait behind it."""
    terms: GuestTerms
    """On which it would be a guest."""
    preemptible: bool
    """Whether it may be preempted once it runs."""


class PossibleHost(NamedTuple):
    """A job that runs alone on its GPUs, and what it and a certain guest would do to each other."""

    left_s: float
    """Of its work, alone."""
    gpus: int
    guest_xi: float
    host_xi: float


@runtime_checkable
class KnownOrderPolicy(Protocol):
    """While run times are known, time limits bind nobody and no GPU is shared, its decisions are those of an order.

    Jobs start in this order where they fit. It preempts only jobs that rank behind one that waits, or that can move so that
    one fits, and by the passing of time alone neither that changes nor who may join whom.
    """

    @property
    def prices_preemption(self) -> bool:
        """Whether it depends on all jobs that wait who may be preempted for one of them."""
        ...

    def known_order(self) -> Ranking:
        """The order; each running job may rank worse than it says, by ties, but not better."""
        ...

    def may_gain_by_joining(self, guest: PossibleGuest, host: PossibleHost, gpus: int, waiting: int) -> bool:
        """Whether the policy might let a job join a host, on a cluster of so many GPUs for which so many jobs wait.

        It gains the more by that, the longer the host runs on, the fewer GPUs it has, and the less they slow each other.
        """
        ...
