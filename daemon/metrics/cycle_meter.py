"""Counts what cycles do, for as long as sodad runs; at a restart all counters begin at zero, as Prometheus expects."""

from __future__ import annotations

import logging
from collections import Counter as Counts
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from slurm_soda.daemon.cycle.cycle_outcome import CycleOutcome
from slurm_soda.daemon.cycle.recorder import CycleResult
from slurm_soda.daemon.logs import LOGGER, log
from slurm_soda.daemon.metrics.catalog import BY_NAME
from slurm_soda.daemon.metrics.cycle_figures import ClusterFigures, StartedWaits, cluster_figures
from slurm_soda.daemon.metrics.node_board import NodeBoard
from slurm_soda.daemon.sharing.co_runners import GuestsByNode
from slurm_soda.daemon.sharing.share_state import PHASES
from slurm_soda.policies.expected_starts.calibration import IntervalScore
from slurm_soda.slurm_ext.write.job_changes import JobChangeKind

CYCLE_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0)
"""0.4 s is usual at 10 000 jobs, and ``change_limits.breaker_slow_s`` is 15 s."""
WAIT_BOUNDS_S = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 86_400.0, 3 * 86_400.0, 7 * 86_400.0)
PARTS = ("observe", "decide", "act", "record")

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which says when sodad started


@dataclass(frozen=True, slots=True)
class CycleFigures:
    """What the last cycles found; replaced as a whole, so that other threads may read it."""

    mode: str = ""
    policy: str = ""
    last_s: float = 0.0
    """When the last cycle began, Unix seconds; 0: there was none."""
    success_s: float = 0.0
    interval_s: float = 0.0
    breaker_open_until_s: float = float("-inf")
    """By the steady clock."""
    breaker_failures: int = 0
    silent_after_s: float = 0.0
    """Of routers of services."""
    deferred: int = 0
    preempting: int = 0
    shares: Mapping[str, int] = field(default_factory=dict)
    """By phase."""
    start_score: IntervalScore | None = None
    cluster: ClusterFigures = field(default_factory=ClusterFigures)


class CycleMeter:
    """Counters and figures of one run of sodad. :meth:`note` is for the thread of the cycles, all else for any."""

    def __init__(self, guests: GuestsByNode, nodes: NodeBoard) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.figures = CycleFigures()
        self._guests, self._nodes, self._waits = guests, nodes, StartedWaits()
        self._failing = ""
        self._cycles, self._parts = self._counter("soda_cycles_total"), self._counter("soda_cycle_part_seconds_total")
        self._changes = self._counter("soda_changes_total")
        self._preemptions = self._counter("soda_preemptions_total")
        self._shares_begun = self._counter("soda_shares_begun_total")
        self._shares_ended = self._counter("soda_shares_ended_total")
        self._durations = self._histogram("soda_cycle_duration_seconds", CYCLE_BOUNDS_S)
        self._wait_times = self._histogram("soda_job_wait_seconds", WAIT_BOUNDS_S)
        for result in ("done", "failed"):
            self._cycles.labels(result)
        for part in PARTS:
            self._parts.labels(part)
        for kind, result in product(get_args(JobChangeKind), ("done", "failed")):
            if kind != "undo":
                self._changes.labels(kind, result)

    def note(self, outcome: CycleOutcome) -> None:
        """Take in a cycle that is over. Whatever goes wrong here costs metrics, and nothing else."""
        try:
            self._note(outcome)
            self._failing = ""
        except Exception as error:  # noqa: BLE001 - see above
            if self._failing != repr(error):
                self._failing = repr(error)
                log(logging.WARNING, "cycle-not-measured", error=f"{type(error).__name__}: {error}")
                LOGGER.debug("unexpected", exc_info=True)

    def _note(self, outcome: CycleOutcome) -> None:
        settings, breaker, at = outcome.settings, outcome.breaker, outcome.at
        figures = replace(
            self.figures,
            mode=outcome.report.mode,
            policy=outcome.policy,
            last_s=at.now_s,
            interval_s=settings.cycle.interval_s,
            silent_after_s=settings.services.silent_after_s,
            breaker_open_until_s=breaker.open_until_s,
            breaker_failures=breaker.failures,
        )
        result = outcome.result
        if result is None:
            self._cycles.labels("failed").inc()
            self.figures = figures
            return
        self._count(result)
        timings_s = outcome.report.timings_s
        for part in PARTS:
            self._parts.labels(part).inc(timings_s.get(part, 0.0))
        self._durations.observe(sum(timings_s.get(part, 0.0) for part in PARTS))
        shares: Counts[str] = Counts(share.phase for share in outcome.state.shares.by_guest.values())
        cluster = cluster_figures(result.snapshot, result.slurm_state.nodes, self._guests.by_node)
        self.figures = replace(
            figures,
            success_s=at.now_s,
            deferred=result.admitted.deferred,
            preempting=outcome.state.preemptions.unfinished,
            shares={phase: shares[phase] for phase in PHASES if phase != "over"},
            start_score=outcome.start_score,
            cluster=cluster,
        )
        self._nodes.keep({node.name for node in result.slurm_state.nodes})

    def _count(self, result: CycleResult) -> None:
        self._cycles.labels("done").inc()
        for change, outcome in zip(result.admitted.changes, result.outcomes, strict=False):
            self._changes.labels(change.kind, outcome.state).inc()
        self._preemptions.inc(len(result.begun))
        self._shares_begun.inc(
            sum(step.send == "share" and step.share.phase == "rewritten" for step in result.share_steps)
        )
        for share in result.changed_shares:
            if share.phase == "over":
                self._shares_ended.labels(share.end or "ended").inc()
        for partition, waited_s in self._waits.take(result.snapshot):
            self._wait_times.labels(partition).observe(waited_s)

    def _counter(self, name: str) -> Counter:
        metric = BY_NAME[name]
        return Counter(name, metric.meaning, metric.labels, registry=self.registry)

    def _histogram(self, name: str, bounds: tuple[float, ...]) -> Histogram:
        metric = BY_NAME[name]
        return Histogram(name, metric.meaning, metric.labels, buckets=bounds, registry=self.registry)
