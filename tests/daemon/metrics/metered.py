"""Daemons and servers with metrics, and what they show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from slurm_soda.daemon.clock import Clock, Instant
from slurm_soda.daemon.metrics.cycle_meter import CycleMeter
from slurm_soda.daemon.metrics.node_board import NodeBoard
from slurm_soda.daemon.metrics.node_text import node_text
from slurm_soda.daemon.metrics.site_collector import SiteCollector
from slurm_soda.daemon.services.service_board import ServiceBoard
from slurm_soda.daemon.sharing.co_runners import GuestsByNode
from slurm_soda.daemon.store.engine import Store
from slurm_soda.wire.records import NodeReport
from tests.daemon.harness import Daemon

Series = Mapping[tuple[str, ...], float]
"""Value by name and labels: ``("soda_agents", "state=silent")``."""


def parsed(text: bytes) -> list[Metric]:
    """Families as Prometheus' own parser in Python reads them."""
    return list(text_string_to_metric_families(text.decode()))


def series(text: bytes) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for family in parsed(text):
        for sample in family.samples:
            key = (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items())))
            assert key not in found, f"{key} twice"
            found[key] = sample.value
    return found


def names(text: bytes) -> set[str]:
    """Names of families as the catalogue has them."""
    return {family.name + ("_total" if family.type == "counter" else "") for family in parsed(text)}


@dataclass
class Metered:
    """Metrics over one store."""

    store: Store
    clock: Clock
    guests: GuestsByNode = field(default_factory=GuestsByNode)
    services: ServiceBoard = field(default_factory=ServiceBoard)
    nodes: NodeBoard = field(default_factory=NodeBoard)
    meter: CycleMeter = field(init=False)

    def __post_init__(self) -> None:
        self.meter = CycleMeter(self.guests, self.nodes)
        self.meter.registry.register(SiteCollector(self.meter, self.nodes, self.services, self.store, self.clock))

    @classmethod
    def of(cls, daemon: Daemon) -> Metered:
        """Of a daemon, which tells it of its cycles from now on."""
        context = daemon.cycles._context
        metered = cls(context.store, context.clock, context.guests, context.services)
        daemon.cycles.on_cycle = metered.meter.note
        return metered

    def report(self, report: NodeReport) -> None:
        self.nodes.note(report, Instant.read(self.clock))

    def text(self) -> bytes:
        return generate_latest(self.meter.registry)

    def shown(self) -> dict[tuple[str, ...], float]:
        return series(self.text())

    def node_text(self) -> bytes:
        return node_text(self.meter.figures.cluster.gpus_on, self.nodes.signs(), self.clock.elapsed_s())

    def shown_nodes(self) -> dict[tuple[str, ...], float]:
        return series(self.node_text())
