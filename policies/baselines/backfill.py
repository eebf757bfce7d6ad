"""EASY backfill: jobs behind a blocked one may start where they do not delay it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np

from slurm_soda.policies.engine.backfill_reservations import ReservationCalendar
from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.placement_pass import PlacementPass, RefusedShapes
from slurm_soda.policies.engine.plan_builder import build_plan, find_rankable_rows, rank_rows
from slurm_soda.policies.engine.run_time_estimates import LIMIT, estimate_ends_s, estimate_runs_s
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, IntColumn

DEFAULT_DEPTH = 500
"""Slurm's default of bf_max_job_test: how many jobs one pass of sched/backfill looks at."""
_ROUNDING_TURNS = 1e-6


@dataclass(frozen=True, slots=True)
class Backfill:
    """FIFO by submit time with EASY backfill (Lifka, The ANL/IBM SP Scheduling System, 1995); nothing is preempted.

    Attributes:
        estimate: which run time counts, one of :data:`.run_time_estimates.ESTIMATES`.
        depth: how many jobs behind blocked ones are looked at, over all partitions.
        reservations: how many blocked jobs of a partition nobody may delay. One is EASY; Slurm's sched/backfill keeps
            room for every job that it looks at, each of which costs time here.
        whole_nodes: a reservation keeps its nodes whole, as sched/backfill's does, whose plan is a set of nodes for
            each span of time: no job starts on one that does not end before.
        interval_s: Slurm decides in two steps. When something happens, its main loop starts jobs in order up to the
            first that does not fit; those behind it get their turn at the multiples of this (bf_interval). 0: at once.
    """

    estimate: str = LIMIT
    depth: int = DEFAULT_DEPTH
    reservations: int = 1
    whole_nodes: bool = False
    interval_s: float = 0.0

    @property
    def name(self) -> str:
        return "backfill"

    @property
    def starts_only(self) -> Literal[True]:
        return True

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """O(n log n) in jobs, O(log m) in nodes for each start, and O(m log n) for each partition's reservation."""
        jobs = snapshot.jobs
        ranked = rank_rows(jobs, find_rankable_rows(snapshot), jobs.submit_s)
        placing = PlacementPass(snapshot)
        turn_s = find_next_turn_s(snapshot.now_s, self.interval_s)
        if turn_s > snapshot.now_s:
            placing.start_fitting(ranked, skip=False)
            return build_plan(
                placing, self.name, ranked, score=jobs.submit_s, score_name="submit_s", next_event_s=turn_s
            )
        reserved_in_s = start_and_backfill(
            placing,
            ranked,
            estimate=self.estimate,
            depth=self.depth,
            reservations=self.reservations,
            whole_nodes=self.whole_nodes,
        )
        return build_plan(
            placing, self.name, ranked, score=jobs.submit_s, score_name="submit_s", reserved_in_s=reserved_in_s
        )


def find_next_turn_s(now_s: float, interval_s: float) -> float:
    """The first multiple of an interval that is not before now; ``now_s`` itself where it misses one by rounding."""
    if not interval_s:
        return now_s
    turns = now_s / interval_s
    if abs(turns - round(turns)) < _ROUNDING_TURNS:
        return now_s
    return math.ceil(turns) * interval_s


def start_and_backfill(
    placing: PlacementPass,
    ranked: IntColumn,
    *,
    estimate: str,
    depth: int,
    reservations: int = 1,
    whole_nodes: bool = False,
) -> FloatColumn:
    """Give waiting jobs what is free now, in order; returns in how many seconds room is reserved for each job.

    Each of a partition's first ``reservations`` jobs that do not fit gets one, at the earliest time at which running jobs
    are expected to have made room for it, on certain nodes. Whoever ranks behind it, in any partition, may start if it
    ends before that time or leaves the reservation what it needs. A job that no end of another one makes room for (nodes
    are down) is passed. NaN where nothing is reserved.

    One search for room for each job until its partition is blocked, then for at most ``depth`` of the others.
    """
    snapshot = placing.snapshot
    now_s = snapshot.now_s
    run_s = estimate_runs_s(snapshot, estimate)
    calendar = ReservationCalendar(
        snapshot, placing.free_capacity.now, estimate_ends_s(snapshot, estimate), whole_nodes=whole_nodes
    )
    reserved_in_s = np.full(len(snapshot.jobs), np.nan)
    refusals: dict[tuple[int, ...], RefusedShapes] = {}
    blocked: Counter[int] = Counter()
    hopeless: set[int] = set()
    looked_at = 0
    rows = placing.candidates(ranked)
    columns = (rows.tolist(), placing.demand.code[rows].tolist(), run_s[rows].tolist())
    for row, code, run in zip(*columns, strict=True):
        shape = placing.demand.shapes[code]
        if blocked[shape.partition]:
            if looked_at >= depth:
                continue
            looked_at += 1
        elif code in hopeless:
            continue
        minded = calendar.find_delayed(shape, now_s + run)
        refused = refusals.setdefault(minded, RefusedShapes())
        known = refused.cover(shape)
        pieces = None if known else calendar.lane(minded).find(shape)
        if pieces is not None:
            placing.claim(row, JobPlacement(pieces, at_once=True))
            calendar.start(pieces, now_s + run)
            continue
        if not known:
            refused.add(shape)
        if blocked[shape.partition] < reservations and code not in hopeless:
            made = calendar.reserve(shape, run)
            if made is None:
                hopeless.add(code)
            else:
                blocked[shape.partition] += 1
                reserved_in_s[row] = made.start_s - now_s
    return reserved_in_s
