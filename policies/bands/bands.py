"""From the parts of Slurm's priority to the band of each job."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, IntColumn

OFF, BY_QOS, BY_FAIR_SHARE = "off", "qos", "fairshare"
BANDS = (OFF, BY_QOS, BY_FAIR_SHARE)
"""``off``: one band; ``qos``: one for each PriorityTier and each priority by QOS and partition; ``fairshare``: these divided
further by fair share and age."""
FAIR_LEVELS = 3
"""How many levels of fair share and age there are (docs/policies/bands.md says why)."""


_NO_TIER = 2**40
"""Beyond each PriorityTier."""


@dataclass(frozen=True, slots=True)
class PriorityParts:
    """Parts of Slurm's priority without SiteFactor, job size, TRES and nice, one value a job; NaN where it is not known."""

    tier: IntColumn
    """PriorityTier of the job's partition; of several the largest."""
    granted: FloatColumn
    """Points of QOS, partition and association: what the site's admins gave."""
    earned: FloatColumn
    """Points of fair share and age: what waiting gives and usage takes."""
    most_earned: float
    """Points that fair share and age can give: the sum of their weights."""


def assign_bands(parts: PriorityParts, bands: str, runs: BoolColumn) -> IntColumn:
    """The band of each job, 0 first; empty where there is only one.

    A band is a PriorityTier and, inside it, a sum of points: those that were granted, to the point, and those that were
    earned, rounded down to :data:`FAIR_LEVELS` levels. So a job of a better band has the larger priority in Slurm, as far as
    size, TRES and nice do not decide, and QOS outweighs fair share exactly as far as the site's weights say so.

    A waiting job whose priority Slurm has not computed is in the last band, a running one (``runs``) whose parts nobody
    remembers in the first: it is not preempted for a reason that nobody knows. Where no waiting job's are known there are
    no bands.
    """
    if bands == OFF or np.isnan(parts.granted[~runs]).all():
        return np.zeros(0, dtype=np.int64)
    points = parts.granted
    if bands == BY_FAIR_SHARE and parts.most_earned > 0.0:
        step = parts.most_earned / FAIR_LEVELS
        # The least bit more, since thirds of a sum come out a bit too small.
        points = points + step * np.minimum(np.floor(parts.earned / step + 1e-9), FAIR_LEVELS - 1)
    unknown = np.isnan(points)
    points = np.where(unknown, np.where(runs, np.inf, -np.inf), np.round(points, 3))
    tier = np.where(unknown, np.where(runs, _NO_TIER, -_NO_TIER), parts.tier)
    best_first = np.lexsort((-points, -tier))
    points, tier = points[best_first], tier[best_first]
    lower = (points[1:] != points[:-1]) | (tier[1:] != tier[:-1])
    if not lower.any():
        return np.zeros(0, dtype=np.int64)
    band = np.empty(len(points), dtype=np.int64)
    band[best_first] = np.concatenate(([0], np.cumsum(lower)))
    return band


def find_tiers(snapshot: ClusterSnapshot, *, of_base: bool = False) -> IntColumn:
    """PriorityTier of each job's partition, the largest one of a list; Slurm's default, 1, where it was not read.

    With ``of_base`` a pool's partition counts as the one that it is a part of.
    """
    base = {part.name: part.base for part in snapshot.pools.table} if of_base else {}
    names = (*snapshot.jobs.partitions, "")
    tiers = [max(snapshot.tiers.get(base.get(part, part), 1) for part in name.split(",")) for name in names]
    return np.array(tiers, dtype=np.int64)[snapshot.jobs.partition]
