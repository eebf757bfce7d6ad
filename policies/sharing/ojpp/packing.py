"""Workers on devices, and who may join whom: the constraints of OJPP (Equations 11 to 15), kept as columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.arithmetic.memory_demand import FULL_DEVICE
from slurm_soda.policies.sharing.ojpp.slowdown_balance import SlowdownBalance
from slurm_soda.policies.snapshot import FloatColumn, IntColumn

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class PackingJobs:
    """Jobs of equal workers, one row each (Section 3.1). All shares are of one device.

    Attributes:
        workers: how many.
        compute: alpha, the share of computing power of a worker.
        base: gamma; extra: delta; probability: p, as in :class:`.demand.MemoryDemand`.
        model: row of the table of slowdowns.
        bound: most slowdown that a job's owner allows, 0.2 for 20 % longer; left out, nobody sets a bound.

    Raises:
        PolicyError: columns of different length, no worker, or a value out of range.
    """

    workers: IntColumn
    compute: FloatColumn
    base: FloatColumn
    extra: FloatColumn
    probability: FloatColumn
    model: IntColumn
    bound: FloatColumn = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if not len(self.bound):
            object.__setattr__(self, "bound", np.full(len(self.workers), np.inf))
        columns = (self.compute, self.base, self.extra, self.probability)
        if len({len(column) for column in (self.workers, self.model, self.bound, *columns)}) != 1:
            raise PolicyError("columns of jobs must be equally long")
        if not np.all(self.bound >= 0):
            raise PolicyError("a job's bound of its slowdown must be 0 or more")
        for column in columns:
            if not np.all((column >= 0) & (column <= 1)):
                raise PolicyError("shares and probabilities of jobs must be from 0 to 1")
        if np.any(self.base + self.extra > FULL_DEVICE):
            raise PolicyError("a worker must fit one device: its base and extra memory exceed it")
        if np.any(self.workers < 1):
            raise PolicyError("a job must have at least one worker")

    def __len__(self) -> int:
        return len(self.workers)


@dataclass(frozen=True, slots=True)
class PackingRules:
    """What must hold on every device; infinite bounds hold always.

    Attributes:
        collision: tau, most allowed probability of two peaks at once (Equation 5).
        interference: theta, most allowed slowdown, 0.2 for 20 % longer (Equation 7).
        balance: theta', most allowed difference of slowdown between workers of one job (Equation 8).
        least_slowdown_first: a worker goes where the slowdown is least (Algorithm 2); else where the least memory is left
            (best fit).
        apart: no two workers of one job on one device. NCCL refuses those; the paper allows them.
        most: workers on one device.
    """

    collision: float = math.inf
    interference: float = math.inf
    balance: float = math.inf
    least_slowdown_first: bool = True
    apart: bool = True
    most: float = math.inf

    def __post_init__(self) -> None:
        for bound in (self.collision, self.interference, self.balance):
            if not bound >= 0:
                raise PolicyError(f"a bound must be 0 or more, not {bound!r}")
        if not self.most >= 1:
            raise PolicyError(f"a device must be allowed at least one worker, not {self.most!r}")


def check_slowdowns(slowdown: FloatColumn) -> FloatColumn:
    """A table of slowdowns, [i, q] of model i beside one worker of model q: (shared - alone) / alone (Equation 6).

    Speed-ups are noise and become 0.

    Raises:
        PolicyError: it is not square, or a value is not finite.
    """
    if slowdown.ndim != 2 or slowdown.shape[0] != slowdown.shape[1] or not np.all(np.isfinite(slowdown)):
        raise PolicyError(f"slowdowns must be a square table of finite numbers, not of shape {slowdown.shape}")
    table: FloatColumn = np.maximum(slowdown, 0.0)
    return table


class Packing:
    """Which worker is where, and for every device and model whether one more worker may join.

    Beside several workers, slowdowns add up; the paper measures pairs only, and does not say. A worker joins or leaves in
    O(models x workers on the device); if balance is bounded, the same again for those devices of the jobs met there where
    it makes a difference. What models may still join is found out when somebody asks, once for all changes until then.
    """

    def __init__(self, jobs: PackingJobs, slowdown: FloatColumn, devices: int, rules: PackingRules) -> None:
        self.jobs, self.rules, self.slowdown = jobs, rules, check_slowdowns(slowdown)
        if len(jobs) and not 0 <= int(jobs.model.min()) <= int(jobs.model.max()) < len(self.slowdown):
            raise PolicyError(f"models of jobs must be rows of the table of slowdowns, 0 to {len(self.slowdown) - 1}")
        models = len(self.slowdown)
        self.residents: list[list[int]] = [[] for _ in range(devices)]
        """Jobs by device, one entry a worker."""
        self.places: dict[int, list[int]] = {}
        """Devices by job, one entry a worker."""
        self._compute, self._base, self._extra = (np.zeros(devices) for _ in range(3))
        self._none, self._one = np.ones(devices), np.zeros(devices)
        self._suffered, self._after = np.zeros((models, devices)), np.zeros((models, devices))
        self._open = np.ones((models, devices), dtype=np.bool_)
        self.active: NDArray[np.bool_] = np.zeros(devices, dtype=np.bool_)
        """Devices with a worker."""
        self._own_bounds = bool(np.isfinite(jobs.bound).any())
        self._balanced = rules.balance < rules.interference  # else the one bound implies the other
        self._balance = SlowdownBalance()
        self._stale: set[int] = set()
        """Devices that changed since :meth:`_judge` looked at them."""

    def __len__(self) -> int:
        return len(self.residents)

    @property
    def used(self) -> int:
        """Devices with at least one worker."""
        return int(np.count_nonzero(self.active))

    def value(self, job: int, device: int) -> float:
        """Slowdown of a worker of the job that is on the device."""
        model = self.jobs.model[job]
        return float(self._suffered[model, device] - self.slowdown[model, model])

    def values(self, job: int) -> list[float]:
        """Slowdowns of all workers of a job."""
        return [self.value(job, device) for device in self.places.get(job, [])]

    def spread(self, job: int) -> float:
        """Difference of slowdown between the workers of a job, which balance bounds."""
        values = self.values(job)
        return max(values) - min(values) if values else 0.0

    def theta(self, device: int) -> float:
        """Interference on a device (Equation 6), 0 if it holds fewer than two workers."""
        return max((self.value(job, device) for job in self.residents[device]), default=0.0)

    def collision(self, device: int) -> float:
        """Probability that two or more workers on the device peak at once (Equation 4)."""
        return max(float(1 - self._none[device] - self._one[device]), 0.0)

    def open_to(self, job: int, low: float = 0.0, high: float = math.inf) -> NDArray[np.bool_]:
        """Devices that one worker of the job may join, with a slowdown of its own from ``low`` to ``high``; O(devices)."""
        self._judge_stale()
        ok = self._borne(job, slice(None))
        own = self._suffered[self.jobs.model[job]]
        if high < math.inf:
            ok &= own <= high + _ROUNDING
        if low > 0:
            ok &= own >= low - _ROUNDING
        if self.rules.apart:
            ok[self.places.get(job, [])] = False
        return ok

    def is_open_to(self, job: int, device: int) -> bool:
        """Whether one worker of the job may join this device; as :meth:`open_to`, for one."""
        if self.rules.apart and device in self.places.get(job, ()):
            return False
        if device in self._stale:
            self._stale.remove(device)
            self._judge(device)
        return bool(self._borne(job, slice(device, device + 1))[0])

    def _borne(self, job: int, devices: slice) -> NDArray[np.bool_]:
        """Which of these devices, judged already, have room for a worker of the job, and all there bear each other."""
        jobs, rules, model = self.jobs, self.rules, self.jobs.model[job]
        ok: NDArray[np.bool_] = self._open[model, devices] & (self._compute[devices] <= FULL_DEVICE - jobs.compute[job])
        ok &= np.maximum(self._extra[devices], jobs.extra[job]) + self._base[devices] <= FULL_DEVICE - jobs.base[job]
        if rules.collision < 1:  # with the worker: none or one peak, whether by it or by another
            calm = self._none[devices] + self._one[devices] * (1 - jobs.probability[job])
            ok &= calm >= 1 - rules.collision - _ROUNDING
        ok &= self._suffered[model, devices] <= min(rules.interference, float(jobs.bound[job])) + _ROUNDING
        return ok

    def after(self, job: int) -> FloatColumn:
        """Interference on each device if a worker of the job joined."""
        self._judge_stale()
        row: FloatColumn = self._after[self.jobs.model[job]]
        return row

    def capacity_after(self, job: int) -> FloatColumn:
        """Shares of computing power and memory left on each device, added, if a worker of the job joined."""
        jobs = self.jobs
        memory = self._base + np.maximum(self._extra, jobs.extra[job]) + jobs.base[job]
        free_capacity: FloatColumn = 2.0 - self._compute - jobs.compute[job] - memory
        return free_capacity

    def slowdowns_if_joined(self, job: int) -> FloatColumn:
        """Slowdown that a worker of the job would have on each device."""
        row: FloatColumn = self._suffered[self.jobs.model[job]]
        return row

    def own(self, job: int, device: int) -> float:
        """Slowdown that a worker of the job would have on the device."""
        return float(self._suffered[self.jobs.model[job], device])

    def join(self, job: int, device: int) -> None:
        """Put a worker there; asks nothing."""
        self.residents[device].append(job)
        self.places.setdefault(job, []).append(device)
        self._changed(device, None)

    def leave(self, job: int, device: int) -> None:
        """Take a worker away."""
        self.residents[device].remove(job)
        self.places[job].remove(device)
        if not self.places[job]:
            del self.places[job]
        self._changed(device, job)

    def fill(self, places: Mapping[int, Sequence[int]]) -> None:
        """Put workers of jobs on devices, all at once; asks nothing. For those who are there when a decision begins."""
        touched = set()
        for job, devices in places.items():
            for device in devices:
                self.residents[device].append(job)
                touched.add(device)
            self.places.setdefault(job, []).extend(devices)
        for device in touched:
            self._count(device)
        if self._balanced:
            for job in places:
                self._balance.set_slowdowns(job, {device: self.value(job, device) for device in self.places[job]})
        self._stale |= touched

    def _changed(self, device: int, left: int | None) -> None:
        self._count(device)
        if self._balanced:
            here = {job: self.value(job, device) for job in self.residents[device]}
            self._stale |= self._balance.update_device(device, here, left)
        self._stale.add(device)

    def _count(self, device: int) -> None:
        """Sums over the workers on a device."""
        here, jobs = self.residents[device], self.jobs
        self.active[device] = bool(here)
        self._compute[device] = jobs.compute[here].sum()
        self._base[device] = jobs.base[here].sum()
        self._extra[device] = jobs.extra[here].max(initial=0.0)
        none, one = 1.0, 0.0
        for p in jobs.probability[here].tolist():
            none, one = none * (1 - p), one * (1 - p) + none * p
        self._none[device], self._one[device] = none, one
        self._suffered[:, device] = self.slowdown[:, jobs.model[here]].sum(axis=1)

    def _judge_stale(self) -> None:
        for device in self._stale:
            self._judge(device)
        self._stale.clear()

    def _judge(self, device: int) -> None:
        """What each model would do to those who are on the device already."""
        here = self.residents[device]
        suffered = self._suffered[:, device]
        if not here:
            self._after[:, device], self._open[:, device] = suffered, True
            return
        models = self.jobs.model[here]
        grown = (suffered[models] - self.slowdown[models, models])[:, None] + self.slowdown[models]
        self._after[:, device] = np.maximum(suffered, grown.max(axis=0))
        limit = self.rules.interference
        if len(here) >= self.rules.most:
            self._open[:, device] = False
        elif self._balanced or self._own_bounds:
            limits = np.minimum(self.jobs.bound[here], limit)
            if self._balanced:
                levels = [self._balance.least_elsewhere(job, device) + self.rules.balance for job in here]
                limits = np.minimum(limits, levels)
            self._open[:, device] = (grown <= limits[:, None] + _ROUNDING).all(axis=0)
        elif math.isinf(limit):
            self._open[:, device] = True
        else:
            self._open[:, device] = self._after[:, device] <= limit + _ROUNDING
