"""A GPU on which trainings meet, kernel times and data loading apart: what Chapter 6 of the co-location thesis needs.

A training repeats: its next batch is ready, its kernels run, the host takes a moment. Batches are loaded ahead while kernels
run, one after the other by the job's own data workers, so too few of those make the GPU wait.

With MPS kernels of several jobs run at once: at full speed while their occupancies add up to no more than 1, else each
slowed alike. Without it they take turns, each with an equal share of time, however little of the GPU they fill (thesis,
Section 2.1.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

_NOTHING = 1e-12


@dataclass(frozen=True, slots=True)
class SimulatedTraining:
    """One job; times of one iteration."""

    name: str
    kernels_s: float
    """Alone on the GPU."""
    occupancy: float
    host_s: float
    """Between kernels and the next ones, while the GPU has nothing of it to do."""
    load_s: float
    """To load one batch, with all its data workers."""
    iterations: int

    @property
    def alone_s(self) -> float:
        """Of one iteration."""
        return max(self.kernels_s + self.host_s, self.load_s)


@dataclass(slots=True)
class _State:
    job: SimulatedTraining
    left: int
    start_s: float
    kernels_left_s: float = 0.0
    wakes_s: float = math.inf
    """When its next kernels may start, while it waits."""
    begun_s: float = field(default=0.0)


def run_together(jobs: Sequence[SimulatedTraining], *, mps: bool, start_s: float = 0.0) -> list[float]:
    """When each of these ends, if all start now on one GPU.

    From event to event: kernels begin and end. O(iterations x jobs).
    """
    states = [_State(job, job.iterations, start_s, wakes_s=start_s + job.load_s) for job in jobs]
    ends = [start_s] * len(jobs)
    now_s = start_s
    while any(state.left for state in states):
        active = [state for state in states if state.left and state.kernels_left_s > 0]
        rate = _rate(active, mps)
        wake_s = min((state.wakes_s for state in states if state.left and state.kernels_left_s <= 0), default=math.inf)
        done_s = now_s + min((state.kernels_left_s for state in active), default=math.inf) / rate
        then_s = min(wake_s, done_s)
        for state in active:
            state.kernels_left_s -= (then_s - now_s) * rate
        now_s = then_s
        for at, state in enumerate(states):
            if not state.left:
                continue
            if state in active and state.kernels_left_s <= _NOTHING:
                state.kernels_left_s = 0.0
                state.left -= 1
                ends[at] = now_s + state.job.host_s
                # The next batch was loaded while these kernels ran.
                state.wakes_s = max(now_s + state.job.host_s, state.begun_s + state.job.load_s)
            elif state.kernels_left_s <= 0 and state.wakes_s <= now_s + _NOTHING:
                state.kernels_left_s, state.begun_s = state.job.kernels_s, now_s
    return ends


def _rate(active: Sequence[_State], mps: bool) -> float:
    """Speed of each of the kernels that run."""
    if not active:
        return 1.0
    return 1.0 / max(math.fsum(state.job.occupancy for state in active), 1.0) if mps else 1.0 / len(active)
