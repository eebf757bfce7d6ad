"""Everything about metrics in one sodad: where to note what happens, and the endpoint, if one is configured."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.cycle.cycle_outcome import CycleOutcome
from slurm_soda.daemon.cycle.daemon_state import DaemonContext
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.metrics.endpoint import MetricsEndpoint, bind_metrics
from slurm_soda.daemon.metrics.node_board import NodeBoard
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.wire.records import NodeReport


@dataclass(frozen=True, slots=True)
class SiteMetrics:
    """Nothing is counted where nobody can ask."""

    on_cycle: Callable[[CycleOutcome], None] = lambda _outcome: None
    on_report: Callable[[NodeReport], None] = lambda _report: None
    endpoint: MetricsEndpoint | None = None
    problems: tuple[str, ...] = ()
    """Why there is no endpoint although one is configured, for people."""


def begin_metrics(context: DaemonContext, settings: Callable[[], Settings]) -> SiteMetrics:
    """Bind what is configured. An address that cannot be bound keeps no job from being scheduled: it is said, and all else
    goes on.
    """
    try:
        bound = bind_metrics(settings().metrics)
    except SodaError as error:
        log(logging.ERROR, "no-metrics", error=error)
        return SiteMetrics(problems=(str(error),))
    if bound is None:
        return SiteMetrics()
    # 0.07 s and 1 MB, of which a site without metrics is spared.
    from slurm_soda.daemon.metrics.cycle_meter import CycleMeter  # noqa: PLC0415 - see above
    from slurm_soda.daemon.metrics.routes import MetricsRoutes  # noqa: PLC0415 - see above
    from slurm_soda.daemon.metrics.site_collector import SiteCollector  # noqa: PLC0415 - see above

    clock, nodes = context.clock, NodeBoard()
    try:
        with context.store.read() as session:
            nodes.recall(session, Instant.read(clock))
    except (SQLAlchemyError, StoreError) as error:  # agents report again within half a minute
        log(logging.WARNING, "agents-not-recalled", error=error)
    meter = CycleMeter(context.guests, nodes)
    meter.registry.register(SiteCollector(meter, nodes, context.services, context.store, clock))
    routes = MetricsRoutes(meter.registry, meter, nodes, clock, lambda: settings().metrics.nodes)
    return SiteMetrics(
        meter.note, lambda report: nodes.note(report, Instant.read(clock)), MetricsEndpoint(bound, routes.routes())
    )
