"""What jobs of a snapshot do to each other, as far as somebody knows; everything is asked once for each kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slurm_soda.policies.sharing.arithmetic.revocation import GuestTerms
from slurm_soda.policies.sharing.arithmetic.sharing_decision import (
    BOUND_CAUTION,
    Consent,
    Footprint,
    NewJob,
    PairSlowdown,
    Partner,
    SharingDecision,
    decide_sharing,
)
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy, jobs_on_devices
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import JobState

_NO_FOOTPRINT = Footprint(0.0, 0.0)


class InterferenceView:
    """Kinds, slowdowns, memory and consent of the jobs of one snapshot.

    Slowdowns of pairs add up beside several (xi - 1 summed) where nobody knows better; a gang is as slow as on its worst
    GPU.
    """

    def __init__(self, snapshot: SharingSnapshot, gpu_occupancy: GpuOccupancy) -> None:
        self._snapshot, self._gpu_occupancy = snapshot, gpu_occupancy
        self._jobs, self._known = snapshot.sharing, snapshot.known
        self._xi: dict[tuple[JobKind, tuple[JobKind, ...]], Estimate | None] = {}
        self._fits: dict[tuple[JobKind, ...], bool] = {}
        self._kinds: dict[tuple[int, int], JobKind] = {}
        self._models: dict[JobKind, tuple[Throughput | None, Footprint | None]] = {}
        self._pace: dict[int, float] = {}
        self._held_mib: dict[int, float | None] = {}
        self._runs: list[bool] = (snapshot.jobs.state == JobState.RUNNING).tolist()

    def kind(self, row: int, sub_batch: int | None = None) -> JobKind | None:
        """What a job is while it runs, with this sub-batch or the one it has; None if nobody can tell."""
        number = int(self._jobs.kind[row])
        if number < 0:
            return None
        if sub_batch is None:
            sub_batch = int(self._jobs.sub_batch[row]) if self._runs[row] else int(self._jobs.batch[row])
        key = (number, sub_batch)
        if key not in self._kinds:
            kind = self._jobs.kinds[number]
            same = sub_batch in (0, int(self._jobs.batch[row]))
            self._kinds[key] = kind if same else replace(kind, batch=sub_batch)
        return self._kinds[key]

    def xi(self, slowed: JobKind, others: Sequence[JobKind]) -> Estimate | None:
        """Slowdown of one kind beside others; None where nobody knows, or where they do not fit together."""
        key = (slowed, tuple(others))
        try:
            return self._xi[key]
        except KeyError:
            known = self._known.xi(slowed, key[1])
        if known is None and len(others) > 1:
            known = _add_slowdowns([self.xi(slowed, (other,)) for other in others])
        self._xi[key] = known
        return known

    def speed(self, slowed: JobKind, other: JobKind, caution: float) -> float:
        """What a kind keeps of its speed beside one other; 0 where nobody knows, or where they do not fit together.

        ``caution``: the slowdown counts as so many of its expected errors worse than known.
        """
        xi = self.xi(slowed, (other,))
        return 0.0 if xi is None else 1.0 / max(xi.plus_errors(caution), 1.0)

    def fit(self, together: Sequence[JobKind]) -> bool:
        """Whether these may be tried on one GPU: nobody says that they do not fit."""
        key = tuple(together)
        try:
            return self._fits[key]
        except KeyError:
            fits = self._fits[key] = self._known.fits(key) is not False
            return fits

    def consent(self, row: int) -> Consent:
        """What the owner of a job allows."""
        return Consent(bool(self._jobs.shares[row]), float(self._jobs.max_slowdown[row]))

    def accumulation_slowdown(self, row: int) -> float:
        """Run time alone with the sub-batch that a running job has, over that with its whole batch."""
        batch, sub_batch, number = int(self._jobs.batch[row]), int(self._jobs.sub_batch[row]), int(self._jobs.kind[row])
        if number < 0 or not 0 < sub_batch < batch:
            return 1.0
        throughput, _ = self.models(self._jobs.kinds[number])
        return 1.0 if throughput is None else _accumulation_ratio(throughput, batch, sub_batch)

    def models(self, kind: JobKind) -> tuple[Throughput | None, Footprint | None]:
        """Iteration times and memory of a kind, where known."""
        if kind not in self._models:
            self._models[kind] = (self._known.throughput(kind), self._known.footprint(kind))
        return self._models[kind]

    def pace(self, row: int) -> float:
        """How many times longer a running job takes now than alone with its whole batch; infinite if nobody knows."""
        if row not in self._pace:
            alone, jobs_on = [row], self._gpu_occupancy.jobs_on
            beside = {
                tuple(other for other in jobs_on[device] if other != row)
                for device in self._snapshot.devices.of(row).tolist()
                if jobs_on[device] != alone
            }
            worst = max((self.slowdown(row, others) for others in beside if others), default=1.0)
            self._pace[row] = worst * self.accumulation_slowdown(row)
        return self._pace[row]

    def left_s(self, row: int) -> float:
        """Time that a running job still needs at the pace that it has now; infinite if nobody knows."""
        left_s = float(self._snapshot.jobs.remaining_s[row])
        if math.isnan(left_s):
            return math.inf
        return left_s * self.pace(row) if left_s else 0.0

    def slowdown(self, row: int, others: Sequence[int], caution: float = 0.0) -> float:
        """Slowdown of a job on a GPU with these others, accumulation apart; infinite if nobody knows.

        ``caution``: it counts as so many of its expected errors worse than known.
        """
        kinds = [self.kind(one) for one in (row, *others)]
        known = [kind for kind in kinds if kind is not None]
        if len(known) < len(kinds):
            return math.inf
        found = self.xi(known[0], known[1:])
        return math.inf if found is None else max(found.plus_errors(caution), 1.0)

    def new_job(self, row: int) -> NewJob:
        """A waiting job as Algorithm 2 takes it, with ``remaining_s`` of work on its whole batch: see
        :func:`make_new_job`.
        """
        remaining_s = float(self._snapshot.jobs.remaining_s[row])
        number, batch = int(self._jobs.kind[row]), int(self._jobs.batch[row])
        throughput, footprint = (None, None) if number < 0 else self.models(self._jobs.kinds[number])
        accumulates = bool(self._jobs.accumulates[row])
        return make_new_job(remaining_s, batch, throughput, footprint, self.consent(row), accumulates=accumulates)

    def guest_terms(self, row: int) -> GuestTerms | None:
        """On what terms a waiting job would be a guest; None: on none, as where either may end first at no cost."""
        mechanism = self._snapshot.mechanism
        if not (mechanism.revokes or mechanism.start_s):
            return None
        every_s = float(self._jobs.saves_every_s[row])
        return GuestTerms(mechanism.start_s, mechanism.readmit_s, every_s, mechanism.revokes)

    def judge(
        self, row: int, devices: Sequence[int], caution: float = 0.0, bound_caution: float = BOUND_CAUTION
    ) -> SharingDecision:
        """Algorithm 2 for a waiting job beside everybody who is on these devices; see :func:`.decide_sharing`.

        Raises:
            PolicyError: it is not known how much work one of them has left.
        """
        jobs_on, new = self._gpu_occupancy.jobs_on, self.new_job(row)
        rows, batch = jobs_on_devices(self._gpu_occupancy, devices), int(self._jobs.batch[row])
        own = [[device for device in devices if one in jobs_on[device]] for one in rows]
        return decide_sharing(
            new,
            [self.partner(one, mine) for one, mine in zip(rows, own, strict=True)],
            lambda size: [self.mutual_slowdown(row, size if new.batch > 1 else batch, one, devices) for one in rows],
            caution,
            bound_caution,
            terms=self.guest_terms(row),
        )

    def sizes(self, row: int) -> tuple[int, ...]:
        """Sub-batches that a waiting job may run with, its batch first."""
        new = self.new_job(row)
        return new.sub_batches() if new.batch > 1 else (int(self._jobs.batch[row]),)

    def held_mib(self, row: int) -> float | None:
        """GPU memory that a running job holds; None if nobody knows."""
        if row not in self._held_mib:
            number = int(self._jobs.kind[row])
            footprint = None if number < 0 else self.models(self._jobs.kinds[number])[1]
            self._held_mib[row] = None if footprint is None else footprint.mib(int(self._jobs.sub_batch[row]))
        return self._held_mib[row]

    def free_mib(self, rows: Sequence[int], devices: Sequence[int]) -> float:
        """GPU memory that these running jobs leave on the worst of these devices; infinite where nobody knows theirs."""
        least = math.inf
        if np.isinf(self._snapshot.devices.memory_mib[list(devices)]).all():
            return least
        for device in devices:
            there = self._gpu_occupancy.jobs_on[device]
            if any(row in there for row in rows):
                held = [self.held_mib(row) for row in there]
                left = float(self._snapshot.devices.memory_mib[device]) - math.fsum(mib or 0.0 for mib in held)
                least = min(least, left if None not in held else math.inf)
        return least

    def partner(self, row: int, devices: Sequence[int]) -> Partner:
        """A running job whom a new one would join on these devices. Its work is at the pace that it has now."""
        pace = self.pace(row)
        consent = self.consent(row)
        bound = max(consent.max_slowdown / pace, 1.0)
        return Partner(self.left_s(row), self.free_mib([row], devices), Consent(consent.shares, bound))

    def mutual_slowdown(self, row: int, sub_batch: int, partner: int, devices: Sequence[int]) -> PairSlowdown | None:
        """What a new job and one partner do to each other on these devices, beside others there; None: nobody knows.

        The partner's is over the pace that it has now.
        """
        mine, its = self.kind(row, sub_batch), self.kind(partner)
        if mine is None or its is None:
            return None
        new = running = None
        for device in devices:
            rows = self._gpu_occupancy.jobs_on[device]
            if partner not in rows:
                continue
            kinds = [self.kind(one) for one in rows]
            there = [kind for kind in kinds if kind is not None]
            co_runners = [kind for one, kind in zip(rows, kinds, strict=True) if one != partner and kind is not None]
            if len(there) < len(rows) or not self.fit([mine, *there]):
                return None
            whole = self.kind(row)
            to_me = self.xi(mine, there) or (self.xi(whole, there) if whole is not None else None)
            to_it = self.xi(its, [*co_runners, mine]) or (
                self.xi(its, [*co_runners, whole]) if whole is not None else None
            )
            if to_me is None or to_it is None:
                return None
            new = to_me if new is None or to_me.value > new.value else new
            running = to_it if running is None or to_it.value > running.value else running
        if new is None or running is None:
            return None
        before = self.pace(partner) / self.accumulation_slowdown(partner)
        return PairSlowdown(
            new, replace(running, value=max(running.value, before) / before, error=running.error / before)
        )


def make_new_job(
    work_s: float,
    batch: int,
    throughput: Throughput | None,
    footprint: Footprint | None,
    consent: Consent,
    *,
    accumulates: bool,
) -> NewJob:
    """A job as Algorithm 2 takes it that needs ``work_s`` with its whole batch, alone.

    A job whose iteration times or batch (0) nobody knows does not accumulate: its batch counts as one sample. Memory that
    nobody knows counts as none: then others must tell who fits.
    """
    if throughput is None or batch < 1 or not throughput.iteration_s(batch):
        memory = _NO_FOOTPRINT if footprint is None else Footprint(footprint.mib(batch), 0.0)
        return NewJob(Throughput(1.0, 0.0), 1, work_s, memory, consent)
    iterations = work_s / throughput.iteration_s(batch)
    return NewJob(throughput, batch, iterations, footprint or _NO_FOOTPRINT, consent, accumulates)


def _add_slowdowns(pairs: Sequence[Estimate | None]) -> Estimate | None:
    known = [pair for pair in pairs if pair is not None]
    if len(known) < len(pairs):
        return None
    value = 1.0 + math.fsum(max(pair.value, 1.0) - 1.0 for pair in known)
    return Estimate(value, math.fsum(pair.error for pair in known), Source(max(pair.source for pair in known)))


def _accumulation_ratio(throughput: Throughput, batch: int, sub_batch: int) -> float:
    whole_s = throughput.iteration_s(batch)
    return throughput.iteration_s(batch, sub_batch) / whole_s if whole_s else 1.0
