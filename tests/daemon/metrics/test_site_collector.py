"""Everything in the catalogue is shown where it is known, and nothing else; one broken section takes no other with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.metrics.catalog import BY_NAME, NODES, SITE
from slurm_soda.daemon.metrics.cycle_figures import ClusterFigures, GpuCounts
from slurm_soda.daemon.metrics.cycle_meter import CycleFigures
from slurm_soda.daemon.metrics.node_board import NodeBoard
from slurm_soda.daemon.services.known_service import ServiceKey, ServiceStatus
from slurm_soda.daemon.store.agent_reports import store_report
from slurm_soda.daemon.store.engine import Store
from slurm_soda.policies.expected_starts.calibration import IntervalScore
from slurm_soda.wire.records import NodeReport
from tests.daemon.fake_slurm import FakeClock, FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.metrics.metered import Metered, names, parsed
from tests.daemon.services.service_site import report

Start = Callable[..., Daemon]


@pytest.fixture
def metered(store: Store) -> Metered:
    return Metered(store, FakeClock())


def test_what_is_shown_is_what_the_catalogue_says(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1, gpus=4, work_s=120.0)
    sodad = daemon()
    metered = Metered.of(sodad)
    sodad.follow(3)
    slurm.submit(2, gpus=1)
    slurm.advance(1)
    sodad.run()
    metered.meter._shares_ended.labels("ended")  # no share has ended here
    metered.meter.figures = replace(metered.meter.figures, start_score=IntervalScore(1, 1.0, 0.0, 0.0))
    text = metered.text()
    assert names(text) == {metric.name for metric in SITE}
    for family in parsed(text):
        metric = BY_NAME.get(family.name) or BY_NAME[f"{family.name}_total"]
        assert (family.type, family.documentation) == (metric.kind, metric.meaning)
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        assert labels == set(metric.labels), family.name
    names_of_openmetrics = {
        one.name for one in parse_openmetrics(generate_openmetrics(metered.meter.registry).decode())
    }
    assert names_of_openmetrics == {family.name for family in parsed(text)}


def test_nothing_names_a_job_or_a_user() -> None:
    assert {label for metric in (*SITE, *NODES) for label in metric.labels}.isdisjoint(
        {"job", "job_id", "user", "owner", "account", "service", "name"}
    )


def test_agents_are_missed_where_jobs_can_start_alone(metered: Metered) -> None:
    nodes = {f"n{number}": GpuCounts(4, usable=number > 2) for number in range(1, 7)}
    metered.meter.figures = CycleFigures(last_s=1.0, success_s=1.0, cluster=ClusterFigures(gpus_on=nodes))
    clock = metered.clock
    assert isinstance(clock, FakeClock)
    for node in ("n2", "n4"):
        metered.report(NodeReport(node, "a", 1, 1.0))
    clock.at_s += 61.0
    for node in ("n1", "n3"):
        metered.report(NodeReport(node, "a", 1, 1.0))
    shown = metered.shown()
    states = {state: shown["soda_agents", f"state={state}"] for state in ("reporting", "silent", "never", "unusable")}
    assert states == {"reporting": 2, "silent": 1, "never": 2, "unusable": 1}


def test_a_restarted_sodad_knows_silent_agents(store: Store, slurm: FakeSlurm, daemon: Start) -> None:
    clock = slurm.clock
    with store.write() as session:
        store_report(session, NodeReport("n1", "a", 1, 1.0, faults=("NVML",)), clock.now_s() - 3600)
    sodad = daemon()
    metered = Metered.of(sodad)
    with store.read() as session:
        metered.nodes.recall(session, Instant.read(clock))
    sodad.run()
    assert metered.shown()["soda_agents", "state=silent"] == 1
    metered.report(NodeReport("n1", "a", 2, 1.0))
    metered.report(NodeReport("n9", "a", 2, 1.0))
    assert metered.shown()["soda_agents", "state=reporting"] == 1
    assert metered.shown()["soda_agent_reports_total",] == 2
    sodad.run()
    assert metered.nodes.signs().keys() == {"n1"}, "Slurm has no n9"


def test_a_report_that_is_newer_than_the_recall_stays(store: Store) -> None:
    with store.write() as session:
        store_report(session, NodeReport("n1", "a", 1, 1.0), 1000.0)
    board = NodeBoard()
    board.note(NodeReport("n1", "a", 2, 1.0), Instant(2000.0, 50.0))
    with store.read() as session:
        board.recall(session, Instant(2000.0, 50.0))
    assert board.signs()["n1"].at_s == 2000.0


def test_services_are_summed_whoever_owns_them(metered: Metered) -> None:
    at = Instant.read(metered.clock)
    ready = [(7, "gpu", "ready"), (8, "cpu", "ready"), (9, "cpu", "starting")]
    metered.services.take(
        "alice", replace(report(load_qps=30.0, instances=ready), queries=100, errors=10, violations=20), at
    )
    metered.services.take("bob", replace(report(load_qps=5.0), p99_ms=500.0, queries=10, errors=20), at)
    metered.services.statuses = {ServiceKey("alice", "answers"): ServiceStatus(wanted={"gpu": 2, "cpu": 1})}
    metered.meter.figures = CycleFigures(silent_after_s=30.0)
    shown = metered.shown()
    assert (shown["soda_services",], shown["soda_services_silent",], shown["soda_services_late",]) == (2, 0, 1)
    assert shown["soda_services_queries_per_second",] == 35.0
    assert shown["soda_services_worst_latency_ratio",] == 2.5
    results = [shown["soda_services_queries_total", f"result={result}"] for result in ("in_time", "late", "failed")]
    assert results == [70, 20, 20], "never more than came"
    assert shown["soda_services_instances", "device=gpu", "state=ready"] == 1
    assert shown["soda_services_instances", "device=cpu", "state=starting"] == 1
    assert shown["soda_services_instances_wanted", "device=gpu"] == 2
    assert not {"alice", "bob", "answers"} & {word for key in shown for word in "=".join(key).split("=")}


def test_a_silent_service_has_no_load(metered: Metered) -> None:
    clock = metered.clock
    assert isinstance(clock, FakeClock)
    metered.services.take("alice", report(load_qps=30.0, instances=[(7, "gpu", "ready")]), Instant.read(clock))
    metered.meter.figures = CycleFigures(silent_after_s=30.0)
    clock.at_s += 31.0
    shown = metered.shown()
    assert (shown["soda_services",], shown["soda_services_silent",]) == (1, 1)
    assert (
        shown["soda_services_queries_per_second",] == shown["soda_services_instances", "device=gpu", "state=ready"] == 0
    )


def test_the_size_of_the_store(metered: Metered, fresh_store: Path) -> None:
    files = sum(file.stat().st_size for file in fresh_store.glob("soda.db*"))
    assert metered.shown()["soda_store_size_bytes",] == files > 0


@pytest.mark.parametrize("section", ["services", "store"])
def test_a_broken_section_leaves_the_others(
    metered: Metered, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, section: str
) -> None:
    if section == "store":
        monkeypatch.setattr(type(metered.store), "file", property(lambda _: 1 / 0))
    else:
        monkeypatch.setattr(metered.services, "statuses", None)
    for _ in range(2):
        shown = metered.shown()
        assert [key for key, value in shown.items() if key[0] == "soda_metrics_section_failed" and value] == [
            ("soda_metrics_section_failed", f"section={section}")
        ]
        assert any(key[0] == "soda_build_info" for key in shown)
        assert not any(key[0].startswith(f"soda_{section}") for key in shown), "a half of it would mislead"
    assert sum("metrics-failed" in record.getMessage() for record in caplog.records) == 1, "said once"
    monkeypatch.undo()
    assert metered.shown()["soda_metrics_section_failed", f"section={section}"] == 0


def test_the_registry_of_one_sodad_is_its_own(metered: Metered, store: Store) -> None:
    """Nothing is in the library's global registry, where a second one would clash."""
    other = Metered(store, FakeClock())
    assert generate_latest(other.meter.registry)
