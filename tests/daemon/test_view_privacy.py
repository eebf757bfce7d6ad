"""Who is shown what over HTTP: users with a credential alone; own jobs, and the rest as Slurm's PrivateData has it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from slurm_soda.daemon.api import viewers
from slurm_soda.daemon.api.routes import ViewRoutes
from slurm_soda.daemon.learning.profile_rows import row_columns
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.kind_profiles import put_value
from slurm_soda.daemon.store.tables.scheduling import AgentHeartbeat, Cycle, Epoch, Preemption
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileSubject, ProfileValue
from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge
from tests.daemon.api_server import FakeRights, signed, view_access
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.records import record
from tests.wire.fake_munged import FakeMunged

USERS = {0: "root", 1000: "alice", 1001: "bob", 1002: "carol", 64030: "slurm"}
PATHS = [
    "/v1/status", "/v1/jobs", "/v1/jobs/7", "/v1/fit?limit=9", "/v1/pair?model=a&other_model=b", "/v1/job-reports",
    "/v1/job-reports/7",
]  # fmt: skip
SECRET = "job 8 of bob"


@dataclass
class Site:
    """Two jobs, of alice (7) and of bob (8), and the application as a client elsewhere reaches it."""

    store: Store
    clock: FakeClock = field(default_factory=FakeClock)
    slurm: FakeRights = field(default_factory=FakeRights)
    munged: FakeMunged = field(default_factory=lambda: FakeMunged(uid=1000))

    def __post_init__(self) -> None:
        self.app = FastAPI()
        access = view_access(self.munged, self.clock, self.slurm)
        views = ViewRoutes(self.store, self.clock, access, Settings, lambda: SECRET)
        self.app.include_router(views.routes())
        jobs, now_s = JobCache(self.store), self.clock.now_s()
        jobs.observe([record(7), record(8, user="bob", account="lab")], now_s)
        with self.store.write() as session:
            jobs.save(session, now_s)
            session.add(Epoch(host="h", pid=1, version="1", started_s=0.0, heartbeat_s=now_s))
            session.flush()
            session.add(Cycle(epoch_id=1, started_s=now_s, mode="observe", policy="fifo", facts={"problems": [SECRET]}))
            session.add(Cycle(epoch_id=1, started_s=now_s, mode="observe", policy="fifo", error=SECRET))
            faults, walls = (
                [SECRET, "munge does not answer"],
                [{"fault": "", "recorded": [8], "guests": [9], "lapse": [1.0, 8]}],
            )
            session.add(AgentHeartbeat(node="n1", agent_id="a", seq=1, seen_s=now_s, faults=faults, walls=walls))
            for job_id in (7, 8):
                session.add(
                    Preemption(job_id=job_id, submit_s=1000.0, restart=0, phase="signalled", created_s=now_s,
                               deadline_s=now_s, updated_s=now_s, for_jobs=[], reason="")
                )  # fmt: skip

    def ask(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, client=("10.0.0.9", 1234))
            async with httpx.AsyncClient(transport=transport, base_url="http://ctl:6830") as client:
                return await client.get(path, headers=signed(self.munged, path) if headers is None else headers)

        return asyncio.run(ask())

    def view(self, path: str, uid: int) -> Any:
        self.munged.uid = uid
        return json.loads(self.ask(path).content)

    def listed(self, uid: int) -> list[int]:
        return [job["job_id"] for job in self.view("/v1/jobs", uid)["jobs"]]

    def later(self, seconds: float) -> None:
        self.clock.at_s += seconds


@pytest.fixture
def site(fresh_store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(viewers, "user_name", lambda uid: USERS[uid])
    monkeypatch.setattr(viewers.os, "getuid", lambda: 64030)
    store = open_store(f"sqlite:///{fresh_store}/soda.db")
    yield Site(store)
    store.close()


@pytest.mark.sample(12)
@pytest.mark.parametrize("path", [*PATHS, "/v1/jobs/0", "/v1/fit"])
@pytest.mark.parametrize("credential", ["", "MUNGE:", "MUNGE:never:", "Basic x"])
def test_without_a_credential_a_request_learns_nothing(site: Site, path: str, credential: str) -> None:
    answer = site.ask(path, {CREDENTIAL_HEADER: credential} if credential else {})
    assert answer.status_code == 403
    assert "credential" in answer.text
    assert not {"alice", "bob", "fifo", "observe", "n1"} & set(answer.text.replace('"', " ").split())


def test_without_a_credential_it_learns_that_sodad_lives(site: Site) -> None:
    answer = site.ask("/v1/alive", {})
    assert (answer.status_code, answer.json()) == (200, {"alive": True})


def test_a_credential_is_good_for_its_request_alone_and_once(site: Site) -> None:
    headers = signed(site.munged, "/v1/jobs/7")
    assert "about another request" in site.ask("/v1/jobs/8", headers).text
    headers = signed(site.munged, "/v1/jobs/7")
    assert site.ask("/v1/jobs/7", headers).status_code == 200
    again = site.ask("/v1/jobs/7", headers)
    assert (again.status_code, "was used before" in again.text) == (403, True)


def test_a_report_of_an_agent_is_no_request_of_a_view(site: Site) -> None:
    credential = Munge(run=site.munged).encode(b"GET /v1/jobs?")
    assert site.ask("/v1/jobs", {CREDENTIAL_HEADER: credential}).status_code == 403


@pytest.mark.parametrize("private", ["none", "accounts,cloud,events,partitions,reservations"])
def test_everybody_sees_all_jobs_where_slurm_shows_them(site: Site, private: str) -> None:
    site.slurm.private = private
    for path in PATHS:
        assert site.ask(path).status_code == 200
    assert site.listed(1000) == [7, 8]
    assert SECRET in site.ask("/v1/status").text


@pytest.mark.parametrize("private", ["jobs", "jobs,users", "all"])
def test_a_user_sees_his_own_jobs_alone_where_slurm_keeps_them_private(site: Site, private: str) -> None:
    site.slurm.private = private
    assert (site.listed(1000), site.listed(1001), site.listed(1002)) == ([7], [8], [])
    assert site.view("/v1/jobs/7", 1000)["job"]["user"] == "alice"
    refused = site.view("/v1/jobs/8", 1000)["detail"]
    assert "PrivateData" in refused
    assert refused.replace("8", "9") == site.view("/v1/jobs/9", 1000)["detail"]  # the same whether there is one or not
    status = site.view("/v1/status", 1000)
    assert [entry["job_id"] for entry in status["preemptions"]] == [7]
    assert status["states"] == {"PENDING": 2}  # as sdiag says to everybody
    assert SECRET not in site.ask("/v1/status?cycles=9").text
    assert len(status["nodes"]) == (private != "all")
    for node in status["nodes"]:
        assert node["faults"] == ["munge does not answer", "soda-agent's log on the node says more"]
        assert node["walls"] == [{"fault": "", "recorded": []}]


@pytest.mark.parametrize(
    ("uid", "level"), [(0, "None"), (64030, "None"), (1002, "Operator"), (1002, "Administrator")], ids=str
)
def test_operators_see_everything(site: Site, uid: int, level: str) -> None:
    site.slurm.private, site.slurm.levels["carol"] = "all", level
    assert site.listed(uid) == [7, 8]
    assert site.view("/v1/jobs/8", uid)["job"]["user"] == "bob"
    assert SECRET in json.dumps(site.view("/v1/status?cycles=9", uid))
    assert len(site.view("/v1/status", uid)["nodes"]) == 1
    assert site.ask("/v1/fit?limit=9&user=bob").status_code == 200


def test_coordinators_see_the_jobs_of_their_accounts(site: Site) -> None:
    site.slurm.private, site.slurm.coordinated["carol"] = "jobs", "other,lab"
    assert site.listed(1002) == [8]
    assert site.view("/v1/jobs/8", 1002)["job"]["user"] == "bob"
    assert "PrivateData" in site.view("/v1/jobs/7", 1002)["detail"]


@pytest.mark.parametrize("private", ["jobs", "usage", "users"])
def test_cores_of_others_are_private_too(site: Site, private: str) -> None:
    site.slurm.private = private
    assert [job["job_id"] for job in site.view("/v1/fit?limit=9", 1001)["jobs"]] == [8]
    assert [job["job_id"] for job in site.view("/v1/fit?limit=9", 1000)["jobs"]] == [7]
    assert site.view("/v1/fit?limit=9&job_id=8", 1000)["jobs"] == []
    assert site.ask("/v1/fit?limit=9&user=bob").status_code == 403
    assert site.ask("/v1/fit?limit=9&user=alice").status_code == 200


def test_nodes_are_private_where_slurm_keeps_them_so(site: Site) -> None:
    site.slurm.private = "nodes"
    assert site.view("/v1/status", 1000)["nodes"] == []
    assert site.listed(1000) == [7, 8]


def test_until_slurm_has_said_what_is_private_everything_is(site: Site) -> None:
    site.slurm.is_down = True
    assert (site.listed(1000), site.listed(0), site.listed(64030)) == ([7], [7, 8], [7, 8])
    site.slurm.is_down = False
    site.later(viewers.RETRY_S)
    assert site.listed(1000) == [7, 8]


def test_what_slurm_said_last_holds_while_it_is_down(site: Site) -> None:
    site.slurm.private, site.slurm.levels["carol"] = "jobs", "Operator"
    assert (site.listed(1000), site.listed(1002)) == ([7], [7, 8])
    site.slurm.is_down = True
    site.later(10 * viewers.MAX_AGE_S)
    assert (site.listed(1000), site.listed(1002)) == ([7], [7, 8])


def test_a_right_that_is_taken_ends_within_a_minute(site: Site) -> None:
    site.slurm.private, site.slurm.levels["carol"] = "jobs", "Operator"
    assert site.listed(1002) == [7, 8]
    site.slurm.levels.clear()
    site.later(viewers.MAX_AGE_S)
    assert site.listed(1002) == []


def test_slurm_is_asked_once_a_minute(site: Site) -> None:
    site.slurm.private = "jobs"
    for _ in range(5):
        site.listed(1000)
        site.listed(1001)
    assert [argv[0] for argv in site.slurm.asked] == ["scontrol", "sacctmgr", "sacctmgr"]


def test_a_dead_slurm_is_not_asked_by_each_request(site: Site) -> None:
    site.slurm.is_down = True
    for uid in (1000, 1001, 1002, 1000):
        site.listed(uid)
    assert len(site.slurm.asked) == 2


def test_what_the_jobs_of_others_showed_is_private_too(site: Site) -> None:
    mine = ProfileValue(
        ProfileSubject(JobKind("a", 0, "")), "iteration_s", Estimate(0.125, 0.0, Source.MEASURED), owner="bob"
    )
    with site.store.write() as session:
        put_value(session, row_columns(mine))
    path = "/v1/pair?model=a&other_model=b&user=bob"

    def iteration(uid: int) -> Any:
        return site.view(path, uid)["new"]["iteration_s"]

    assert iteration(1000)["value"] == 0.125, "nothing is private"
    site.slurm.private = "jobs"
    site.later(61)
    assert iteration(1000) is None
    assert iteration(1001)["value"] == 0.125


def reported(site: Site, path: str, uid: int) -> tuple[int, Any]:
    site.munged.uid = uid
    answer = site.ask(f"/v1/job-reports{path}")
    return answer.status_code, answer.json()


def listed_reports(site: Site, path: str, uid: int) -> list[int]:
    status, lines = reported(site, path, uid)
    assert status == 200
    return [line["job"]["job_id"] for line in lines["jobs"]]


def test_reports_are_of_ones_own_jobs_unless_others_are_asked_for(site: Site) -> None:
    for uid, own in ((1000, [7]), (1001, [8]), (1002, []), (0, [])):
        assert listed_reports(site, "", uid) == own
    assert listed_reports(site, "?user=bob", 1000) == [8]
    assert listed_reports(site, "?everybody=true", 1000) == [7, 8]
    assert reported(site, "/8", 1000)[1]["job"]["user"] == "bob"
    status, refusal = reported(site, "/9", 1000)
    assert (status, refusal["detail"]) == (403, "sodad knows no job 9")


@pytest.mark.parametrize("private", ["jobs", "usage", "users", "all"])
def test_what_jobs_of_others_used_is_private_where_slurm_says_so(site: Site, private: str) -> None:
    site.slurm.private, site.slurm.coordinated["carol"] = private, "lab"
    assert listed_reports(site, "?everybody=true", 1000) == [7]
    assert listed_reports(site, "?user=bob", 1000) == []
    assert listed_reports(site, "?everybody=true", 1002) == [8], "a coordinator of bob's account"
    assert listed_reports(site, "?everybody=true", 0) == [7, 8]
    assert reported(site, "/7", 1000)[0] == 200
    (status, refused), (_, absent) = reported(site, "/8", 1000), reported(site, "/9", 1000)
    assert status == 403
    assert refused["detail"].replace("8", "9") == absent["detail"], "the same whether there is such a job or not"
    assert "PrivateData" in refused["detail"]


@pytest.mark.parametrize("path", ["?limit=0", "?limit=1000000", "/0", "/x"])
def test_reports_are_bounded(site: Site, path: str) -> None:
    assert reported(site, path, 1000)[0] == 422
