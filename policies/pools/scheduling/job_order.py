"""Where each job stands in its pool, for the plan's order and for people."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.pools.scheduling.pool_requests import PoolRequest
from slurm_soda.policies.pools.scheduling.scheduler import PoolScheduler
from slurm_soda.policies.snapshot import FloatColumn, IntColumn, JobTable


class PoolJobOrder:
    """Shares of users after a decision, by row."""

    def __init__(self, asked: list[PoolRequest], jobs: JobTable, dispatch: PoolScheduler) -> None:
        """``asked``: the request of each row."""
        self._asked, self._jobs = asked, jobs
        pools = sorted({request.pool for request in asked})
        number = {pool: at for at, pool in enumerate(pools)}
        by_request = {request: number[request.pool] for request in set(asked)}
        self._pool = np.array([by_request[request] for request in asked], dtype=np.int64)
        self._turn = np.array([request.turn for request in asked], dtype=np.int64)
        self._queues = [dispatch.queues(pool) for pool in pools]

    def queue(self) -> IntColumn:
        """Number of each row's pool: 0 large, 1 small, 2 CPU."""
        return self._turn

    def score(self) -> FloatColumn:
        """Dominant share of each row's user in the row's pool."""
        pairs = zip(self._pool.tolist(), self._jobs.user.tolist(), strict=True)
        known: dict[tuple[int, int], float] = {}
        score = np.zeros(len(self._jobs))
        for row, pair in enumerate(pairs):
            if pair not in known:
                known[pair] = self._queues[pair[0]].share(pair[1])
            score[row] = known[pair]
        return score

    def in_turn(self, rows: IntColumn) -> IntColumn:
        """Waiting rows, which come by submission, as their pools would start them if all fitted: aborted ones first,
        then by the share that each one's user would have if its earlier jobs ran.
        """
        if not len(rows):
            return rows
        fresh = self._jobs.preemptions[rows] == 0
        return rows[np.lexsort((self._before(rows), fresh, self._pool[rows], self._turn[rows]))]

    def _before(self, rows: IntColumn) -> FloatColumn:
        user, pool = self._jobs.user[rows], self._pool[rows]
        group = (pool * (int(user.max()) + 2) + user).astype(np.int64)
        by_group = np.argsort(group, kind="stable")
        asked = np.array([self._asked[row].total for row in rows[by_group].tolist()], dtype=np.int64)
        sorted_group = group[by_group]
        through = np.cumsum(asked, axis=0) - asked
        first = np.searchsorted(sorted_group, sorted_group, side="left")
        starts = np.unique(first)
        at = by_group[starts]
        pools_and_users = zip(pool[at].tolist(), user[at].tolist(), strict=True)
        queues = [(self._queues[number], who) for number, who in pools_and_users]
        held = np.array([pool_queues.held(who) for pool_queues, who in queues])
        totals = np.array([pool_queues.totals for pool_queues, _ in queues])
        own = np.searchsorted(starts, first)
        share = np.max((held[own] + through - through[first]) / totals[own], axis=1)
        result = np.empty(len(rows))
        result[by_group] = share
        return result
