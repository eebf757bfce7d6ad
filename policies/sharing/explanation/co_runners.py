"""Whom a job meets on GPUs, or would meet: the numbers of policies that do not compare completion times, for ``explain``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slurm_soda.policies.sharing.arithmetic.completion_times import CompletionSchedule
from slurm_soda.policies.sharing.arithmetic.sharing_decision import PairSlowdown

_ROUNDING = 1e-8


@dataclass(frozen=True, slots=True)
class BoundCheck:
    """A number that decides whether a job may be on GPUs, the worst of them, and what is allowed.

    Attributes:
        bound: most allowed, or least with ``least``; None: nothing hangs on it, it is only told.
        job_id: whose number it is, where it is not everybody's.
    """

    name: str
    value: float
    bound: float | None = None
    least: bool = False
    job_id: int | None = None

    @property
    def holds(self) -> bool:
        """Whether the value is within the bound."""
        if self.bound is None:
            return True
        return self.value >= self.bound - _ROUNDING if self.least else self.value <= self.bound + _ROUNDING


class CoRunner(NamedTuple):
    """Another job on some of the GPUs."""

    job_id: int
    xi: PairSlowdown | None
    """What the two alone do to each other; None: nobody knows."""


class WorkerMoveReport(NamedTuple):
    """Why a worker leaves its GPU, and what that costs (OJPAP, Algorithm 4)."""

    source: int
    target: int
    left: tuple[CoRunner, ...]
    """Whom it leaves."""
    interference: float
    """Of the GPU it leaves, now; infinite: nobody knows."""
    average: float
    """The same smoothed over time (Equation 18), which triggers."""
    bound: float
    cost_gpu_s: float
    budget_gpu_s: float
    """For all moves of one decision (Equation 19)."""


@dataclass(frozen=True, slots=True)
class CoRunnersReport:
    """A job beside others as the plan has it or, if it may not be there, on the GPU in use that comes nearest.

    The twin of :class:`.subbatch.Decision` for policies that do not compare completion times: these are worked out all the
    same, with the slowdowns that are known, in the same words.

    Attributes:
        share: it starts beside others, or moves.
        devices: those in question; none if there is no GPU in use that it might have.
        alone_s: work of the job, then what each co-runner still needs without it, in the order of ``co_runners``; NaN: not
            known.
        sequential: the job starts after the last co-runner; None where work is not known, as ``together``.
        together: it starts now; None also where slowdowns are not known.
        measures: of the job on its devices; of one that moves, on the GPU that it moves to.
    """

    share: bool
    devices: tuple[int, ...]
    alone_s: tuple[float, ...]
    co_runners: tuple[CoRunner, ...]
    sequential: CompletionSchedule | None
    together: CompletionSchedule | None
    bound_checks: tuple[BoundCheck, ...]
    reason: str
    shift: WorkerMoveReport | None = None


def describe_obstacles(broken: Sequence[Sequence[str]], otherwise: str) -> str:
    """Why a job may not join others, from what is broken on each GPU in use, of which the first counts.

    Args:
        otherwise: why those will not do on which nothing is broken.
    """
    counts = Counter(names[0] for names in broken if names)
    told = ", ".join(f"{name} on {count}" for name, count in sorted(counts.items()))
    said = [f"in the way on GPUs in use that it might have: {told}"] if told else []
    would_do = sum(not names for names in broken)
    if would_do:
        said.append(f"{would_do} would do one by one, but they are {otherwise}")
    return "; ".join(said)


class LazyCoRunnersReports(Mapping[int, CoRunnersReport]):
    """Meetings by job id, each worked out when somebody asks for it, so that a decision costs no more for telling of it.

    It keeps what the decision was made from for as long as it is kept itself.
    """

    def __init__(self, rows: Mapping[int, int], tell: Callable[[int], CoRunnersReport]) -> None:
        """``rows`` of the jobs that are told of, by job id; ``tell`` takes a row."""
        self._rows, self._tell = rows, tell

    def __getitem__(self, job_id: int) -> CoRunnersReport:
        return self._tell(self._rows[job_id])

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._rows

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
