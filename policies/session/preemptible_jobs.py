"""Running jobs that may be preempted, worst-ranked last."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from heapq import heappop, heappush

from slurm_soda.policies.session.ranking import INFINITY, Ranking, RankKey, SessionJob, VolatileRanking

_Group = list[tuple[RankKey, SessionJob]]


class PreemptibleJobs:
    """Preemptible running jobs in groups that are sorted once, and the times at which that must be done anew.

    Putting a job into its group or out of it is a bisection and a move in a list. Jobs of a volatile group are sorted
    at an instant only if all jobs of higher groups would not do.
    """

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking
        self._rules = ranking.rules
        self._groups: dict[int, _Group] = {}
        self._on_node: dict[int, list[SessionJob]] = {}
        """All of them, by each node that they are on."""
        self._changes: list[tuple[float, int, int, SessionJob]] = []
        self._ripens: list[tuple[float, int, int, SessionJob]] = []
        self._volatile = ranking if isinstance(ranking, VolatileRanking) else None
        self._sorted: dict[int, _Group] = {}
        """Volatile groups as they stood at :attr:`_sorted_s`, jobs that were taken out since included."""
        self._sorted_s = INFINITY

    def add(self, job: SessionJob) -> None:
        """A job starts. It takes part once its minimum run time is over."""
        job.turn += 1
        self._sorted.clear()
        may_leave = self._rules.preemptive and job.preemptible and job.gpus > 0
        if not (may_leave or self._rules.volatile):
            return
        changes_s = self._ranking.changes_s(job)
        if changes_s < INFINITY:
            heappush(self._changes, (changes_s, job.job_id, job.turn, job))
        if not may_leave:
            return
        if self._rules.min_run_s > 0:
            heappush(self._ripens, (job.start_s + self._rules.min_run_s, job.job_id, job.turn, job))
        else:
            self.insert(job)

    def remove(self, job: SessionJob) -> None:
        """A running job ended or was preempted for good."""
        job.turn += 1
        if job.frozen is not None:
            self.exclude(job)

    def insert(self, job: SessionJob) -> None:
        """A running job may be preempted from now on."""
        key = job.frozen = self._ranking.frozen(job)
        insort(self._groups.setdefault(self._ranking.group(job), []), (key, job))
        for piece in job.pieces:
            self._on_node.setdefault(piece.node, []).append(job)

    def exclude(self, job: SessionJob) -> None:
        """A running job is not to be considered, as long as it is not inserted again."""
        assert job.frozen is not None
        group = self._groups[self._ranking.group(job)]
        del group[bisect_left(group, (job.frozen,))]
        for piece in job.pieces:
            self._on_node[piece.node].remove(job)
        job.frozen = None

    def next_event_s(self) -> float:
        """When :meth:`advance` has something to do."""
        for heap in (self._changes, self._ripens):
            while heap and heap[0][3].turn != heap[0][2]:
                heappop(heap)
        return min(self._changes[0][0] if self._changes else INFINITY, self._ripens[0][0] if self._ripens else INFINITY)

    def advance(self, now_s: float) -> bool:
        """Do what is due; whether anything was that could let a waiting job preempt."""
        changed = False
        while self._changes and self._changes[0][0] <= now_s:
            _, _, turn, job = heappop(self._changes)
            if job.turn == turn:
                self._change(job)
                changed = True
        while self._ripens and self._ripens[0][0] <= now_s:
            _, _, turn, job = heappop(self._ripens)
            if job.turn == turn:
                self.insert(job)
                changed = True
        if changed:
            self._sorted.clear()
        return changed

    def _change(self, job: SessionJob) -> None:
        in_group = job.frozen is not None
        if in_group:
            self.exclude(job)
        self._ranking.change(job)
        if in_group:
            self.insert(job)
        changes_s = self._ranking.changes_s(job)
        if changes_s < INFINITY:
            heappush(self._changes, (changes_s, job.job_id, job.turn, job))

    def victims(self, key: RankKey, gpus: int, now_s: float) -> list[tuple[RankKey, SessionJob]] | None:
        """The worst-ranked jobs that rank behind ``key`` and together hold ``gpus``; ``None``: they hold fewer.

        Jobs that turn out not to be needed are left out, best-ranked first (see :mod:`slurm_soda.policies.engine.victims`).
        """
        found: list[tuple[RankKey, SessionJob]] = []
        lacking = gpus
        for item in self._worst_first(now_s):
            if item[0] <= key:
                return None
            found.append(item)
            lacking -= item[1].gpus
            if lacking <= 0:
                break
        if lacking > 0:
            return None
        needed = []
        for item in reversed(found):
            if lacking + item[1].gpus <= 0:
                lacking += item[1].gpus
            else:
                needed.append(item)
        return needed

    def behind(self, key: RankKey, now_s: float) -> list[SessionJob]:
        """All jobs that rank behind ``key``; O(log n) for each group, and their number."""
        found: list[SessionJob] = []
        for number, group in self._groups.items():
            if number < self._rules.volatile:
                found += (job for _, job in group if job.frozen is not None and self._is_behind(job, key, now_s))
            else:
                at = bisect_right(group, key, key=lambda item: self._ranking.running(item[1], now_s))
                found += (job for _, job in group[at:])
        return found

    def behind_on(self, node: int, key: RankKey, now_s: float) -> list[SessionJob]:
        """Those of them on one node."""
        return [job for job in self._on_node.get(node, ()) if self._is_behind(job, key, now_s)]

    def _is_behind(self, job: SessionJob, key: RankKey, now_s: float) -> bool:
        ranks: RankKey = self._ranking.running(job, now_s)
        return ranks > key

    def _worst_first(self, now_s: float) -> Iterator[tuple[RankKey, SessionJob]]:
        running = self._ranking.running
        if self._volatile is not None:
            for number in sorted(self._groups, reverse=True):
                now = number < self._rules.volatile
                group = self._now(self._volatile, number, now_s) if now else self._groups[number]
                for _, job in reversed(group):
                    if job.frozen is not None:
                        yield running(job, now_s), job
            return
        groups = self._groups.items()
        ends = [(running(group[-1][1], now_s), number, len(group) - 1) for number, group in groups if group]
        while ends:
            worst = max(ends) if len(ends) > 1 else ends[0]
            key, number, at = worst
            group = self._groups[number]
            yield key, group[at][1]
            ends.remove(worst)
            if at:
                ends.append((running(group[at - 1][1], now_s), number, at - 1))

    def _now(self, order: VolatileRanking, number: int, now_s: float) -> _Group:
        """A volatile group as it stands now; sorted once an instant."""
        if now_s != self._sorted_s:
            self._sorted.clear()
            self._sorted_s = now_s
        if number not in self._sorted:
            group = self._groups[number]
            positions = order.in_order(number, [job for _, job in group], now_s)
            self._sorted[number] = [group[at] for at in positions]
        return self._sorted[number]
