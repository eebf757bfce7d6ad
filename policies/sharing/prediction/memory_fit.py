"""Which jobs fit into the memory of one GPU together, from which pairs were seen to fit: a size for each kind."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.prediction.covariance_kernels import Vector

SURE_LOG_ODDS = math.log(9)
"""Jobs are kept apart where it is nine times as likely that they do not fit: whoever is kept apart never finds out."""


class SeenPairFit(NamedTuple):
    """Two kinds of jobs on one GPU, and whether they fit."""

    one: JobKind
    other: JobKind
    fits: bool


ModelPair = frozenset[tuple[str, str]]
"""Two models, or one beside itself, each with its type of GPU."""


def model_pair_of(one: JobKind, other: JobKind) -> ModelPair:
    """What pairs have in common that differ in batches only."""
    return frozenset(((one.model, one.gpu_type), (other.model, other.gpu_type)))


def group_by_models(seen: Iterable[SeenPairFit]) -> Mapping[ModelPair, Sequence[SeenPairFit]]:
    """Pairs that can tell something of each other, in the order given."""
    found: dict[ModelPair, list[SeenPairFit]] = defaultdict(list)
    for known in seen:
        found[model_pair_of(known.one, known.other)].append(known)
    return dict(found)


class OtherBatchFits(NamedTuple):
    """What is known of the same two models with other batches. Memory only grows with them."""

    fits: bool = False
    """A pair at least as large fits."""
    apart: bool = False
    """A pair at most as large does not."""
    between: bool = False
    """A smaller pair fits, and a larger one does not."""


def compare_other_batches(one: JobKind, other: JobKind, seen: Iterable[SeenPairFit]) -> OtherBatchFits:
    """What was seen of two models, told for these batches of theirs; the very same batches count as well.

    A batch of 0, which nobody told, is neither more nor less than another.
    """
    fits = apart = smaller_fits = larger_apart = False
    for known in seen:
        for mine, its in ((known.one, known.other), (known.other, known.one)):
            if not (_same_model(mine, one) and _same_model(its, other)):
                continue
            larger = _covers(mine, one) and _covers(its, other)
            smaller = _covers(one, mine) and _covers(other, its)
            fits |= known.fits and larger
            smaller_fits |= known.fits and smaller
            apart |= not known.fits and smaller
            larger_apart |= not known.fits and larger
    return OtherBatchFits(fits, apart, smaller_fits and larger_apart)


def _same_model(one: JobKind, other: JobKind) -> bool:
    return (one.model, one.gpu_type) == (other.model, other.gpu_type)


def _covers(one: JobKind, other: JobKind) -> bool:
    """Whether the first is known to take as much memory as the second of the same model."""
    return one.batch == other.batch or one.batch > other.batch > 0


def judge_fit(excess: float | None, batches: OtherBatchFits = OtherBatchFits()) -> bool | None:  # noqa: B008 - a constant
    """Whether two jobs fit whose sizes exceed the limit by so much (None: nobody knows); None where that is in doubt.

    What other batches of the same models tell goes before sizes, which speak of one kind at a time; where they contradict
    each other, or only leave the border open, nobody is kept apart.
    """
    if batches.fits or batches.apart:
        return None if batches.fits and batches.apart else batches.fits
    if excess is None:
        return None
    if excess > SURE_LOG_ODDS:
        return None if batches.between else False
    return True if excess <= 0 else None


@dataclass(frozen=True, slots=True)
class MemorySizes:
    """Two kinds fit where their sizes add up to ``limit`` at most, and surely do not beyond :data:`SURE_LOG_ODDS` more.

    What sizes exceed the limit by is the logarithm of the odds that jobs do not fit. ``seen`` is what they were learned
    from, and has the first word (:func:`judge_fit`).

    A batch that nobody measured has a size between those next to it. Answers are kept: policies ask again and again.
    """

    kinds: tuple[JobKind, ...]
    sizes: Vector
    limit: float
    seen: tuple[SeenPairFit, ...] = ()
    _by_models: Mapping[ModelPair, Sequence[SeenPairFit]] = field(init=False, repr=False, compare=False)
    _told: dict[tuple[JobKind, JobKind], bool | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _size_of: dict[JobKind, float | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_models", group_by_models(self.seen))

    def size(self, kind: JobKind) -> float | None:
        """Of one kind on one of its GPUs; None for a model or a type of GPU that is not known."""
        if kind not in self._size_of:
            self._size_of[kind] = self._between(kind)
        return self._size_of[kind]

    def _between(self, kind: JobKind) -> float | None:
        same = sorted(
            (math.log2(max(known.batch, 1)), float(size))
            for known, size in zip(self.kinds, self.sizes, strict=True)
            if (known.model, known.gpu_type) == (kind.model, kind.gpu_type)
        )
        if not same:
            return None
        batches, sizes = zip(*same, strict=True)
        return float(np.interp(math.log2(max(kind.batch, 1)), batches, sizes))

    def fits(self, together: Sequence[JobKind]) -> bool | None:
        """As :meth:`.KindEstimates.fits`; of three or more it knows only whether two of them exclude that."""
        told = [self._pair(one, other) for one, other in combinations(together, 2)]
        if False in told:
            return False
        return None if None in told or len(together) > 2 else True

    def _pair(self, one: JobKind, other: JobKind) -> bool | None:
        if (one, other) not in self._told:
            self._told[one, other] = self._think(one, other)
        return self._told[one, other]

    def _think(self, one: JobKind, other: JobKind) -> bool | None:
        sizes = self.size(one), self.size(other)
        excess = None if sizes[0] is None or sizes[1] is None else sizes[0] + sizes[1] - self.limit
        return judge_fit(excess, compare_other_batches(one, other, self._by_models.get(model_pair_of(one, other), ())))
