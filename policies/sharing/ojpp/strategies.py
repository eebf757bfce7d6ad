"""The strategies of OJPP: which bounds count, and in which order jobs are placed (Table 4)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.arithmetic.memory_demand import gregariousness
from slurm_soda.policies.sharing.ojpp.packing import PackingJobs, PackingRules
from slurm_soda.policies.snapshot import IntColumn

STRATEGIES = ("best-fit", "i-greedy", "b-greedy", "c-greedy", "greedy", "ojpp")


@dataclass(frozen=True, slots=True)
class Strategy:
    """One line of Table 4: which bounds count, and whether jobs come by collision or by size."""

    rules: PackingRules
    by_gregariousness: bool = False

    def order(self, jobs: PackingJobs) -> IntColumn:
        """The order in which jobs are placed, O(n log n)."""
        size = (-(jobs.base + jobs.extra), -jobs.compute)
        if not self.by_gregariousness:
            return np.lexsort(size)
        # Ascending; the paper sorts again in every round, which never changes the order (see docs/policies/sharing.md).
        return np.lexsort((*size, gregariousness(jobs.probability)))


def find_strategy(name: str, bounds: PackingRules) -> Strategy:
    """A strategy of the paper by its name in Table 4, with those of the bounds that it heeds.

    Raises:
        PolicyError: there is none of this name.
    """
    collision, interference, balance, none = bounds.collision, bounds.interference, bounds.balance, math.inf
    heeded = {
        "best-fit": (none, none, none),
        "i-greedy": (none, interference, none),
        "b-greedy": (none, none, balance),
        "c-greedy": (collision, none, none),
        "greedy": (collision, interference, balance),
        "ojpp": (collision, interference, balance),
    }
    if name not in heeded:
        raise PolicyError(f"there is no strategy {name!r}: choose one of {', '.join(STRATEGIES)}")
    full = name in {"greedy", "ojpp"}
    rules = PackingRules(*heeded[name], least_slowdown_first=full, apart=bounds.apart, most=bounds.most)
    return Strategy(rules, by_gregariousness=name == "ojpp")
