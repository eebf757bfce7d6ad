"""The plan's verdict on every job, kept in its row for ``explain``: only what changed, a bounded number a cycle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Table, bindparam, update
from sqlalchemy.orm import Session

from slurm_soda.daemon.store.jobs.cached_job import CachedJob
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.policies.plan import JobNotes, JobVerdict
from slurm_soda.policies.snapshot import UnknownNodes

MAX_ROWS_PER_CYCLE = 1000
"""Rows a cycle: one job that starts moves ten thousand places, and those far behind can wait for their turn."""

_Values = tuple[int, int, int, float, int, int, int, float]


class JobNoteWriter:
    """Remembers what the store holds and writes the difference, most urgent jobs first."""

    def __init__(self) -> None:
        self._written: dict[int, _Values] = {}
        self._shares: dict[int, dict[str, Any]] = {}
        self._not_in_scope: dict[int, str] = {}

    def write(
        self,
        session: Session,
        notes: JobNotes,
        jobs: Mapping[int, CachedJob],
        shares: Mapping[int, dict[str, Any]],
        not_in_scope: Mapping[int, str] = MappingProxyType({}),
    ) -> int:
        """Write the notes that changed; gives their number.

        Args:
            session: writes.
            notes: of the plan.
            jobs: with their rows.
            shares: where jobs would share GPUs, by job id.
            not_in_scope: why jobs are not in scope, by job id.
        """
        none = np.zeros(len(notes.job_id), dtype=np.int64)
        columns = (
            notes.verdict,
            notes.queue,
            notes.position,
            _rounded(notes.score),
            notes.behind if len(notes.behind) else none,
            notes.unknown_nodes if len(notes.unknown_nodes) else none,
            notes.overdue if len(notes.overdue) else none,
            _rounded(_prices_told(notes)),
        )
        present = dict(zip(notes.job_id.tolist(), zip(*(c.tolist() for c in columns), strict=True), strict=True))
        changed = [
            job_id
            for job_id, note in present.items()
            if self._written.get(job_id) != note
            or self._shares.get(job_id) != shares.get(job_id)
            or self._not_in_scope.get(job_id) != not_in_scope.get(job_id)
        ]
        changed.sort(key=lambda job_id: (present[job_id][2] < 0, present[job_id][2]))
        rows = []
        for job_id in changed[:MAX_ROWS_PER_CYCLE]:
            job = jobs.get(job_id)
            if job is not None and job.pk is not None:
                share: dict[str, Any] = {"shares": shares[job_id]} if job_id in shares else {}
                share |= {"not_in_scope": not_in_scope[job_id]} if job_id in not_in_scope else {}
                rows.append({"pk": job.pk, "new_note": _note(present[job_id], notes.score_name) | share})
                self._written[job_id] = present[job_id]
                self._shares.pop(job_id, None)
                self._shares |= {job_id: shares[job_id]} if job_id in shares else {}
                self._not_in_scope.pop(job_id, None)
                self._not_in_scope |= {job_id: not_in_scope[job_id]} if job_id in not_in_scope else {}
        for job_id in self._written.keys() - present.keys():
            del self._written[job_id]
            self._shares.pop(job_id, None)
            self._not_in_scope.pop(job_id, None)
        if rows:
            table = Job.__table__
            assert isinstance(table, Table)
            statement = update(table).where(table.c.id == bindparam("pk")).values(note=bindparam("new_note"))
            session.connection().execute(statement, rows)
        return len(rows)


def _note(values: _Values, score_name: str) -> dict[str, Any]:
    verdict, queue, position, score, behind, unknown, overdue, price_s = values
    known = score if math.isfinite(score) else None
    name = JobVerdict(verdict).name.lower()
    note = {"verdict": name, "queue": queue, "position": position, "score": known, "score_name": score_name}
    unknown_nodes = UnknownNodes(unknown).name.lower() if unknown else ""
    rare: dict[str, Any] = {"behind": behind, "unknown_nodes": unknown_nodes, "overdue": bool(overdue)}
    rare |= {"price_s": price_s} if math.isfinite(price_s) else {}
    return note | {key: value for key, value in rare.items() if value}


def _prices_told(notes: JobNotes) -> NDArray[np.float64]:
    """Of jobs that are preempted, or that are not as it costs too much: those of others change with each second."""
    none = np.full(len(notes.job_id), np.nan)
    told = np.isin(notes.verdict, (JobVerdict.PREEMPT, JobVerdict.PROTECTED))
    return np.where(told, notes.price_s, none) if len(notes.price_s) else none


def _rounded(score: NDArray[np.float64]) -> NDArray[np.float64]:
    """Three significant digits: a running job's service grows all the time, and nobody reads its last digit."""
    finite = np.isfinite(score) & (score != 0)
    size = np.floor(np.log10(np.abs(np.where(finite, score, 1.0))))
    unit = 10.0 ** (size - 2)
    rounded: NDArray[np.float64] = np.where(finite, np.round(score / unit) * unit, np.where(score == 0, 0.0, -np.inf))
    return rounded
