"""``/metrics`` and ``/metrics/nodes``.

An answer serves everybody who asks within a second, and is made in a thread beside the cycles.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from slurm_soda.daemon.api.kept_answers import KeptAnswers
from slurm_soda.daemon.clock import Clock
from slurm_soda.daemon.logs import LOGGER, log
from slurm_soda.daemon.metrics.cycle_meter import CycleMeter
from slurm_soda.daemon.metrics.node_board import NodeBoard
from slurm_soda.daemon.metrics.node_text import CONTENT_TYPE, node_text

MAX_AGE_S = 1.0
MAX_AGE_RATIO = 10
"""Making answers takes a tenth of the time at most, however often somebody asks."""
_OPENMETRICS = "application/openmetrics-text"
_SCRAPED = {True: f"{_OPENMETRICS};version=1.0.0", False: "text/plain;version=0.0.4"}
"""What is answered to who says that he reads OpenMetrics, and to all others."""


@dataclass(slots=True)
class MetricsRoutes:
    """Answers scrapes."""

    registry: CollectorRegistry
    meter: CycleMeter
    nodes: NodeBoard
    clock: Clock
    shows_nodes: Callable[[], bool]
    _answers: KeptAnswers = field(init=False)

    def __post_init__(self) -> None:
        self._answers = KeptAnswers(self.clock, 3)
        ProcessCollector(registry=self.registry)

    def routes(self) -> APIRouter:
        """The two paths."""
        router = APIRouter()
        router.get("/metrics")(self.site)
        router.get("/metrics/nodes")(self.by_node)
        return router

    async def site(self, request: Request) -> Response:
        """Of sodad, jobs, partitions, sharing and services."""
        accepted = _SCRAPED[_OPENMETRICS in request.headers.get("accept", "")]

        def encode() -> Response:
            encoder, content_type = choose_encoder(accepted)
            return Response(encoder(self.registry), media_type=content_type)

        return await self._answer(accepted, encode)

    async def by_node(self) -> Response:
        """Of each node, its GPUs and its agent."""
        if not self.shows_nodes():
            raise HTTPException(404, "metrics.nodes is false in sodad's configuration")

        def encode() -> Response:
            nodes = self.meter.figures.cluster.gpus_on
            return Response(node_text(nodes, self.nodes.signs(), self.clock.elapsed_s()), media_type=CONTENT_TYPE)

        return await self._answer("nodes", encode)

    async def _answer(self, what: str, encode: Callable[[], Response]) -> Response:
        async def make() -> Response:
            return await run_in_threadpool(encode)

        try:
            return await self._answers.get(what, make, lambda took_s: max(MAX_AGE_S, MAX_AGE_RATIO * took_s))
        except Exception as error:  # whatever it is, sodad goes on, and so do the other path and the next scrape
            log(logging.WARNING, "metrics-failed", path=what, error=f"{type(error).__name__}: {error}")
            LOGGER.debug("unexpected", exc_info=True)
            raise HTTPException(503, "the metrics could not be made; sodad's log says why") from error
