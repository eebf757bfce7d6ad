"""Searches for jobs on several nodes: what their agents measure comes in, and orders go out with the answers.

The measurements in the store are the whole state, so a restarted sodad goes on where the last one was.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from slurm_soda.daemon.logs import log
from slurm_soda.daemon.settings.scheduling import CpuFitSettings
from slurm_soda.daemon.store.cpu_fit import find_job_at, measurements_of, prolog_record, search_was_given_up
from slurm_soda.daemon.store.tables.cpu_fit import CpuMeasurementRow
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.policies.cpu_fit.core_search import SearchRules
from slurm_soda.policies.cpu_fit.measurement import Measurement
from slurm_soda.policies.cpu_fit.multi_node_search import GangOrder, NodeMeasurement, decide_gang_order, give_up_search
from slurm_soda.policies.errors import PolicyError
from slurm_soda.wire.core_tuning import CoreFit, CoreMeasurement, CoreOrder
from slurm_soda.wire.records import NodeReport


def search_rules(settings: CpuFitSettings) -> SearchRules:
    """What the site says about searches."""
    return SearchRules(tolerance_ratio=settings.tolerance_ratio, free_unneeded=settings.free_unneeded)


SEARCH_TIMEOUT_S = 900.0
"""A search in which no node has measured anything for so long is given up: a job must not stay at a trial's cores."""

RunKey = tuple[int, int]
"""Job id and restart count."""


@dataclass(slots=True)
class _MultiNodeSearch:
    order: GangOrder | None
    parts: Sequence[NodeMeasurement]
    nodes: frozenset[str]
    heard_s: float
    """When something was last measured, by our own steady clock."""


@dataclass(slots=True)
class MultiNodeSearches:
    """Every run on several nodes that is being searched or has settled. Belongs to one thread."""

    rules: SearchRules = field(default_factory=SearchRules)
    _gangs: dict[RunKey, _MultiNodeSearch] = field(default_factory=dict)

    def recall(self, session: Session, steady_s: float) -> None:
        """Take up again what runs now, as the store has it."""
        self._gangs.clear()
        running = select(Job.job_id).where(Job.state == "RUNNING", Job.nodes > 1)
        query = select(CpuMeasurementRow.job_id).distinct().where(CpuMeasurementRow.job_id.in_(running))
        for job_id in session.scalars(query).all():
            newest = (
                select(CpuMeasurementRow)
                .where(CpuMeasurementRow.job_id == job_id)
                .order_by(CpuMeasurementRow.at_s.desc())
            )
            row = session.scalars(newest.limit(1)).one()
            self._renew(session, (row.job_id, row.restart), row.node, row.at_s, steady_s)

    def take(self, session: Session, report: NodeReport, steady_s: float) -> None:
        """Take in what a report said; its records are in the store already."""
        reported: list[CoreMeasurement | CoreFit] = [*report.core_measurements, *report.core_fits]
        for run, newest in {(one.job_id, one.restart): one for one in reported}.items():
            self._renew(session, run, newest.node, newest.at_s, steady_s)
        for closed in report.closed:
            self._gangs.pop((closed.job_id, closed.restart), None)

    def orders(self, node: str, steady_s: float) -> tuple[CoreOrder, ...]:
        """The latest order for every run of which this node is one."""
        found = []
        for (job_id, restart), gang in self._gangs.items():
            if gang.order is None or node not in gang.nodes:
                continue
            if not gang.order.settled and steady_s - gang.heard_s > SEARCH_TIMEOUT_S:
                log(logging.WARNING, "search-given-up", job=job_id, silent_s=steady_s - gang.heard_s)
                gang.order = give_up_search(gang.parts)
            o = gang.order
            found.append(CoreOrder(job_id, restart, o.search, o.step, o.cores, settled=o.settled, reason=o.reason))
        return tuple(found)

    def _renew(self, session: Session, run: RunKey, node: str, at_s: float, steady_s: float) -> None:
        job_id, restart = run
        job, opened = find_job_at(session, job_id, at_s), prolog_record(session, job_id, restart, node, at_s)
        reported = opened.record.get("nodes", 1) if opened is not None else 1
        count = max(int(reported), 1 if job is None else job.nodes)
        if count < 2:
            return
        if job is not None and job.end_s is not None:  # a late word on a run that is over
            self._gangs.pop(run, None)
            return
        since_s = job.submit_s if job is not None else opened.at_s if opened is not None else at_s
        parts = [_node_measurement(row) for row in measurements_of(session, job_id, since_s, restart)]
        if parts:
            order = self._order(session, run, parts, count, since_s)
            # A node that has not measured yet measures step 0, which needs no order.
            self._gangs[run] = _MultiNodeSearch(order, parts, frozenset(part.node for part in parts), steady_s)

    def _order(
        self, session: Session, run: RunKey, parts: Sequence[NodeMeasurement], nodes: int, since_s: float
    ) -> GangOrder | None:
        try:
            order = decide_gang_order(parts, nodes, self.rules)
        except PolicyError as error:
            log(logging.WARNING, "search-given-up", job=run[0], error=error)
            return give_up_search(parts)
        # One node that gives up takes the others with it.
        searching = order is not None and not order.settled
        return (
            give_up_search(parts)
            if order and searching and search_was_given_up(session, run, order.search, since_s)
            else order
        )


def _node_measurement(row: CpuMeasurementRow) -> NodeMeasurement:
    measurement = Measurement(row.cores, row.utilisation_ratio, row.spread_ratio, row.samples)
    return NodeMeasurement(row.node, row.search, row.step, row.most_cores, row.gpus, measurement)
