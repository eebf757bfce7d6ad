"""Which jobs fit into the memory of one GPU together, from which pairs were seen to fit: a size for each kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from slurm_soda.policies.sharing.kernels import Vector
from slurm_soda.policies.sharing.knowledge import Workload

SURE = math.log(9)
"""Jobs are kept apart where it is nine times as likely that they do not fit: whoever is kept apart never finds out."""


def verdict(excess: float) -> bool | None:
    """Whether two jobs fit whose sizes exceed the limit by so much; None where that is in doubt."""
    if excess > SURE:
        return False
    return True if excess <= 0 else None


@dataclass(frozen=True, slots=True)
class Sizes:
    """Two kinds fit where their sizes add up to ``limit`` at most, and surely do not beyond :data:`SURE` more.

    What sizes exceed the limit by is the logarithm of the odds that jobs do not fit.

    A batch that nobody measured has a size between those next to it.
    """

    kinds: tuple[Workload, ...]
    sizes: Vector
    limit: float

    def size(self, kind: Workload) -> float | None:
        """Of one kind on one of its GPUs; None for a model or a type of GPU that is not known."""
        same = sorted(
            (math.log2(max(known.batch, 1)), float(size))
            for known, size in zip(self.kinds, self.sizes, strict=True)
            if (known.model, known.gpu_type) == (kind.model, kind.gpu_type)
        )
        if not same:
            return None
        batches, sizes = zip(*same, strict=True)
        return float(np.interp(math.log2(max(kind.batch, 1)), batches, sizes))

    def fits(self, together: Sequence[Workload]) -> bool | None:
        """As :meth:`.view.Known.fits`; of three or more it knows only whether two of them exclude that."""
        sizes = [self.size(kind) for kind in together]
        known = sorted(size for size in sizes if size is not None)
        told = verdict(known[-1] + known[-2] - self.limit) if len(known) > 1 else True
        return None if told and (len(sizes) > 2 or len(known) < len(sizes)) else told
