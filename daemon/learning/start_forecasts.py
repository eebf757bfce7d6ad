"""When waiting jobs are expected to start: forecast a little in each cycle, and compared with what came of it.

Whatever goes wrong here is logged and changes nothing else: ``sodactl explain`` then says nothing of a start.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Clock, Instant
from slurm_soda.daemon.logs import LOGGER, log
from slurm_soda.daemon.store import start_forecasts as stored
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.jobs.cached_job import CachedJob
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.start_forecasts import Interval, KeptForecast
from slurm_soda.policies.expected_starts.calibration import WINDOW, IntervalScore, StartCalibration, StartOutcome
from slurm_soda.policies.expected_starts.forecast import ForecastInProgress, StartForecast
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.snapshot import ClusterSnapshot

FORECAST_EVERY_S = 60.0
"""Between the beginnings of two forecasts at least."""
WITHIN_S = 0.1
"""One cycle's share; the rest of a forecast waits for the next cycle."""
REPEAT_EVERY_S = 3600.0
"""So often is a forecast of a job that waits kept, to be compared with its start."""
MAX_OPEN_PER_OWNER = 50
"""Forecasts of one owner's jobs that are kept at once: nobody's many jobs decide how right forecasts seem."""
MAX_KEPT, MAX_WRITTEN = 500, 1000
"""Rows of one forecast that are added to those kept, and that are written for people; the most urgent jobs first."""
CHANGE_S, CHANGE_RATIO = 60.0, 0.1
"""A forecast is written anew where an end moved by more than this, or this part of the wait left."""


@dataclass(slots=True)
class StartForecaster:
    """Forecasts of one run of the daemon."""

    store: Store
    clock: Clock
    score: IntervalScore | None = None
    """How right the last ones were, those that jobs have waited beyond included; ``None``: none was made yet."""
    _present: ForecastInProgress | None = None
    _next_s: float = -math.inf
    """By the steady clock."""
    _seed: int = 0
    _open: dict[int, list[KeptForecast]] | None = None
    """Forecasts whose outcome is not known, by the key of the job; ``None``: not read yet."""
    _outcomes: list[StartOutcome] = field(default_factory=list)
    _written: dict[int, Interval] = field(default_factory=dict)
    """What the store says, in Unix seconds by the key of the job."""
    _failing: str = ""

    def step(self, at: Instant, snapshot: ClusterSnapshot, plan: Plan | None, job_cache: JobCache) -> None:
        """Some futures more; where these are enough, what they tell. ``plan``: None where nothing is decided."""
        try:
            if self._present is None and at.steady_s >= self._next_s:
                self._next_s = at.steady_s + FORECAST_EVERY_S
                self._seed += 1
                self._present = ForecastInProgress(snapshot, plan, self._seed)
            if self._present is None:
                return
            began_s = self.clock.elapsed_s()
            while not self._present.complete and self.clock.elapsed_s() < began_s + WITHIN_S:
                self._present.step()
            if self._present.complete:
                found, self._present = self._present.result(), None
                self._conclude(found, job_cache)
            self._failing = ""
        except Exception as error:  # noqa: BLE001 - see above
            self._present = self._open = None
            if self._failing != repr(error):
                self._failing = repr(error)
                log(logging.WARNING, "starts-not-forecast", error=f"{type(error).__name__}: {error}")
                LOGGER.debug("unexpected", exc_info=True)

    def _conclude(self, drawn: StartForecast, job_cache: JobCache) -> None:
        waiting = {job_id: job for job_id in drawn.job_id.tolist() if (job := _waiting(job_cache, job_id)) is not None}
        with self.store.write() as session:
            if self._open is None:
                self._recall(session)
            kept = self._settle(session, {job.pk for job in waiting.values() if job.pk is not None})
            late = [one.outcome(drawn.now_s) for one in kept if drawn.now_s > one.at_s + one.calibrated_s[2]]
            calibration = StartCalibration([*self._outcomes, *late])
            self.score, told = calibration.score, calibration.apply(drawn)
            rows = _rows(drawn, told, waiting)
            made = stored.keep_forecasts(session, self._choose(rows, waiting, kept))
            changed, gone = self._changed(rows), self._written.keys() - {row.job_pk for row in rows}
            stored.put_expected_starts(session, changed, gone, drawn.now_s)
        self._written = {job_pk: ends for job_pk, ends in self._written.items() if job_pk not in gone} | changed
        self._open = {}
        for one in (*kept, *made):
            self._open.setdefault(one.job_pk, []).append(one)

    def _recall(self, session: Session) -> None:
        """Go on from what the store has."""
        self._open = {}
        for one in stored.open_forecasts(session):
            self._open.setdefault(one.job_pk, []).append(one)
        self._outcomes = stored.newest_outcomes(session)
        self._written = stored.expected_starts(session)

    def _settle(self, session: Session, waiting: set[int]) -> list[KeptForecast]:
        """Note what became of jobs that no longer wait; gives the forecasts that stay open."""
        left = [job_pk for job_pk in self._open or {} if job_pk not in waiting]
        starts, ended = stored.starts_of(session, left), stored.ended_jobs(session, left)
        stay, started, void = list[KeptForecast](), dict[int, float](), list[int]()
        for job_pk, forecasts in (self._open or {}).items():
            for one in forecasts:
                # Slurm tells starts in whole seconds.
                start_s = next((start_s for start_s in starts.get(job_pk, ()) if start_s >= one.at_s - 1.0), None)
                if start_s is not None:
                    started[one.row_id] = start_s
                    self._outcomes.append(one.outcome(start_s))
                elif job_pk in ended:
                    void.append(one.row_id)
                else:
                    stay.append(one)
        stored.note_starts(session, started)
        stored.drop_forecasts(session, void)
        del self._outcomes[:-WINDOW]
        return stay

    def _choose(
        self, rows: list[KeptForecast], waiting: Mapping[int, CachedJob], kept: list[KeptForecast]
    ) -> list[KeptForecast]:
        """Forecasts to keep: a job's first, and one an hour."""
        owners = {job.pk: job.record.user if job.record else "" for job in waiting.values()}
        newest: dict[int, float] = {}
        for one in kept:
            newest[one.job_pk] = max(one.at_s, newest.get(one.job_pk, -math.inf))
        count = Counter(owners.get(one.job_pk, "") for one in kept)
        chosen: list[KeptForecast] = []
        for row in rows:
            owner = owners[row.job_pk]
            fits_now = row.drawn_s[2] == 0.0  # which says nothing of how right forecasts are
            due = not fits_now and row.at_s >= newest.get(row.job_pk, -math.inf) + REPEAT_EVERY_S
            if due and count[owner] < MAX_OPEN_PER_OWNER and len(chosen) < MAX_KEPT:
                count[owner] += 1
                chosen.append(row)
        return chosen

    def _changed(self, rows: list[KeptForecast]) -> dict[int, Interval]:
        """What people should be told anew, in Unix seconds by the key of the job."""
        changed: dict[int, Interval] = {}
        for row in rows:
            ends = (row.at_s + row.calibrated_s[0], row.at_s + row.calibrated_s[1], row.at_s + row.calibrated_s[2])
            before, slack_s = self._written.get(row.job_pk), max(CHANGE_S, CHANGE_RATIO * row.calibrated_s[1])
            if before is None or not all(_close(*pair, slack_s) for pair in zip(before, ends, strict=True)):
                changed[row.job_pk] = ends
            if len(changed) == MAX_WRITTEN:
                break
        return changed


def _waiting(job_cache: JobCache, job_id: int) -> CachedJob | None:
    job = job_cache.jobs.get(job_id)
    waits = job is not None and job.pk is not None and job.end_s is None and job.state == "PENDING"
    return job if waits else None


def _rows(drawn: StartForecast, told: StartForecast, waiting: Mapping[int, CachedJob]) -> list[KeptForecast]:
    """The forecasts of jobs that wait, the most urgent first."""
    columns = [(one.low_s.tolist(), one.median_s.tolist(), one.high_s.tolist()) for one in (drawn, told)]
    ends = (list(zip(*three, strict=True)) for three in columns)
    return [
        KeptForecast(0, job.pk, drawn.now_s, drawn_s, calibrated_s)
        for job_id, drawn_s, calibrated_s in zip(drawn.job_id.tolist(), *ends, strict=True)
        if (job := waiting.get(job_id)) is not None and job.pk is not None
    ]


def _close(one_s: float, other_s: float, slack_s: float) -> bool:
    return one_s == other_s or abs(one_s - other_s) <= slack_s
