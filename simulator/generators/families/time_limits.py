"""Time limits as users give them.

Users choose among a few round values (20 values make up nine of ten estimates: Tsafrir, Etsion, Feitelson, "Modeling User
Runtime Estimates", JSSPP 2005), the longest value that is allowed is always popular, and limits are no multiples of what
the job at hand turns out to need (Tsafrir, "Using Inaccurate Estimates Accurately", JSSPP 2010). So a limit belongs to a
script, is long enough for all its runs, and most runs end long before it.
"""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn, IntColumn

ROUND_S = tuple(
    60.0 * minutes for minutes in (5, 10, 15, 30, 60, 120, 180, 240, 360, 480, 720, 1_440, 2_880, 4_320, 7_200, 10_080)
)
"""Five minutes to a week."""
ALWAYS_LONGEST = 0.25
"""Our choice: the part of the users who give the longest limit for every job."""
MEAN_PADDING = 1.0
"""Our choice: others add this times a script's longest run in the mean, by an exponential distribution."""


def draw_time_limits(
    rng: np.random.Generator, user: IntColumn, script: IntColumn, run_s: FloatColumn, longest_s: float
) -> FloatColumn:
    """The limit of each job, at least its run time.

    Args:
        rng: what is drawn from.
        user: of each job, from 0.
        script: of each job; one user's only.
        run_s: of each job, at most ``longest_s``.
        longest_s: the site's longest limit.
    """
    number, place = np.unique(script, return_inverse=True)
    longest_run_s = np.zeros(len(number))
    np.maximum.at(longest_run_s, place, run_s)
    wished_s = longest_run_s * (1.0 + rng.exponential(MEAN_PADDING, len(number)))
    values_s = np.array([*(value for value in ROUND_S if value < longest_s), longest_s])
    rounded_s = values_s[np.minimum(np.searchsorted(values_s, wished_s), len(values_s) - 1)]
    lazy = rng.random(int(user.max()) + 1) < ALWAYS_LONGEST
    return np.where(lazy[user], longest_s, rounded_s[place])
