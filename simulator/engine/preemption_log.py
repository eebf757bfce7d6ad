"""What preemptions cost the jobs of a run, as somebody would see it who looks at what they tell."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from slurm_soda.policies.preemption_costs.observed_preemption import PreemptionCost
from slurm_soda.policies.session.ranking import SessionJob


class SeenPreemption(NamedTuple):
    """A job makes progress again."""

    row: int
    cost: PreemptionCost


class PreemptionLog:
    """Hears of preemptions and starts; tells of each preemption once the job makes progress again. For one run."""

    def __init__(self) -> None:
        self._leaving: set[int] = set()
        self._left: dict[int, PreemptionCost] = {}
        """What the stop of jobs cost that have not started again."""
        self._due: list[tuple[float, int, PreemptionCost]] = []
        self._began_left_s: dict[int, float] = {}

    def preempted(self, row: int) -> None:
        """A job is asked to leave."""
        self._leaving.add(row)

    def left(self, row: int, stop_s: float, lost_s: float) -> None:
        """A job left for want of its places, after ``stop_s`` without progress; so much of its work is lost."""
        if row in self._leaving:
            self._leaving.remove(row)
            self._left[row] = PreemptionCost(stop_s, lost_s)

    def started(self, job: SessionJob, row: int, now_s: float, cost_s: float) -> None:
        """A job starts, and makes progress so much later."""
        self._began_left_s[row] = job.remaining_s
        stop = self._left.pop(row, None)
        if stop is not None:
            cost = PreemptionCost(stop.overhead_s + cost_s, stop.lost_s)
            heappush(self._due, (now_s + cost_s, row, cost))

    def take(self, now_s: float) -> list[SeenPreemption]:
        """What can be seen by now and was not taken before, the earliest first."""
        found = []
        while self._due and self._due[0][0] <= now_s:
            _, row, cost = heappop(self._due)
            found.append(SeenPreemption(row, cost))
        return found

    def began_left_s(self, row: int) -> float:
        """What policies were told is left of a running job when its present run began."""
        return self._began_left_s[row]
