"""Queues whose order is checked: drawn, and by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.snapshot import ClusterSnapshot, NodeTable
from slurm_soda.slurm_ext.write.lifts import WaitingQueue
from slurm_soda.slurm_ext.write.site_factors import compute_site_factors

Pair = tuple[int, int]


def ids(*job_ids: int) -> Any:
    return np.array(job_ids, dtype=np.int64)


@dataclass(frozen=True)
class Case:
    """A queue with jobs by id: natural priority, present SiteFactor, GPUs."""

    rows: dict[int, tuple[int, int, int]]
    leading: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    never: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    unranked: tuple[int, ...] = ()
    overdue: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    """Of those that lead and those that wait, one after the other."""
    nodes: int = 100
    depth: int = 1000
    partitions: tuple[tuple[int, str], ...] = ()
    requeued: tuple[int, ...] = ()
    """In the order in which they were; all others were submitted before, in one second."""
    by_id: tuple[int, ...] = ()
    """Jobs in the order of their ids as Slurm compares them, which differs where there are tasks of arrays; empty: by id."""

    @property
    def snapshot(self) -> ClusterSnapshot:
        """Nodes of eight GPUs; every job on one node."""
        names = dict(self.partitions)
        jobs = build_job_table(
            [
                {
                    "job_id": i,
                    "priority": max(1, n + f),
                    "site_factor": f,
                    "gpus": g,
                    "gpus_per_node": g,
                    "partition": names.get(i, "main"),
                    "waited_s": 9.0 * (i in self.overdue),
                    "queued_s": self.queued_s(i),
                    "id_place": self.tie(i)[1],
                    "overdue": i in self.overdue and not self.ranks,
                }
                for i, (n, f, g) in self.rows.items()
            ]
        )
        count = len(jobs.partitions)
        return ClusterSnapshot(0.0, jobs, NodeTable.uniform(self.nodes, 8, cpus=64, partitions=count), jobs.partitions)

    @property
    def queue(self) -> WaitingQueue:
        return WaitingQueue(
            ids(*self.leading),
            ids(*self.waiting),
            ids(*self.unranked),
            ids(*self.never),
            ids(*self.others),
            ids(*self.ranks),
        )

    def changes(self) -> dict[int, int]:
        """Jobs without ranks skip nobody; else they skip those that are not overdue."""
        limit_s = 5.0 if self.ranks else math.inf
        return compute_site_factors(self.queue, self.snapshot, depth=self.depth, skipping_limit_s=limit_s)

    def after(self) -> Case:
        """As Slurm shows it once the changes are made."""
        changes = self.changes()
        return replace(self, rows={i: (n, changes.get(i, f), g) for i, (n, f, g) in self.rows.items()})

    def natural(self) -> Case:
        return replace(self, rows={i: (n, 0, g) for i, (n, _, g) in self.rows.items()})

    def factors(self) -> dict[int, int]:
        return {i: f for i, (_, f, _) in self.rows.items()}

    def queued_s(self, job_id: int) -> float:
        """Slurm's submit time, which a requeue moves."""
        return 1.0 + self.requeued.index(job_id) if job_id in self.requeued else 0.0

    def key(self, job_id: int) -> tuple[int, float, int]:
        """Sorts as Slurm tries jobs."""
        natural, factor, _ = self.rows[job_id]
        return (-natural - factor, *self.tie(job_id))

    def tie(self, job_id: int) -> tuple[float, int]:
        """Sorts jobs of one priority."""
        return (self.queued_s(job_id), self.by_id.index(job_id) if self.by_id else job_id)

    def order(self) -> list[int]:
        return sorted(self.rows, key=self.key)

    def pairs(self) -> list[Pair]:
        """Who must stand before whom, in the words of the documentation."""
        plan = [*self.leading, *self.waiting, *self.never]
        found = []
        for at, job in enumerate(plan):
            for other in plan[at + 1 :]:
                larger = self.rows[other][2] >= self.rows[job][2] and other not in self.never
                if job in self.leading or (job in self.waiting and larger):
                    found.append((job, other))
        return found


def least_priorities(case: Case) -> dict[int, int]:
    """The least priorities that no solution without negative SiteFactors can be below; by trying, one by one."""
    wanted = {i: n for i, (n, _, _) in case.rows.items()}
    pairs = case.pairs()
    while True:
        wrong = [(a, b) for a, b in pairs if (-wanted[a], case.tie(a)) > (-wanted[b], case.tie(b))]
        if not wrong:
            return wanted
        for a, b in wrong:
            wanted[a] = max(wanted[a], wanted[b] + (case.tie(a) > case.tie(b)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    found = draw(st.lists(st.integers(1, 500), unique=True, min_size=1, max_size=14))
    naturals = st.integers(1, 30) | st.integers(1, 10**6)
    factors = st.just(0) | st.integers(-50, 200) | st.integers(0, 10**8)
    drawn = {i: (draw(naturals), draw(factors), draw(st.sampled_from((1, 2, 4)))) for i in found}
    rows = {i: (n, max(f, 1 - n), g) for i, (n, f, g) in drawn.items()}  # below 1 Slurm does not tell how far
    order = draw(st.permutations(found))
    cuts = sorted(draw(st.integers(0, len(order))) for _ in range(3))
    parts = [tuple(order[a:b]) for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True)]
    requeued = tuple(draw(st.permutations(found)))[: draw(st.integers(0, len(found)))]
    by_id = tuple(draw(st.permutations(found))) if draw(st.booleans()) else ()
    return Case(rows, parts[0], parts[1], parts[2], parts[3], requeued=requeued, by_id=by_id)


@st.composite
def ranked_cases(draw: st.DrawFn) -> Case:
    """The policy ranks some waiting jobs before some that start, and says nothing about others."""
    case = draw(cases())
    ranked, split = [*case.leading, *case.waiting], len(case.leading)
    shuffled = draw(st.permutations(range(len(ranked))))
    exempt = draw(st.integers(0, split))
    ranks = (*[-1] * exempt, *sorted(shuffled[exempt:split]), *sorted(shuffled[split:]))
    stuck = draw(st.lists(st.sampled_from([0, *case.rows])))
    return replace(case, unranked=case.never, never=(), ranks=ranks, overdue=tuple(stuck))
