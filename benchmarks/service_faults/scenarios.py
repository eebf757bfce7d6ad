"""What is done to the service under load, and what became of its queries. Each scenario gives figures that JSON can hold."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.service_faults.served_model import BURST_QPS, HIGH_QPS, LOW_QPS
from benchmarks.service_faults.service_cluster import READY_WITHIN_S, NodeFault, ServiceCluster
from benchmarks.service_faults.service_watch import SeenInstance, ServiceSight, least_ready, most_ready
from benchmarks.service_queries import (
    answered_after_s,
    back_after_s,
    in_flight,
    late_after,
    lost_between,
    query_figures,
    recovered_after_s,
)
from benchmarks.service_site import SteadyLoad
from slurm_soda.services.load.load_report import SentQuery
from slurm_soda.services.percentile import percentile

TIMEOUT_S = 60.0
"""Of a query: longer than the router waits for an answer before it asks another instance (30 s)."""
BURST_S, BURST_TIMES = 10.0, 10
SETTLE_S = 5.0
SODAD_GONE_S = (0.0, 20.0)
"""What watches over sodad starts it again after a second; or nobody does for so long."""

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScenarioPlan:
    """How a scenario is run."""

    times: int
    seed: int
    target_ms: float


class LoadedService:
    """A service under load, whose queries are looked at around events.

    Attributes:
        events_s: when something was done, by the load's clock.
    """

    def __init__(self, site: ServiceCluster, plan: ScenarioPlan, qps: float) -> None:
        self.site, self.plan = site, plan
        self.load = SteadyLoad(site.url, qps, seed=plan.seed, timeout_s=TIMEOUT_S)
        self.events_s: list[float] = []
        self._queries: Sequence[SentQuery] | None = None

    def __enter__(self) -> LoadedService:
        """Nothing: the load has begun."""
        return self

    def __exit__(self, *_: object) -> None:
        """No load outlives its scenario."""
        if self._queries is None:
            self.load.end()

    def note_event(self) -> float:
        """Something is done now; its time."""
        self.events_s.append(self.load.now_s())
        return self.events_s[-1]

    def wait(
        self, what: str, condition: Callable[[ServiceSight], bool], within_s: float = READY_WITHIN_S
    ) -> ServiceSight:
        """As :meth:`.ServiceWatch.wait`."""
        return self.site.watch.wait(what, condition, within_s)

    def end(self, figures: Figures) -> Figures:
        """End the load, and add what became of its queries."""
        time.sleep(SETTLE_S)
        queries = self._queries = self.load.end()
        spans = list(zip(self.events_s, [*self.events_s[1:], math.inf], strict=True))
        target_ms = self.plan.target_ms
        return {
            **figures,
            "in_flight": [in_flight(queries, at_s) for at_s in self.events_s],
            "lost": [lost_between(queries, at_s, until_s) for at_s, until_s in spans],
            "back_after_s": back_after_s(queries, self.events_s, target_ms),
            "within_target_after_s": recovered_after_s(queries, self.events_s, target_ms),
            "burst_answered_after_s": [answered_after_s(queries, at_s, BURST_S) for at_s in self.events_s],
            "late": [late_after(queries, at_s, until_s, target_ms) for at_s, until_s in spans],
            **query_figures(queries, target_ms),
        }


def hand_over_by_load(site: ServiceCluster, plan: ScenarioPlan) -> Figures:
    """The load crosses the switching point, to and fro: sodad has cores and a GPU replace each other."""
    site.scale(1, 1)
    with LoadedService(site, plan, LOW_QPS) as service:
        service.wait("one instance on cores", _one_on("cpu"))
        took_s = []
        for turn in range(plan.times):
            device, qps = ("cpu", LOW_QPS) if turn % 2 else ("gpu", HIGH_QPS)
            took_s.append(_hand_over(service, device, qps))
            site.say(f"hand-over {turn + 1} of {plan.times} by load, to {device}: {took_s[-1]:.1f} s")
        return service.end({"handovers": plan.times, "handover_s": percentile(took_s, 0.5)})


def _hand_over(service: LoadedService, device: str, qps: float) -> float:
    began_s = service.note_event()
    service.load.change(qps)
    service.wait(f"one instance on {device} alone", _one_on(device))
    return service.load.now_s() - began_s


def _one_on(device: str) -> Callable[[ServiceSight], bool]:
    return lambda sight: sight.serves(1, device)


def hand_over_by_drains(site: ServiceCluster, plan: ScenarioPlan) -> Figures:
    """Its owner has both of two instances leave, again and again: sodad starts others first."""
    site.scale(2, 2)
    with LoadedService(site, plan, LOW_QPS) as service:
        before = service.wait("two instances", lambda sight: sight.serves(2))
        took_s: list[float] = []
        while 2 * len(took_s) < plan.times:
            began_s, old = service.note_event(), {(one.job_id, one.since_s) for one in before.ready}
            site.drain_all()
            before = service.wait("two other instances", _are_others(old))
            took_s.append(service.load.now_s() - began_s)
            site.say(f"hand-over {2 * len(took_s)} of {plan.times} by drains: {took_s[-1]:.1f} s for two")
        return service.end({"handovers": 2 * len(took_s), "handover_s": percentile(took_s, 0.5)})


def _are_others(old: set[tuple[int, float]]) -> Callable[[ServiceSight], bool]:
    return lambda sight: sight.serves(2) and not old & {(one.job_id, one.since_s) for one in sight.ready}


def hand_over_without_sodad(site: ServiceCluster, plan: ScenarioPlan) -> Figures:
    """Sodad is killed at a random moment of a hand-over, and is back after a second or after twenty."""
    site.scale(1, 1)
    with LoadedService(site, plan, LOW_QPS) as service:
        service.wait("one instance on cores", _one_on("cpu"))
        draws, took_s, before = random.Random(plan.seed), [], site.count_requeues()
        for turn in range(plan.times):
            device, qps = ("cpu", LOW_QPS) if turn % 2 else ("gpu", HIGH_QPS)
            gone_s, after_s = SODAD_GONE_S[turn // 2 % 2], draws.uniform(1.0, 10.0)
            began_s = service.note_event()
            service.load.change(qps)
            time.sleep(after_s)
            site.cluster.kill("sodad", restart=not gone_s)
            if gone_s:
                time.sleep(gone_s)
                site.cluster.start("sodad")
            service.wait(f"one instance on {device} alone", _one_on(device))
            took_s.append(service.load.now_s() - began_s)
            site.say(
                f"hand-over {turn + 1} of {plan.times} to {device}, sodad killed after {after_s:.1f} s and gone for"
                f" {gone_s or 1:g} s: {took_s[-1]:.1f} s"
            )
        time.sleep(SETTLE_S)
        figures = {"requeues": site.count_requeues() - before, "open_actions": site.count_open_actions()}
        return service.end({"handovers": plan.times, "handover_s": percentile(took_s, 0.5), **figures})


def kill_instances(site: ServiceCluster, plan: ScenarioPlan) -> Figures:
    """One of two instances dies: its whole batch step by Slurm, or its server alone, in turn."""
    site.scale(2, 3)
    with LoadedService(site, plan, LOW_QPS) as service:
        service.wait("two instances", lambda sight: sight.serves(2))
        draws, ready_s, there = random.Random(plan.seed), [], []
        kinds = ["step", "server"] * plan.times
        for turn, kind in enumerate(kinds):
            victim = draws.choice(service.wait("two instances", lambda sight: sight.serves(2)).ready)
            began_s = service.note_event()
            site.kill_instance(victim) if kind == "step" else site.kill_server(victim)
            there.append(victim.queries)
            service.wait("two instances again", _without(victim))
            ready_s.append(service.load.now_s() - began_s)
            site.say(
                f"kill {turn + 1} of {len(kinds)}, {kind} on {victim.host}: two are ready after {ready_s[-1]:.1f} s"
            )
            time.sleep(SETTLE_S)
        return service.end({"kinds": kinds, "ready_again_after_s": ready_s, "reported_in_flight": there})


def _without(victim: SeenInstance) -> Callable[[ServiceSight], bool]:
    """Two ready instances, of which none is the run that was killed."""
    was = (victim.job_id, victim.since_s)
    return lambda sight: len(sight.ready) == 2 and was not in [(one.job_id, one.since_s) for one in sight.ready]


def fail_nodes(site: ServiceCluster, plan: ScenarioPlan) -> Figures:
    """The node of one of two instances hangs or is lost, in turn, until Slurm has it down; then it comes back."""
    site.scale(2, 3)
    with LoadedService(site, plan, LOW_QPS) as service:
        draws, ready_s, down_s, there = random.Random(plan.seed), [], [], []
        kinds: list[NodeFault] = ["lost", "hangs"]
        kinds *= plan.times
        for turn, kind in enumerate(kinds):
            victim = draws.choice(service.wait("two instances", lambda sight: sight.serves(2)).ready)
            began_s = service.note_event()
            site.fail_node(victim.host, kind)
            try:
                there.append(victim.queries)
                service.wait("two instances on other nodes", _elsewhere(victim.host))
                ready_s.append(service.load.now_s() - began_s)
                site.wait_down(victim.host)
                down_s.append(service.load.now_s() - began_s)
            finally:
                site.revive_node(victim.host, kind)
            site.say(
                f"node {turn + 1} of {len(kinds)}, {victim.host} {kind}: two are ready after {ready_s[-1]:.1f} s,"
                f" Slurm has it down after {down_s[-1]:.0f} s"
            )
            time.sleep(SETTLE_S)
        figures = {"kinds": kinds, "ready_again_after_s": ready_s, "down_after_s": down_s, "reported_in_flight": there}
        return service.end(figures)


def _elsewhere(node: str) -> Callable[[ServiceSight], bool]:
    return lambda sight: sum(one.host != node for one in sight.ready) >= 2


def burst(site: ServiceCluster, plan: ScenarioPlan) -> Figures:
    """Ten times the load for ten seconds: sodad starts more instances, and takes them back afterwards."""
    site.scale(1, 4)
    with LoadedService(site, plan, BURST_QPS) as service:
        least, most, begun_s, out_s = [], [], [], []
        for turn in range(plan.times):
            service.wait("one instance on cores", _one_on("cpu"))
            time.sleep(SETTLE_S)
            at_s = time.monotonic()
            service.note_event()
            service.load.change(BURST_TIMES * BURST_QPS)
            time.sleep(BURST_S)
            service.load.change(BURST_QPS)
            service.wait("one instance again", _one_on("cpu"))
            seen = site.watch.between(at_s, time.monotonic())
            least.append(least_ready(seen))
            most.append(most_ready(seen))
            begun_s.append(next((one.at_s - at_s for one in seen if len(one.instances) > 1), math.inf))
            out_s.append(next((one.at_s - at_s for one in seen if len(one.ready) > 1), math.inf))
            site.say(
                f"burst {turn + 1} of {plan.times}: up to {most[-1]} instances, the second after {out_s[-1]:.1f} s"
            )
        figures = {"least_ready": least, "most_ready": most}
        return service.end(
            {"bursts": plan.times, **figures, "second_begins_after_s": begun_s, "second_ready_after_s": out_s}
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario."""

    run: Callable[[ServiceCluster, ScenarioPlan], Figures]
    usual_times: int
    what: str


SCENARIOS: Mapping[str, Scenario] = {
    "load": Scenario(
        hand_over_by_load, 20, "hand-overs between cores and GPU, as the load crosses the switching point"
    ),
    "drains": Scenario(hand_over_by_drains, 30, "hand-overs by `sodactl service drain --all`, two at a time"),
    "instances": Scenario(kill_instances, 3, "kills of an instance's batch step, and as many of its server alone"),
    "nodes": Scenario(fail_nodes, 3, "lost nodes, and as many that hang, until Slurm has them down"),
    "burst": Scenario(burst, 3, "ten times the load for ten seconds"),
    "sodad": Scenario(hand_over_without_sodad, 6, "hand-overs during which sodad is killed"),
}
