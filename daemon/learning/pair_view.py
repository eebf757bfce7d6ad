"""What is known of two kinds of jobs that would meet on one GPU: what the arithmetic of a pair is made of.

Plain enough to travel from sodad to whoever asks (:mod:`~slurm_soda.daemon.api.view_json`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.arithmetic.sharing_decision import Footprint, list_sub_batches
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.sharing.pair_knowledge.kind_profiles import KindProfiles


@dataclass(frozen=True, slots=True)
class EstimateView:
    """An :class:`Estimate` that can travel: no error (``None``) where it is not known, the source by its name.

    Raises:
        PolicyError: it is no estimate.
    """

    value: float
    error: float | None
    source: str

    def __post_init__(self) -> None:
        self.estimate()

    @classmethod
    def of(cls, estimate: Estimate) -> EstimateView:
        """The same as an estimate."""
        error = estimate.error if math.isfinite(estimate.error) else None
        return cls(estimate.value, error, estimate.source.name.lower())

    def estimate(self) -> Estimate:
        """As policies take it."""
        if self.source.upper() not in Source.__members__:
            raise PolicyError(f"there is no source {self.source!r}")
        return Estimate(self.value, math.inf if self.error is None else self.error, Source[self.source.upper()])


@dataclass(frozen=True, slots=True)
class KindProfileView:
    """What is known of one kind alone."""

    iteration_s: EstimateView | None
    memory_mib: EstimateView | None
    throughput: Throughput | None
    footprint: Footprint | None


@dataclass(frozen=True, slots=True)
class PairSlowdownsView:
    """What both do to each other while the new job runs with one sub-batch."""

    sub_batch: int
    """Of the new job; 0: its batch is not known."""
    new_xi: EstimateView
    """How many times as long the new job's iterations take."""
    running_xi: EstimateView
    fits: bool | None
    """Into the memory of one GPU, together; ``None``: nobody knows."""
    fits_source: str
    """Empty where nobody knows."""


@dataclass(frozen=True, slots=True)
class PairView:
    """All of it, from one reading of the store.

    Raises:
        PolicyError: it has no sub-batch.
    """

    new: KindProfileView
    running: KindProfileView
    device_mib: EstimateView | None
    """Memory of a GPU of their type."""
    slowdowns: Sequence[PairSlowdownsView]
    """By sub-batch of the new job, its whole batch first."""

    def __post_init__(self) -> None:
        if not self.slowdowns:
            raise PolicyError("what is known of a pair must be of one sub-batch at least")


def pair_view(known: KindProfiles, new: JobKind, running: JobKind, owners: tuple[str, str] = ("", "")) -> PairView:
    """What is known of a new job's kind with a running one's, on GPUs of the new one's type; of each kind alone, what its
    owner's own jobs showed goes before others'.
    """
    device = known.device_mib(new.gpu_type)
    sizes = list_sub_batches(new.batch) if new.batch else (0,)
    return PairView(
        new=_kind_view(known.of_owner(owners[0]), new),
        running=_kind_view(known.of_owner(owners[1]), running),
        device_mib=None if device is None else EstimateView.of(device),
        slowdowns=[_slowdowns_view(known, replace(new, batch=size), running) for size in sizes],
    )


def _kind_view(known: KindProfiles, kind: JobKind) -> KindProfileView:
    iteration_s, memory_mib = known.iteration_s(kind), known.estimate("memory_mib", kind)
    return KindProfileView(
        iteration_s=None if iteration_s is None else EstimateView.of(iteration_s),
        memory_mib=None if memory_mib is None else EstimateView.of(memory_mib),
        throughput=known.throughput(kind),
        footprint=known.footprint(kind),
    )


def _slowdowns_view(known: KindProfiles, new: JobKind, running: JobKind) -> PairSlowdownsView:
    fits = known.fits_by((new, running))
    return PairSlowdownsView(
        sub_batch=new.batch,
        new_xi=EstimateView.of(known.xi(new, (running,))),
        running_xi=EstimateView.of(known.xi(running, (new,))),
        fits=None if fits is None else fits[0],
        fits_source="" if fits is None else fits[1].name.lower(),
    )
