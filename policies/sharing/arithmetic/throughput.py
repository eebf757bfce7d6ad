"""How long an iteration of training takes, by batch and accumulation steps (SJF-BSBF, Section IV-A)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from slurm_soda.policies.errors import PolicyError

MOST_OVERLAP = 10.0
"""Pollux, where the degree of overlap comes from, bounds it by 10; beyond that it is a maximum to 1 %."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Iteration time of one job on a given number of GPUs of a given type.

    Attributes:
        fixed_s: a of t_comp(B) = a + b x B (Equation 3).
        per_sample_s: b; B is the batch of one GPU.
        comm_s: t_comm, the exchange of gradients once an iteration; 0 on one GPU.
        overlap: d of Equation 7, from 1 (computation and exchange one after the other) to 10 (the longer one counts).

    Raises:
        PolicyError: a time is negative or not finite, or the overlap out of range.
    """

    fixed_s: float
    per_sample_s: float
    comm_s: float = 0.0
    overlap: float = 1.0

    def __post_init__(self) -> None:
        _need("a time of an iteration", self.fixed_s, self.per_sample_s, self.comm_s)
        if not 1.0 <= self.overlap <= MOST_OVERLAP:
            raise PolicyError(f"the degree of overlap must be from 1 to {MOST_OVERLAP:g}, not {self.overlap!r}")

    def comp_s(self, batch: float) -> float:
        """Forward and backward pass of so many samples."""
        return self.fixed_s + self.per_sample_s * batch

    def iteration_s(self, batch: int, sub_batch: int | None = None) -> float:
        """One iteration of ``batch`` samples a GPU, ``sub_batch`` of them at a time (all at once if None).

        Equation 7 where ``sub_batch`` divides ``batch``. Where it does not, the last pass takes what is left, so that
        the user's batch stays as it is; it is this last pass that overlaps with the exchange.

        Raises:
            PolicyError: a batch without samples, or a sub-batch larger than the batch.
        """
        steps, last = accumulation_passes(batch, batch if sub_batch is None else sub_batch)
        before = (steps - 1) * self.comp_s(batch if sub_batch is None else sub_batch)
        return before + overlap_s(self.comp_s(last), self.comm_s, self.overlap)


def accumulation_passes(batch: int, sub_batch: int) -> tuple[int, int]:
    """Accumulation steps that keep the batch, and the samples of the last one."""
    if not 1 <= sub_batch <= batch:
        raise PolicyError(f"a sub-batch must have 1 to {batch} samples (the batch), not {sub_batch!r}")
    steps = -(-batch // sub_batch)
    return steps, batch - (steps - 1) * sub_batch


def overlap_s(comp_s: float, comm_s: float, overlap: float) -> float:
    """(comp^d + comm^d)^(1/d), scaled by the longer one so that nothing overflows."""
    longer, shorter = max(comp_s, comm_s), min(comp_s, comm_s)
    if shorter == 0.0:
        return longer
    return float(longer * (1.0 + (shorter / longer) ** overlap) ** (1.0 / overlap))


def _need(what: str, *times_s: float) -> None:
    for time_s in times_s:
        if not 0.0 <= time_s < math.inf:
            raise PolicyError(f"{what} must be 0 s or more and finite, not {time_s!r}")
