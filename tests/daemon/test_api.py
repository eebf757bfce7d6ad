"""The HTTP side over a real socket: who may report, what is kept, what can be looked at."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter
from sqlalchemy import select

from slurm_soda.daemon.api import report_routes
from slurm_soda.daemon.api.report_writer import ReportQueueFullError, ReportWriter
from slurm_soda.daemon.api.server import ApiServer
from slurm_soda.daemon.clock import SystemClock
from slurm_soda.daemon.cycle.epoch import begin_epoch
from slurm_soda.daemon.settings.addresses import ApiSettings
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.tables.scheduling import AgentHeartbeat, JobNodeUsage, NodeEvent
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.wire.errors import MungeError
from slurm_soda.wire.munge import CREDENTIAL_HEADER, KNOWN_HEADER, Munge
from slurm_soda.wire.records import JobClosed, JobOpened, JobUsage, NodeReport
from tests.daemon.api_server import api_server, signed
from tests.wire.fake_munged import FakeMunged


@dataclass
class Site:
    store: Store
    url: str
    munged: FakeMunged
    closes: list[int]

    def post(self, report: NodeReport, *, credential: str | None = None, body: bytes | None = None) -> httpx.Response:
        sent = body if body is not None else json.dumps(report.to_dict()).encode()
        sealed = credential or Munge(run=self.munged).encode(sent)
        return httpx.post(
            f"{self.url}/v1/reports", content=sent, headers={CREDENTIAL_HEADER: sealed}, trust_env=False, verify=False
        )

    def rows(self, table: type[Any]) -> list[Any]:
        with self.store.read() as session:
            return list(session.scalars(select(table)))


@pytest.fixture
def site(fresh_store: Path) -> Iterator[Site]:
    store = open_store(f"sqlite:///{fresh_store}/soda.db")
    munged, closes = FakeMunged(), [0]
    writer = ReportWriter(store, SystemClock(), on_close=lambda: closes.append(1))
    settings = ApiSettings(host="127.0.0.1", port=0, max_report_bytes=10_000)
    server = api_server(store, writer, munged, settings)
    server.start()
    yield Site(store, f"http://127.0.0.1:{server.port}", munged, closes)
    server.close()
    writer.close()
    store.close()


OPENED = JobOpened(7, 0, "n1", 1000, "alice", "main", 100.0, (0, 1), 4)
CLOSED = JobClosed(7, 0, "n1", 160.0, "0:0")


def usage(last_s: float, cpu_s: float) -> JobUsage:
    return JobUsage(7, 0, "n1", 100.0, last_s, 5, 0.5, 0.6, 2000.0, 2, cpu_s, 300.0, "cgroup/v1")


def test_a_report_is_on_disk_when_it_is_answered(site: Site) -> None:
    answer = site.post(NodeReport("n1", "a", 1, 110.0, (OPENED,), (), (usage(110.0, 9.0),), 4, ("no cgroup",)))
    told = {"node": "n1", "seq": 1, "cores": [], "guests": [], "left_out": None}
    assert (answer.status_code, answer.json()) == (200, told)
    assert [(event.kind, event.job_id, event.record["gpus"]) for event in site.rows(NodeEvent)] == [("open", 7, [0, 1])]
    assert [(seen.node, seen.gpu_count, seen.faults) for seen in site.rows(AgentHeartbeat)] == [
        ("n1", 4, ["no cgroup"])
    ]
    assert site.closes == [0]


def test_an_answer_is_authenticated_and_about_its_report(site: Site) -> None:
    report = NodeReport("n1", "a", 1, 110.0)
    answer = site.post(report)
    sent, credential = json.dumps(report.to_dict()).encode(), answer.headers[CREDENTIAL_HEADER]
    assert Munge(run=site.munged).check(answer.content, credential, {0}, sent).uid == 0
    with pytest.raises(MungeError, match="about another body"):
        Munge(run=site.munged).check(answer.content, site.post(report).headers[CREDENTIAL_HEADER], {0}, b"other")


def test_an_answer_that_cannot_be_authenticated_is_no_receipt(site: Site) -> None:
    report = NodeReport("n1", "a", 1, 110.0)
    sent = json.dumps(report.to_dict()).encode()
    credential = Munge(run=site.munged).encode(sent)
    site.munged.is_silent = True
    answer = site.post(report, credential=credential)
    assert (answer.status_code, CREDENTIAL_HEADER in answer.headers) == (503, False)


def test_a_close_wakes_the_loop(site: Site) -> None:
    site.post(NodeReport("n1", "a", 1, 160.0, closed=(CLOSED,)))
    assert site.closes == [0, 1]


def test_usage_is_cumulative_and_never_goes_back(site: Site) -> None:
    for seq, (last_s, cpu_s) in enumerate([(110.0, 9.0), (120.0, 18.0), (115.0, 14.0)]):
        site.post(NodeReport("n1", "a", seq, last_s, usage=(usage(last_s, cpu_s),)))
    assert [(row.last_s, row.cpu_s) for row in site.rows(JobNodeUsage)] == [(120.0, 18.0)]


def test_a_credential_is_worth_something_once(site: Site) -> None:
    report = NodeReport("n1", "a", 1, 110.0)
    assert site.post(report).status_code == 200
    used = next(iter(site.munged.sealed))
    answer = site.post(report, credential=used)
    assert answer.status_code == 403
    assert "used before" in answer.text


@pytest.mark.parametrize("uid", [1000, 65534])
def test_only_allowed_users_are_believed(site: Site, uid: int) -> None:
    site.munged.uid = uid
    answer = site.post(NodeReport("n1", "a", 1, 110.0, (OPENED,)))
    assert answer.status_code == 403
    assert f"uid {uid}" in answer.text
    assert not site.rows(AgentHeartbeat)


def test_a_credential_of_another_body_is_refused(site: Site) -> None:
    other = Munge(run=site.munged).encode(b"{}")
    assert site.post(NodeReport("n1", "a", 1, 110.0), credential=other).status_code == 403


def test_no_credential_no_entry(site: Site) -> None:
    assert httpx.post(f"{site.url}/v1/reports", content=b"{}", trust_env=False, verify=False).status_code == 403


@pytest.mark.parametrize(("body", "status"), [(b"{", 422), (b'{"node": 1}', 422), (b"x" * 10_001, 413)])
def test_what_cannot_be_read_is_said(site: Site, body: bytes, status: int) -> None:
    assert site.post(NodeReport("n1", "a", 1, 1.0), body=body).status_code == status
    assert not site.rows(AgentHeartbeat)


def test_many_reports_at_once_all_arrive(site: Site) -> None:
    def send(node: int) -> None:
        site.post(NodeReport(f"n{node}", "a", 1, 110.0, (), (), (), 4))

    threads = [threading.Thread(target=send, args=(node,)) for node in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(site.rows(AgentHeartbeat)) == 40


def test_a_late_answer_is_none_and_what_nobody_waits_for_is_not_written(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_routes, "COMMIT_TIMEOUT_S", 0.3)
    with site.store.write() as session:
        session.connection()
        late = [site.post(NodeReport(node, "a", 1, 1.0)) for node in ("n1", "n2")]
    assert [(answer.status_code, "not on disk within 0.3 s" in answer.text) for answer in late] == [(503, True)] * 2
    monkeypatch.setattr(report_routes, "COMMIT_TIMEOUT_S", 30.0)
    assert site.post(NodeReport("n3", "a", 1, 1.0)).status_code == 200
    assert {seen.node for seen in site.rows(AgentHeartbeat)} == {"n1", "n3"}, "n1's was begun, n2's was not"


def test_a_full_queue_is_said(fresh_store: Path) -> None:
    store = open_store(f"sqlite:///{fresh_store}/soda.db")
    writer = ReportWriter(store, SystemClock(), on_close=lambda: None)
    with store.write(), pytest.raises(ReportQueueFullError, match="again later"):  # noqa: PT012 - the writer must be stuck meanwhile
        for seq in range(400):
            writer.submit(NodeReport("n1", "a", seq, 1.0))
    writer.close()


def test_a_port_in_use_is_said_at_start(site: Site) -> None:
    settings = ApiSettings(host="127.0.0.1", port=int(site.url.rsplit(":", 1)[1]))
    with pytest.raises(SodaError, match=r"api\.port"):
        ApiServer(APIRouter(), APIRouter(), settings)


def test_reports_have_an_address_of_their_own_where_one_is_set(fresh_store: Path) -> None:
    store = open_store(f"sqlite:///{fresh_store}/soda.db")
    munged = FakeMunged()
    writer = ReportWriter(store, SystemClock(), on_close=lambda: None)
    server = api_server(
        store, writer, munged, ApiSettings(host="127.0.0.1", port=0, report_host="127.0.0.3", report_port=0)
    )
    server.start()
    views, reports = f"http://127.0.0.1:{server.port}", f"http://127.0.0.3:{server.report_port}"
    try:
        report = NodeReport("n1", "a", 1, 110.0)
        assert Site(store, reports, munged, []).post(report).status_code == 200
        assert Site(store, views, munged, []).post(report).status_code == 404
        for url, status in ((views, 200), (reports, 404)):
            headers = signed(munged, "/v1/status")
            assert httpx.get(f"{url}/v1/status", headers=headers, trust_env=False, verify=False).status_code == status
    finally:
        server.close()
        writer.close()
        store.close()


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({}, None),
        ({"report_port": 6831}, ("0.0.0.0", 6831)),
        ({"report_host": "10.0.0.1"}, ("10.0.0.1", 6830)),
        ({"host": "10.0.0.1", "port": 7000, "report_port": 6831}, ("10.0.0.1", 6831)),
    ],
)
def test_where_agents_report(given: dict[str, Any], address: tuple[str, int] | None) -> None:
    settings = ApiSettings(**given)
    assert (settings.report_address if settings.has_report_address else None) == address


def test_a_report_port_in_use_is_said_at_start_and_nothing_stays_bound(site: Site) -> None:
    port = int(site.url.rsplit(":", 1)[1])
    with pytest.raises(SodaError, match=r"api\.report_port"):
        ApiServer(APIRouter(), APIRouter(), ApiSettings(host="127.0.0.1", port=0, report_port=port))


def test_an_agent_is_told_how_to_be_known_once_its_report_is_taken(site: Site) -> None:
    taken = site.post(NodeReport("n1", "a", 1, 110.0))
    assert len(taken.headers[KNOWN_HEADER]) == 64
    site.munged.uid = 1000
    assert KNOWN_HEADER not in site.post(NodeReport("n1", "a", 2, 110.0)).headers


def test_after_the_loss_of_its_store_sodad_does_not_count_as_running(site: Site, fresh_store: Path) -> None:
    begin_epoch(site.store, host="ctl", pid=1, version="0", now_s=SystemClock().now_s())

    def head() -> dict[str, Any]:
        headers = signed(site.munged, "/v1/status")
        shown = httpx.get(f"{site.url}/v1/status", headers=headers, trust_env=False, verify=False).json()
        found: dict[str, Any] = shown["head"]
        return found

    assert head()["daemon_alive"] is True
    (fresh_store / "soda.db").unlink()
    after = head()
    assert (after["daemon_alive"], "was removed or replaced" in after["stall"]) == (False, True)
