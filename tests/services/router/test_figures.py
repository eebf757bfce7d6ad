"""Load, latency, errors and violations are what clients see, and soon."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.services.percentile import percentile
from slurm_soda.services.router.query_log import QueryLog, RequestCounter
from slurm_soda.wire.services.router_report import ReportedInstance
from tests.services.router.conftest import Site, wait_until
from tests.services.router.load import Load


def test_a_burst_is_seen_at_once(site: Site) -> None:
    """Within two reports of a second each; with percentiles from each query, and the load as it came in."""
    site.backends.add(1, answer_s=0.02)
    site.start(with_sodad=True)
    site.wait_serving(1)
    wait_until(lambda: len(site.sodad.reports) >= 2, "reports before")
    assert site.sodad.reports[-1].load_qps == 0
    quiet, begin_s = len(site.sodad.reports), time.monotonic()
    with Load(site.endpoint, 150) as load:
        wait_until(lambda: len(site.sodad.reports) >= quiet + 4, "four more reports")
        during = site.sodad.reports[quiet : quiet + 4]
    sent, passed_s = sum(load.results.values()), time.monotonic() - begin_s
    assert max(report.load_qps for report in during[:3]) > sent / passed_s / 2
    wait_until(lambda: sum(report.queries for report in site.sodad.reports) >= sent, "all are told")
    reports = site.sodad.reports
    assert sum(report.queries for report in reports) == sent == load.results[200]
    assert all(20 <= report.p50_ms <= report.p95_ms <= report.p99_ms for report in reports if report.queries)
    assert sum(report.errors for report in reports) == 0


def test_late_answers_are_violations_and_no_answer_is_an_error(site: Site) -> None:
    """The target is 200 ms."""
    site.backends.add(1, answer_s=0.3)
    site.start(with_sodad=True)
    site.wait_serving(1)
    assert site.asked(3) == {"1"}
    wait_until(lambda: sum(report.violations for report in site.sodad.reports) == 3, "three late ones")
    site.backends.remove(1)
    with Load(site.endpoint, 20) as load:
        wait_until(lambda: load.results[503] > 3, "nobody is there")
    wait_until(lambda: sum(r.errors for r in site.sodad.reports) == load.results[503], "errors")
    assert sum(report.violations for report in site.sodad.reports) == 3 + load.results[200]


def test_what_an_instance_is_is_told(site: Site) -> None:
    """Each with its device, its address and its own reason; and the profile, if there is one."""
    backend = site.backends.add(1)
    site.backends.add(2, state="failed")
    site.backends.set(2, reason="its command exited with status 3")
    router = site.start(with_sodad=True)
    site.wait_serving(1)
    wait_until(lambda: site.sodad.reports and site.sodad.reports[-1].instances[0].state == "ready", "ready")
    report = site.sodad.reports[-1]
    since = site.backends.files["127.0.0.1.1"].since_s
    assert report.instances[0] == ReportedInstance(1, "cpu", "ready", since, "127.0.0.1", backend.port)
    assert (report.instances[1].state, report.instances[1].reason) == ("failed", "its command exited with status 3")
    assert (report.endpoint, report.service_file) == (router.endpoint, site.file.read_text())


@given(st.lists(st.tuples(st.integers(0, 500), st.sampled_from(["--", "sC", "sH", "CH", "CD", "PR", "CR"]))))
def test_the_log_counts(ended: list[tuple[int, str]]) -> None:
    """Errors are HAProxy's own, a client that left is one if it was late, and what was no query is nothing."""
    log = QueryLog(200)
    for latency_ms, how in ended:
        log.add(f"{latency_ms} 200 {how}\n".encode())
    log.add(b"[NOTICE] something else\n")
    figures = log.take()
    answered = sorted(latency for latency, how in ended if how == "--")
    gone = sum(how in ("CH", "CD") and latency > 200 for latency, how in ended)
    assert figures.errors == sum(how in ("sC", "sH") for _, how in ended)
    assert figures.violations == sum(latency > 200 for latency in answered) + gone
    assert figures.queries == len(answered) + figures.errors + gone
    assert figures.p99_ms == percentile(answered, 0.99)
    assert log.take().queries == 0


@given(st.lists(st.integers(0, 100), min_size=1).map(sorted), st.floats(0.01, 1))
def test_percentile(ascending: list[int], part: float) -> None:
    """As many as that are not above it, and fewer are below it."""
    value = percentile(ascending, part)
    assert sum(one <= value for one in ascending) >= part * len(ascending) - 1e-9
    assert sum(one < value for one in ascending) < part * len(ascending)


def test_requests_are_counted_over_processes() -> None:
    """A new process of HAProxy counts from 0."""
    counter = RequestCounter()
    for seen in (5, 9, 2, 4):
        counter.see(seen)
    assert (counter.take(), counter.take()) == (13, 0)
