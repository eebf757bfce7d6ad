"""Dominant Resource Fairness between users: the one that holds the least starts its next job."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.engine.backfill_reservations import STATES_HOLDING_RESOURCES
from slurm_soda.policies.engine.demand import Demand, RequestColumns
from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.placement_pass import PlacementPass, RefusedShapes
from slurm_soda.policies.engine.plan_builder import build_plan, find_rankable_rows, rank_rows
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.session.drf import DrfQueueKey, DrfSession
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, IntColumn, JobState, NodeTable


@dataclass(frozen=True, slots=True)
class Drf:
    """Progressive filling (Ghodsi et al., Dominant Resource Fairness, NSDI 2011, Algorithm 1); nothing is preempted.

    A user's dominant share is the largest part of the cluster's GPUs, CPUs or memory that its jobs hold. A user's jobs
    stand in lines by submit time, one line for each partition and for jobs with and without GPUs. The first job of a
    line that does not fit holds up its line and nobody else.

    Attributes:
        name: ``drf`` or ``kelp-drf``.
        gpus_only: GPUs alone make the share, as in SODA's baseline KELP-DRF (Section VI-A).
    """

    name: str = "drf"
    gpus_only: bool = False

    @property
    def starts_only(self) -> Literal[True]:
        return True

    def session(self, jobs: RequestColumns, demand: Demand, nodes: NodeTable) -> DrfSession:
        """This policy for a simulation, from event to event."""
        return DrfSession(jobs, demand, nodes, gpus_only=self.gpus_only)

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """O(n log n) in jobs plus O(log m + log lines) for each start and each line."""
        shares = DominantShares(snapshot, gpus_only=self.gpus_only)
        score = shares.of_users()[snapshot.jobs.user] if len(snapshot.jobs) else np.zeros(0)
        placing = PlacementPass(snapshot)
        by_submission = rank_rows(snapshot.jobs, find_rankable_rows(snapshot), snapshot.jobs.submit_s)
        started = _fill(placing, by_submission, shares)
        return build_plan(
            placing,
            self.name,
            _order_all_jobs(placing, by_submission, started, shares),
            score=score,
            score_name="dominant_share_ratio",
        )


class DominantShares:
    """What users' jobs hold, in whole amounts, so that equal shares compare equal."""

    def __init__(self, snapshot: ClusterSnapshot, *, gpus_only: bool) -> None:
        """Running, suspended and completing jobs hold what they asked for; the whole is what usable nodes have."""
        jobs, nodes = snapshot.jobs, snapshot.nodes
        asked = (jobs.gpus,) if gpus_only else (jobs.gpus, jobs.cpus, jobs.memory_mib)
        whole = (nodes.gpus,) if gpus_only else (nodes.gpus, nodes.cpus, nodes.memory_mib)
        totals = [int(column[nodes.usable].sum()) for column in whole]
        self.asked = np.stack(asked, axis=1) if len(jobs) else np.zeros((0, len(asked)), dtype=np.int64)
        """Shape (jobs, resources)."""
        self.totals: NDArray[np.float64] = np.array([total or np.inf for total in totals])
        self.held = np.zeros((int(jobs.user.max(initial=-1)) + 1, len(asked)), dtype=np.int64)
        """Shape (users, resources)."""
        holding = np.isin(jobs.state, STATES_HOLDING_RESOURCES)
        np.add.at(self.held, jobs.user[holding], self.asked[holding])

    def of_users(self) -> FloatColumn:
        """Dominant share of each user."""
        share: FloatColumn = np.max(self.held / self.totals, axis=1, initial=0.0)
        return share

    def before(self, users: IntColumn, rows: IntColumn) -> FloatColumn:
        """The share that each of these jobs' users would have if the user's earlier ones among them all ran."""
        by_user = np.argsort(users, kind="stable")
        asked, user = self.asked[rows[by_user]], users[by_user]
        through = np.cumsum(asked, axis=0) - asked
        first = np.searchsorted(user, user, side="left")
        share = np.max((self.held[user] + through - through[first]) / self.totals, axis=1, initial=0.0)
        result = np.empty(len(rows))
        result[by_user] = share
        return result


def _fill(placing: PlacementPass, by_submission: IntColumn, shares: DominantShares) -> list[int]:
    """Start the next job of the user with the smallest share among those whose next job fits; rows as they start.

    Equal shares: the job that was submitted first. Room only shrinks, so a line whose first job does not fit is out.
    """
    jobs, demand = placing.snapshot.jobs, placing.demand
    rows = placing.candidates(by_submission)
    lines: dict[DrfQueueKey, list[tuple[int, int]]] = {}
    for position, (row, user, code) in enumerate(
        zip(rows.tolist(), jobs.user[rows].tolist(), demand.code[rows].tolist(), strict=True)
    ):
        shape = demand.shapes[code]
        lines.setdefault((user, shape.partition, shape.wants_gpus), []).append((position, row))
    for queue in lines.values():
        queue.reverse()
    share: list[float] = shares.of_users().tolist()
    totals, held = shares.totals.tolist(), shares.held.tolist()
    heap = [(share[line[0]], queue[-1][0], line) for line, queue in lines.items()]
    heapify(heap)
    refusals = RefusedShapes()
    started: list[int] = []
    while heap:
        known, position, line = heappop(heap)
        user = line[0]
        if known < share[user]:  # another line of the user has moved on meanwhile
            heappush(heap, (share[user], position, line))
            continue
        _, row = lines[line].pop()
        shape = demand.shapes[demand.code.item(row)]
        pieces = None if refusals.cover(shape) else placing.free_capacity.now.find(shape)
        if pieces is None:
            refusals.add(shape)
            continue
        placing.claim(row, JobPlacement(pieces, at_once=True))
        started.append(row)
        held[user] = [has + more for has, more in zip(held[user], shares.asked[row].tolist(), strict=True)]
        share[user] = max(has / total for has, total in zip(held[user], totals, strict=True))
        if lines[line]:
            heappush(heap, (share[user], lines[line][-1][0], line))
    shares.held = np.array(held, dtype=np.int64).reshape(shares.held.shape)
    return started


def _order_all_jobs(
    placing: PlacementPass, by_submission: IntColumn, started: list[int], shares: DominantShares
) -> IntColumn:
    """Running jobs, those that start, the others as the filling would go on if there were room, the impossible ones."""
    jobs = placing.snapshot.jobs
    state, verdict = jobs.state[by_submission], placing.verdict[by_submission]
    running = by_submission[state == JobState.RUNNING]
    waiting = by_submission[verdict == JobVerdict.WAIT]
    never = by_submission[verdict == JobVerdict.TOO_LARGE]
    in_turn = waiting[np.argsort(shares.before(jobs.user[waiting], waiting), kind="stable")]
    return np.concatenate((running, np.array(started, dtype=np.int64), in_turn, never))
