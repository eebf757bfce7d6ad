"""What ``/metrics`` shows beside counters: figures of the last cycle, agents, services and store, read when somebody asks.

Everything comes from memory but the size of the store's files; nothing asks Slurm, and nothing waits for a cycle.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slurm_soda.daemon.clock import Clock
from slurm_soda.daemon.logs import LOGGER, log
from slurm_soda.daemon.metrics.catalog import BY_NAME
from slurm_soda.daemon.metrics.cycle_meter import CycleMeter
from slurm_soda.daemon.metrics.node_board import NodeBoard
from slurm_soda.daemon.services.service_board import ServiceBoard
from slurm_soda.daemon.settings.settings import MODES
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.store_file import log_files
from slurm_soda.wire.services.instance_file import STATES
from slurm_soda.wire.services.service_profile import DEVICES

Values = Mapping[str, float] | Mapping[tuple[str, str], float] | float
"""One value, or a value for each label, or for each set of them."""


@dataclass(frozen=True, slots=True, eq=False)
class SiteCollector(Collector):
    """Makes the gauges, and counters that are kept elsewhere. One section that fails takes no other with it."""

    meter: CycleMeter
    nodes: NodeBoard
    services: ServiceBoard
    store: Store
    clock: Clock
    _failing: dict[str, str] = field(default_factory=dict)

    def collect(self) -> Iterator[Metric]:
        """All families."""
        sections: Mapping[str, Callable[[], Iterable[Metric]]] = {
            "daemon": self._daemon,
            "jobs": self._jobs,
            "gpus": self._gpus,
            "sharing": self._sharing,
            "forecasts": self._forecasts,
            "store": self._store,
            "agents": self._agents,
            "services": self._services,
        }
        failed = dict.fromkeys(sections, 0.0)
        for name, section in sections.items():
            try:
                made = list(section())
            except Exception as error:  # noqa: BLE001 - whatever is wrong there, the others are of use
                failed[name] = 1.0
                self._tell(name, error)
            else:
                self._failing.pop(name, None)
                yield from made
        yield _family("soda_metrics_section_failed", failed)

    def _tell(self, section: str, error: Exception) -> None:
        if self._failing.get(section) != repr(error):
            self._failing[section] = repr(error)
            log(logging.WARNING, "metrics-failed", section=section, error=f"{type(error).__name__}: {error}")
            LOGGER.debug("unexpected", exc_info=True)

    def _daemon(self) -> Iterator[Metric]:
        figures = self.meter.figures
        yield _family("soda_build_info", {version("slurm-soda"): 1})
        if not figures.last_s:
            return
        yield _family("soda_mode", {mode: mode == figures.mode for mode in MODES})
        yield _family("soda_policy_info", {figures.policy: 1})
        yield _family("soda_cycle_last_timestamp_seconds", figures.last_s)
        yield _family("soda_cycle_last_success_timestamp_seconds", figures.success_s)
        yield _family("soda_cycle_interval_seconds", figures.interval_s)
        yield _family("soda_breaker_open", self.clock.elapsed_s() < figures.breaker_open_until_s)
        yield _family("soda_breaker_failures", figures.breaker_failures)
        yield _family("soda_changes_deferred", figures.deferred)
        yield _family("soda_preemptions_active", figures.preempting)

    def _jobs(self) -> Iterator[Metric]:
        if not self.meter.figures.success_s:
            return
        cluster = self.meter.figures.cluster
        for name in ("pending", "eligible", "running", "gpus_pending", "gpus_alloc"):
            yield _family(f"soda_jobs_{name}", getattr(cluster.jobs, name))
            values = {partition: getattr(jobs, name) for partition, jobs in cluster.jobs_in.items()}
            yield _family(f"soda_partition_jobs_{name}", values)
        yield _family("soda_scope_jobs", cluster.scope_jobs)

    def _gpus(self) -> Iterator[Metric]:
        if not self.meter.figures.success_s:
            return
        cluster = self.meter.figures.cluster
        yield _family("soda_gpus", cluster.gpus.gpus)
        for name in ("alloc", "idle", "shared"):
            yield _family(f"soda_gpus_{name}", getattr(cluster.gpus, name))
        yield _family("soda_partition_gpus", {name: gpus.gpus for name, gpus in cluster.gpus_in.items()})
        yield _family("soda_partition_gpus_idle", {name: gpus.idle for name, gpus in cluster.gpus_in.items()})

    def _sharing(self) -> Iterator[Metric]:
        if self.meter.figures.success_s:
            yield _family("soda_guests", self.meter.figures.cluster.guests)
            yield _family("soda_shares", self.meter.figures.shares)

    def _forecasts(self) -> Iterator[Metric]:
        if score := self.meter.figures.start_score:
            ratios = {"held": score.held_ratio, "earlier": score.earlier_ratio, "later": score.later_ratio}
            counts = {name: round(ratio * score.forecasts) if score.forecasts else 0 for name, ratio in ratios.items()}
            yield _family("soda_start_forecasts", counts)

    def _store(self) -> Iterator[Metric]:
        if self.store.file is not None:
            path = self.store.file.path
            files = [file for file in log_files(path) if file.exists()]
            yield _family("soda_store_size_bytes", sum(file.stat().st_size for file in [path, *files]))

    def _agents(self) -> Iterator[Metric]:
        yield _family("soda_agent_reports_total", self.nodes.reports)
        if not self.meter.figures.success_s:
            return
        signs, known, steady_s = self.nodes.signs(), self.meter.figures.cluster.gpus_on, self.clock.elapsed_s()
        states = Counter(dict.fromkeys(("reporting", "silent", "never", "unusable"), 0))
        for node, gpus in known.items():
            sign = signs.get(node)
            if sign is not None and not sign.is_silent(steady_s):
                states["reporting"] += 1
            elif not gpus.usable:  # off, or in repair: nobody expects an agent there
                states["unusable"] += 1
            else:
                states["never" if sign is None else "silent"] += 1
        yield _family("soda_agents", states)

    def _services(self) -> Iterator[Metric]:
        steady_s, limit_s = self.clock.elapsed_s(), self.meter.figures.silent_after_s
        known = self.services.known()
        heard = [one for one in known if limit_s and steady_s - one.reported_steady_s <= limit_s]
        ratios = [one.report.p99_ms / one.file.target_ms for one in heard]
        yield _family("soda_services", len(known))
        yield _family("soda_services_silent", len(known) - len(heard))
        yield _family("soda_services_late", sum(ratio > 1 for ratio in ratios))
        yield _family("soda_services_queries_per_second", sum(one.load_qps for one in heard))
        yield _family("soda_services_worst_latency_ratio", max(ratios, default=0.0))
        totals = self.services.totals
        results = {"in_time": totals.in_time, "late": totals.late, "failed": totals.failed}
        yield _family("soda_services_queries_total", results)
        instances = Counter((one.device, one.state) for service in heard for one in service.report.instances)
        every = [(device, state) for device in DEVICES for state in STATES]
        yield _family("soda_services_instances", {pair: instances[pair] for pair in every})
        statuses = self.services.statuses.values()
        wanted = {device: sum(one.wanted.get(device, 0) for one in statuses) for device in DEVICES}
        yield _family("soda_services_instances_wanted", wanted)


def _family(name: str, values: Values) -> Metric:
    metric = BY_NAME[name]
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = make(name, metric.meaning, labels=metric.labels)
    if isinstance(values, Mapping):
        for labels, value in values.items():
            family.add_metric((labels,) if isinstance(labels, str) else labels, float(value))
    else:
        family.add_metric((), float(values))
    return family
