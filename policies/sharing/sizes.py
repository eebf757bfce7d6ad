"""Which jobs fit into the memory of one GPU together, from which pairs were seen to fit: a size for each kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from slurm_soda.policies.sharing.kernels import Vector
from slurm_soda.policies.sharing.knowledge import Workload


@dataclass(frozen=True, slots=True)
class Sizes:
    """Two kinds fit where their sizes add up to ``limit`` at most; sizes mean nothing else.

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
        if len(known) > 1 and known[-1] + known[-2] > self.limit:
            return False
        return None if len(sizes) > 2 or len(known) < len(sizes) else True
