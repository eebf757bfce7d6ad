"""How long a request is expected to wait until enough nodes have room for it, as those end who hold places."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slurm_soda.policies.engine.allocations import find_allocation_entries, split_memory_mib
from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.even_shares import flag_fitting
from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.sharing.soda.expected_waits import DRAWS, draw_values
from slurm_soda.policies.sharing.soda.remaining_work import expect_remaining_s
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn, JobState, JobTable


class HeldPlaces(NamedTuple):
    """What jobs hold: an entry for each of their nodes."""

    row: IntColumn
    node: IntColumn
    amounts: IntColumn
    """GPUs, CPUs and memory in MiB; shape (entries, 3)."""

    @classmethod
    def of_rows(cls, jobs: JobTable, rows: IntColumn) -> HeldPlaces:
        """Of running jobs."""
        owner, entry = find_allocation_entries(jobs, rows)
        memory_mib = split_memory_mib(jobs, owner, entry)
        amounts = np.stack((jobs.alloc_gpus[entry], jobs.alloc_cpus[entry], memory_mib), axis=1)
        return cls(owner, jobs.alloc_node[entry], amounts)

    def sum_on(self, nodes: int, entries: IntColumn) -> IntColumn:
        """What some of these entries come to on each of so many nodes: GPUs, CPUs and memory in MiB; shape (nodes, 3)."""
        found = np.zeros((nodes, 3), dtype=np.int64)
        np.add.at(found, self.node[entries], self.amounts[entries])
        return found


class FittingWaits:
    """Of one decision, in which nobody else is given places meanwhile."""

    def __init__(self, placing: PlacementPass, makes_way: BoolColumn | None = None) -> None:
        """``placing``: the places so far; ``makes_way``: by row, who could leave at once; left out, nobody."""
        self._placing = placing
        self._makes_way = np.zeros(len(placing.verdict), dtype=np.bool_) if makes_way is None else makes_way
        self._held: HeldPlaces | None = None
        self._end_s: list[FloatColumn] = []

    def look_anew(self) -> None:
        """Others have places now."""
        self._held = None

    def expect_s(self, shape: RequestShape) -> float:
        """In how many seconds a request would fit: the mean of a few draws of the run times.

        O(draws x nodes log entries), and the first time O(entries log entries).
        """
        if self._held is None:
            self._held = self._list_held()
            self._end_s = self._draw_ends_s(self._held)
        held = self._held
        if not len(held.row):
            return 0.0
        return float(np.mean([self._find_s(shape, held, end_s) for end_s in self._end_s]))

    def _find_s(self, shape: RequestShape, held: HeldPlaces, end_s: FloatColumn) -> float:
        free = self._placing.free_capacity.soon
        order = np.argsort(end_s, kind="stable")
        low, high = 1, len(order)
        while low < high:
            middle = (low + high) // 2
            fits = flag_fitting(free, shape, held.sum_on(len(free.gpus), order[:middle]))
            if np.count_nonzero(fits) >= shape.nodes:
                high = middle
            else:
                low = middle + 1
        return float(end_s[order[low - 1]])

    def _list_held(self) -> HeldPlaces:
        """What jobs hold that go on running, and what those were given who start, some of them once others have left."""
        placing, jobs = self._placing, self._placing.snapshot.jobs
        stays = np.isin(placing.verdict, (JobVerdict.RUN, JobVerdict.PROTECTED)) & (jobs.state == JobState.RUNNING)
        claims = ((row, claim) for row, claim in placing.claims.items() if row not in placing.unheld)
        given = [(row, *piece) for row, claim in claims for piece in claim.pieces]
        own = HeldPlaces.of_rows(jobs, np.flatnonzero(stays))
        claimed = np.array(given, dtype=np.int64).reshape(-1, 5)
        both = zip(own, (claimed[:, 0], claimed[:, 1], claimed[:, 2:]), strict=True)
        return HeldPlaces(*(np.concatenate(one) for one in both))

    def _draw_ends_s(self, held: HeldPlaces) -> list[FloatColumn]:
        """Seconds until each entry is free, a few equally likely times; now where nobody knows."""
        jobs, now_s = self._placing.snapshot.jobs, self._placing.snapshot.now_s
        rows, at = np.unique(held.row, return_inverse=True)
        left_s = expect_remaining_s(self._placing.snapshot, rows)
        stays = np.isin(self._placing.verdict[rows], (JobVerdict.RUN, JobVerdict.PROTECTED))
        limit_s = jobs.time_limit_s[rows] - np.where(stays, now_s - jobs.start_s[rows], 0.0)
        left_s = np.where(np.isnan(left_s), 0.0, np.fmin(left_s, np.maximum(limit_s, 0.0)[:, None]))
        left_s[self._makes_way[rows]] = 0.0
        draws = DRAWS if left_s.shape[1] > 1 else 1
        return [np.array(draw_values(left_s, draw, 0))[at] for draw in range(draws)]
