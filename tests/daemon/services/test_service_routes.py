"""Services over HTTP: who may report for whom, what is refused, what owners may do, and who is shown what."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from slurm_soda.daemon.api import viewers
from slurm_soda.daemon.api.routes import ViewRoutes
from slurm_soda.daemon.api.service_routes import ServiceRoutes
from slurm_soda.daemon.services.known_service import ServiceKey, ServiceStatus
from slurm_soda.daemon.services.service_board import ServiceBoard
from slurm_soda.daemon.services.service_load import LoadMinute
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.services import add_minutes
from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge
from slurm_soda.wire.services.router_report import LONGEST_REPORT, REPORT_PATH, RouterAnswer
from tests.daemon.api_server import FakeRights, view_access
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.services.service_site import report
from tests.wire.fake_munged import FakeMunged

USERS = {0: "root", 1000: "alice", 1001: "bob"}


@dataclass
class Site:
    """The application as a client elsewhere reaches it; :attr:`uid` is who asks."""

    store: Store
    board: ServiceBoard = field(default_factory=ServiceBoard)
    clock: FakeClock = field(default_factory=FakeClock)
    slurm: FakeRights = field(default_factory=FakeRights)
    munged: FakeMunged = field(default_factory=lambda: FakeMunged(uid=1000))
    public: bool = True

    def __post_init__(self) -> None:
        access, munge = view_access(self.munged, self.clock, self.slurm), Munge(run=self.munged)
        views = ViewRoutes(
            self.store, self.clock, access, lambda: Settings.model_validate({"api": {"public": self.public}})
        )
        services = ServiceRoutes(
            self.board, self.store, self.clock, munge=munge, checks=access.checks, admit=views.admit
        )
        self.app, both = FastAPI(), APIRouter()
        both.include_router(views.routes())
        both.include_router(services.routes())
        self.app.include_router(both)

    def send(self, method: str, path: str, body: bytes = b"", credential: str | None = None) -> httpx.Response:
        target = path if "?" in path else f"{path}?"
        if credential is None:
            munge = Munge(run=self.munged)
            credential = munge.encode(body) if body else munge.encode_request(f"{method} {target}".encode())

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, client=("10.0.0.9", 1234))
            async with httpx.AsyncClient(transport=transport, base_url="http://ctl:6830") as client:
                return await client.request(method, path, content=body, headers={CREDENTIAL_HEADER: credential})

        return asyncio.run(send())

    def report(self, uid: int = 1000, **more: Any) -> httpx.Response:
        self.munged.uid = uid
        return self.send("POST", REPORT_PATH, json.dumps(report(**more).to_dict()).encode())

    def services(self, uid: int) -> list[dict[str, Any]]:
        self.munged.uid = uid
        found: list[dict[str, Any]] = self.send("GET", "/v1/services").json()["services"]
        return found


@pytest.fixture
def site(fresh_store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(viewers, "user_name", lambda uid: USERS[uid])
    store = open_store(f"sqlite:///{fresh_store}/soda.db")
    yield Site(store)
    store.close()


def statuses(site: Site, uid: int, body: bytes, times: int) -> list[int]:
    """Of so many reports at once."""
    site.munged.uid = uid
    return [site.send("POST", REPORT_PATH, body).status_code for _ in range(times)]


def test_who_reports_without_end_is_refused_and_nobody_else(site: Site) -> None:
    wrong = json.dumps(report().to_dict() | {"service_file": "a = 1"}).encode()
    answers = statuses(site, 1001, wrong, 8)
    assert set(answers[:3]) == {422}, "a mistake or two are no attack"
    assert answers[-1] == 429
    assert "user 1001 reports more" in site.report(1001).json()["detail"]
    assert site.report(1000).status_code == 200
    site.clock.at_s += 60.0
    assert site.report(1001).status_code == 200


def test_long_reports_are_read_as_often_as_their_length_allows(site: Site) -> None:
    instances = [(job_id, "gpu", "ready") for job_id in range(1, 1001)]
    body = json.dumps(report(instances=instances).to_dict()).encode()
    for _ in range(60):
        assert statuses(site, 1000, body, 1) == [200], "1000 instances, once a second"
        site.clock.at_s += 1.0
    told = [site.send("POST", REPORT_PATH, body).json() for _ in range(5 * 1024 * 1024 // len(body))]
    assert "user 1000 reports more than sodad reads of one user" in told[-1]["detail"]


def test_a_report_is_kept_for_its_sender_and_answered_with_a_credential(site: Site) -> None:
    body = json.dumps(report().to_dict()).encode()
    site.board.answer({ServiceKey("alice", "answers"): RouterAnswer((5,), 1, 2, "because")}, [])
    answered = site.send("POST", REPORT_PATH, body)
    assert answered.status_code == 200
    assert RouterAnswer.from_json(answered.content) == RouterAnswer((5,), 1, 2, "because")
    munge = Munge(run=site.munged)
    assert munge.check(answered.content, answered.headers[CREDENTIAL_HEADER], (1000,), body).uid == 1000
    assert [one.key for one in site.board.known()] == [("alice", "answers")]


def test_services_of_one_name_of_two_owners_are_two(site: Site) -> None:
    assert site.report(1000, load_qps=3.0).status_code == 200
    assert site.report(1001, load_qps=5.0).status_code == 200
    shown = site.services(1000)
    assert [(one["owner"], one["name"], one["load_qps"]) for one in shown] == [
        ("alice", "answers", 3.0),
        ("bob", "answers", 5.0),
    ]


def test_of_two_routers_of_one_service_the_newest_counts_and_is_told(site: Site) -> None:
    site.report(load_qps=3.0, endpoint="login1:80")
    site.clock.at_s += 1.0
    told = site.report(load_qps=5.0, endpoint="login2:80").json()["reason"]
    assert told.startswith("two routers report answers: login1:80 and login2:80; the newest report counts")
    (shown,) = site.services(1000)
    assert (shown["load_qps"], "two routers" in shown["reason"]) == (5.0, True)
    for _ in range(11):
        site.clock.at_s += 1.0
        told = site.report(endpoint="login2:80").json()["reason"]
    assert "two routers" not in told


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"service_file": "name = 'Bad Name'\ncommand = 'x {port}'\n[cpu]\n"}, 422, "name is 'Bad Name'"),
        ({"service_file": "not toml"}, 422, "cannot be read as TOML"),
        ({"load_qps": -1.0}, 422, "load_qps is -1.0"),
    ],
)
def test_a_report_that_cannot_be_read_is_refused(site: Site, change: dict[str, Any], status: int, said: str) -> None:
    body = json.dumps(report().to_dict() | change).encode()
    answered = site.send("POST", REPORT_PATH, body)
    assert (answered.status_code, said in answered.json()["detail"]) == (status, True)
    assert site.board.known() == []


def test_a_report_is_refused_without_its_own_credential_or_too_long_or_too_soon(site: Site) -> None:
    body = json.dumps(report().to_dict()).encode()
    other = Munge(run=site.munged).encode(b"another body")
    assert site.send("POST", REPORT_PATH, body, credential=other).status_code == 403
    assert site.send("POST", REPORT_PATH, body, credential="").status_code == 403
    assert site.send("POST", REPORT_PATH, b" " * (LONGEST_REPORT + 1)).status_code == 413
    assert site.report().status_code == 200
    again = site.report()
    assert (again.status_code, again.headers["Retry-After"]) == (429, "1")
    site.clock.at_s += 1.0
    assert site.report().status_code == 200


def test_a_user_has_a_bounded_number_of_services(site: Site) -> None:
    site.board.most_per_user = 2
    names = ("a", "b", "c")
    said = [site.report(name=name) for name in names]
    assert [one.status_code for one in said] == [200, 200, 403]
    assert "services.most_per_user" in said[-1].json()["detail"]
    assert site.report(1001, name="c").status_code == 200


def test_reports_are_refused_where_services_are_off(site: Site) -> None:
    site.board.enabled = False
    assert site.report().status_code == 403


def test_an_owner_scales_his_service_until_its_file_says_something_else(site: Site) -> None:
    site.report()
    assert site.send("POST", "/v1/services/answers/scale?least=2&most=3").status_code == 200
    for most, expected in ((4, (2, 3)), (5, (1, 5))):
        site.clock.at_s += 1.0
        site.report(most=most)
        (shown,) = site.services(1000)
        assert (shown["least"], shown["most"]) == expected
    assert site.send("POST", "/v1/services/answers/scale?least=3&most=2").status_code == 422
    site.munged.uid = 1001
    refused = site.send("POST", "/v1/services/answers/scale?least=1&most=2")
    assert (refused.status_code, "answers of bob" in refused.json()["detail"]) == (404, True)


def test_an_owner_drains_his_own_instances_alone(site: Site) -> None:
    site.report(instances=((7, "cpu", "ready"), (8, "gpu", "ready")))
    assert site.send("POST", "/v1/services/answers/drain?job_id=7").status_code == 200
    assert site.board.take_requests() == {("alice", "answers"): {7}}
    assert site.send("POST", "/v1/services/answers/drain?job_id=all").status_code == 200
    assert site.board.take_requests() == {("alice", "answers"): {7, 8}}
    assert site.send("POST", "/v1/services/answers/drain?job_id=9").status_code == 404
    assert site.send("POST", "/v1/services/answers/drain?job_id=x").status_code == 422
    site.munged.uid = 1001
    assert site.send("POST", "/v1/services/answers/drain?job_id=7").status_code == 404
    assert site.board.take_requests() == {}


def test_services_are_private_where_jobs_are(site: Site) -> None:
    site.slurm.private, site.slurm.coordinated = "jobs", {"bob": "ml"}
    site.report()
    assert len(site.services(1000)) == len(site.services(0)) == 1
    assert site.services(1001) == []
    site.munged.uid = 1001
    assert site.send("GET", "/v1/services/alice/answers/day").status_code == 404
    site.board.statuses = {ServiceKey("alice", "answers"): ServiceStatus(accounts=frozenset({"ml"}))}
    assert len(site.services(1001)) == 1


def test_the_day_of_a_service_is_its_minutes(site: Site) -> None:
    site.report()
    now_s = site.clock.now_s()
    minute = LoadMinute("alice", "answers", now_s - 120.0, 2, 8.0, 6.0, 90.0, 100, 1, 2, 3, 1)
    with site.store.write() as session:
        add_minutes(session, [minute, replace(minute, at_s=now_s - 100_000.0)])
        add_minutes(session, [replace(minute, most_qps=9.0, cpu=1)])
    day = site.send("GET", "/v1/services/alice/answers/day").json()
    assert (day["owner"], day["name"]) == ("alice", "answers")
    assert day["minutes"] == [
        {"at_s": now_s - 120.0, "load_qps": 4.0, "most_qps": 9.0, "p99_ms": 90.0, "queries": 200, "errors": 2,
         "violations": 4, "cpu": 3, "gpu": 1},
    ]  # fmt: skip
    assert site.send("GET", f"/v1/services/alice/answers/day?since_s={now_s - 60}").json()["minutes"] == []
    assert site.send("GET", "/v1/services/alice/other/day").status_code == 404


def test_views_and_commands_from_elsewhere_are_refused_where_the_api_is_not_public_but_reports_are_taken(
    site: Site,
) -> None:
    site.public = False
    assert site.report().status_code == 200
    assert site.send("GET", "/v1/services").status_code == 403
    assert site.send("POST", "/v1/services/answers/drain?job_id=all").status_code == 403
