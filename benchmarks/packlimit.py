"""Where Tiresias' PACKLIMIT comes from: learned from jobs that ran on more nodes than they had to (Section 3.3.2)."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn

PAPER_PACKLIMIT = 0.378
"""What :func:`learn_packlimit` makes of Table 6: half way between GoogleNet and AlexNet."""
SLOWDOWN = 1.1
"""Run time when spread over run time when packed from which on a job counts as sensitive."""
SLOWED_WHEN_SPREAD = ("VGG19", "VGG16", "VGG11", "AlexNet")
"""The models whose speed depends on the locality of their workers (Section 2.2, Figure 3)."""


def learn_packlimit(skew: FloatColumn, slowdown: FloatColumn, *, slowdown_limit: float = SLOWDOWN) -> float:
    """PACKLIMIT from history: the limit of skew that tells jobs that suffer when spread from those that do not.

    The linear classifier of one feature with the fewest errors (Section 3.3.2): a job is taken to suffer if its skew is
    above the limit. Half way between two neighbouring skews of the history; of equally good limits the one with the
    widest gap, then the lowest. 0 if all jobs suffer or there is no history, 1 if none does. O(n log n).

    Args:
        skew: one value a job that ran on more nodes than it had to.
        slowdown: its run time there / its run time on few nodes.
        slowdown_limit: a job suffers from this slowdown on.
    """
    order = np.argsort(skew, kind="stable")
    skew, suffers = skew[order], (slowdown >= slowdown_limit)[order]
    # With the limit before the i-th job, those from i on are taken to suffer.
    errors = np.concatenate(([0], np.cumsum(suffers))) + np.concatenate((np.cumsum(~suffers[::-1])[::-1], [0]))
    edges = np.concatenate(([0.0], skew, [np.inf]))
    gap = np.diff(edges)
    possible = gap > 0
    possible[[0, -1]] = True
    fewest = int(errors[possible].min())
    best = np.flatnonzero(possible & (errors == fewest))
    inner = best[(best > 0) & (best < len(skew))]
    if not len(inner):
        return 0.0 if best[0] == 0 else 1.0
    at = int(inner[np.argmax(gap[inner])])
    return float((edges[at] + edges[at + 1]) / 2)
