"""With which jobs a job is on GPUs, or would be: the facts of policies that do not decide by completion times."""

from __future__ import annotations

import math
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
        bound: most allowed, or least with ``least``; None: nothing depends on it.
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

    The twin of :class:`.sharing_decision.SharingDecision` for policies that do not compare completion times: these are
    computed all the same, with the slowdowns that are known.

    Attributes:
        share: it starts beside others, or moves.
        devices: those in question; none if there is no GPU in use that it might have.
        alone_s: work of the job, then what each co-runner still needs without it, in the order of ``co_runners``; NaN: not
            known.
        sequential: the job starts after the last co-runner; None where work is not known, as ``together``.
        together: it starts now; None also where slowdowns are not known.
        bound_checks: of the job on its devices; of one that moves, on the GPU that it moves to.
    """

    share: bool
    devices: tuple[int, ...]
    alone_s: tuple[float, ...]
    co_runners: tuple[CoRunner, ...]
    sequential: CompletionSchedule | None
    together: CompletionSchedule | None
    bound_checks: tuple[BoundCheck, ...]
    reason: str
    move: WorkerMoveReport | None = None


class GpuCheck(NamedTuple):
    """One GPU in use, for a job that did not get it."""

    load: float
    """By which the policy ranks GPUs; infinite: nobody knows."""
    broken: Sequence[str]
    """Names of the bounds that the job would break there, and other obstacles; the first one counts."""


def find_nearest_gpu(checks: Mapping[int, GpuCheck], otherwise: str) -> tuple[tuple[int, ...], str]:
    """The GPU in use that comes nearest to what is allowed, and why a job may not join others on any of them.

    Nearest is where the load is known, then where fewest bounds are broken, then the least loaded. No device: none in use.

    Args:
        checks: by device.
        otherwise: why those will not do on which nothing is broken.
    """
    if not checks:
        return (), "others use no GPU that it might have"
    nearest = min(
        checks,
        key=lambda device: (math.isinf(checks[device].load), len(checks[device].broken), checks[device].load, device),
    )
    counts = Counter(check.broken[0] for check in checks.values() if check.broken)
    obstacles = ", ".join(f"{name} on {count}" for name, count in sorted(counts.items()))
    reasons = [f"in the way on GPUs in use that it might have: {obstacles}"] if obstacles else []
    would_do = sum(not check.broken for check in checks.values())
    if would_do:
        reasons.append(f"{would_do} would do one by one, but they are {otherwise}")
    return (nearest,), "; ".join(reasons)


class LazyCoRunnersReports(Mapping[int, CoRunnersReport]):
    """Reports by job id, each computed when it is read, so that a decision costs no more for its explanation.

    It keeps what the decision was made from for as long as it is kept itself.
    """

    def __init__(self, rows: Mapping[int, int], report_on: Callable[[int], CoRunnersReport]) -> None:
        """``rows`` of the jobs with a report, by job id; ``report_on`` takes a row."""
        self._rows, self._report_on = rows, report_on

    def __getitem__(self, job_id: int) -> CoRunnersReport:
        return self._report_on(self._rows[job_id])

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._rows

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
