"""The two transactions of a cycle: what will be sent, before it is sent; and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurm_soda.daemon.arrays.side import ArraySide
from slurm_soda.daemon.epoch import Life
from slurm_soda.daemon.preemption import Preempting
from slurm_soda.daemon.preemptions import Urge
from slurm_soda.daemon.rails import Passed
from slurm_soda.daemon.sending import Recorded
from slurm_soda.daemon.sight import Sight
from slurm_soda.daemon.store import ledger
from slurm_soda.daemon.store.book import JobBook
from slurm_soda.daemon.store.cores import prune_measurements, save_starts
from slurm_soda.daemon.store.cores_schema import CoreStart
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.ledger import Intent, Outcome
from slurm_soda.daemon.store.notes import NoteWriter
from slurm_soda.daemon.store.preemptions import add_preemptions, save_phases
from slurm_soda.policies.plan import Plan
from slurm_soda.slurm_ext.actuator import Change

KEEP_IDLE_CYCLES_S = 86_400.0
"""Cycles that changed nothing are kept this long."""

KEEP_MEASUREMENTS_S = 90 * 86_400.0
"""What was measured of jobs' cores is kept this long; what was found is kept."""

PRUNE_EVERY = 500

MOST_SHOWN = 50
"""Starts and preemptions of a plan that a cycle's row names."""


@dataclass(slots=True)
class Work:
    """One cycle in the making: what the plan wants and what may be done about it."""

    sight: Sight
    plan: Plan | None
    urges: list[Urge]
    """Steps of preemptions, those that begin included."""
    begun: list[Preempting]
    """Preemptions that begin with this cycle; others that the rails held back are forgotten."""
    changed: list[Preempting]
    """Preemptions whose phase changed by what Slurm shows."""
    settled: list[Outcome]
    """Changes of earlier cycles whose outcome is known now."""
    planned: int
    passed: Passed
    starts: Sequence[CoreStart] = ()
    """New thoughts about waiting jobs' requests."""
    cycle_id: int = 0
    """Key of the cycle's row, once it is recorded."""
    outcomes: list[Outcome] = field(default_factory=list)
    """Of the changes that were sent, in their order."""


@dataclass(frozen=True, slots=True)
class Recorder:
    """Writes cycles down, for one life of the daemon."""

    store: Store
    life: Life

    def intend(
        self, work: Work, book: JobBook, arrays: ArraySide, *, now_s: float, mode: str, policy: str
    ) -> list[Recorded]:  # fmt: skip
        """First transaction: everything known, and every change that is about to be sent.

        Raises:
            SupersededError: a newer daemon has taken over; nothing was written.
        """
        by_change = {id(urge.change): urge.preempting for urge in work.urges}
        with self.store.write() as session:
            self.life.check(session)
            self.life.beat(session, now_s)
            work.cycle_id = ledger.open_cycle(
                session, epoch_id=self.life.epoch_id, started_s=now_s, mode=mode, policy=policy
            )  # fmt: skip
            ledger.settle(session, work.settled, now_s)
            save_phases(session, work.changed, now_s)
            add_preemptions(session, work.begun)
            book.save(session, now_s)
            arrays.save(session)
            save_starts(session, work.starts)
            intents = [_intent(change, by_change.get(id(change)), book) for change in work.passed.changes]
            keys = ledger.intend(
                session, intents, epoch_id=self.life.epoch_id, cycle_id=work.cycle_id, now_s=now_s
            )  # fmt: skip
        book.saved()
        arrays.saved()
        return list(zip(keys, work.passed.changes, strict=True))

    def close(
        self, work: Work, book: JobBook, notes: NoteWriter, *, now_s: float, columns: Callable[[], Mapping[str, Any]]
    ) -> None:
        """Second transaction: what became of it all."""
        moved = [urge.preempting for urge in work.urges if urge.preempting.pk]
        with self.store.write() as session:
            ledger.settle(session, work.outcomes, now_s)
            save_phases(session, moved, now_s)
            book.save(session, now_s)
            if work.plan is not None:
                notes.write(session, work.plan.notes, book.jobs)
            ledger.close_cycle(session, work.cycle_id, **columns())
            if work.cycle_id % PRUNE_EVERY == 0:
                ledger.prune_cycles(session, before_s=now_s - KEEP_IDLE_CYCLES_S)
                prune_measurements(session, before_s=now_s - KEEP_MEASUREMENTS_S)
        book.saved()

    def fail(self, *, now_s: float, mode: str, policy: str, columns: Mapping[str, Any]) -> None:
        """A cycle that did nothing, and why."""
        with self.store.write() as session:
            self.life.check(session)
            self.life.beat(session, now_s)
            cycle_id = ledger.open_cycle(
                session, epoch_id=self.life.epoch_id, started_s=now_s, mode=mode, policy=policy
            )  # fmt: skip
            ledger.close_cycle(session, cycle_id, **columns)


def _intent(change: Change, preempting: Preempting | None, book: JobBook) -> Intent:
    return Intent(change, book.submit_s(change.job_id), preempting.pk if preempting else None)


def shown_plan(plan: Plan) -> dict[str, Any]:
    """The heart of a plan as plain data, for people; long lists are cut."""
    preempts: Sequence[dict[str, Any]] = [
        {"job_id": wish.job_id, "for_jobs": list(wish.for_jobs)[:MOST_SHOWN], "reason": wish.reason}
        for wish in plan.preempts[:MOST_SHOWN]
    ]
    return {
        "starts": plan.starts[:MOST_SHOWN].tolist(),
        "preempts": list(preempts),
        "promoted": plan.promoted[:MOST_SHOWN].tolist(),
    }
