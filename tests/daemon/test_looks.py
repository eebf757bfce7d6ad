"""What anybody may look at over HTTP, and at what price."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.daemon.api import routes
from slurm_soda.daemon.api.kept_answers import UserTurns
from slurm_soda.daemon.api.routes import ViewRoutes
from slurm_soda.daemon.api.view_json import ViewJsonError, decode_view, encode_view
from slurm_soda.daemon.api.views import MAX_CHANGES, JobDetailView, JobListView, StatusView, ViewHeader
from slurm_soda.daemon.settings.addresses import ApiSettings
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.tables.scheduling import Action, Epoch, Job
from tests.daemon.api_server import signed, view_access
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.records import record
from tests.wire.fake_munged import FakeMunged


@dataclass
class Site:
    """The application as a client elsewhere reaches it."""

    store: Store
    clock: FakeClock
    settings: Settings = field(default_factory=Settings)
    client: str = "10.0.0.9"
    munged: FakeMunged = field(default_factory=FakeMunged)
    cycle_error: str = ""

    def __post_init__(self) -> None:
        self.app = FastAPI()
        access = view_access(self.munged, self.clock)
        views = ViewRoutes(self.store, self.clock, access, lambda: self.settings, lambda: self.cycle_error)
        self.app.include_router(views.routes())

    def get(self, path: str, host: str = "10.0.0.1") -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, client=(self.client, 1234))
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}:6830") as client:
                return await client.get(path, headers=signed(self.munged, path))

        return asyncio.run(ask())

    def submit(self, *job_ids: int, **values: Any) -> None:
        job_cache = JobCache(self.store)
        job_cache.observe([record(job_id, **values) for job_id in job_ids], self.clock.now_s())
        with self.store.write() as session:
            job_cache.save(session, self.clock.now_s())


@pytest.fixture
def site(fresh_store: Path) -> Iterator[Site]:
    store = open_store(f"sqlite:///{fresh_store}/soda.db")
    yield Site(store, FakeClock())
    store.close()


def test_a_jobs_story(site: Site) -> None:
    site.submit(7, name="\udcff\n'", state="RUNNING", start_s=1010.0)
    answer = site.get("/v1/jobs/7")
    assert answer.headers["content-type"] == "application/json"
    assert b'"\\udcff\\n\'"' in answer.content
    story = decode_view(JobDetailView, answer.content)
    assert story.job is not None
    assert (story.job.name, story.runs[0].start_s) == ("\udcff\n'", 1010.0)


def test_a_job_that_is_not_known(site: Site) -> None:
    assert decode_view(JobDetailView, site.get("/v1/jobs/8").content).job is None


OUT_OF_BOUNDS = [
    "/v1/jobs/0", "/v1/jobs/99999999999999999999", "/v1/jobs/x", "/v1/status?cycles=101", "/v1/fit", "/v1/fit?limit=0",
    "/v1/fit?limit=5001", "/v1/fit?limit=1&job_id=0",
]  # fmt: skip


@pytest.mark.parametrize("path", OUT_OF_BOUNDS)
def test_out_of_bounds(site: Site, path: str) -> None:
    assert site.get(path).status_code == 422


@pytest.mark.parametrize(("age_s", "alive"), [(1.0, True), (31.0, False)])
def test_status(site: Site, age_s: float, alive: bool) -> None:
    now_s = site.clock.now_s()
    with site.store.write() as session:
        session.add(Epoch(host="h", pid=1, version="1", started_s=0.0, heartbeat_s=now_s - age_s))
    site.submit(7, 8)
    seen = decode_view(StatusView, site.get("/v1/status").content)
    assert (seen.head.daemon_alive, seen.states, seen.nodes, seen.cycles) == (alive, {"PENDING": 2}, [], [])


@pytest.mark.parametrize(("age_s", "stall"), [(1.0, ""), (31.0, "disk I/O error")])
def test_a_sodad_that_answers_lives_and_says_why_it_makes_no_cycle(site: Site, age_s: float, stall: str) -> None:
    site.cycle_error = "disk I/O error"
    with site.store.write() as session:
        session.add(Epoch(host="h", pid=1, version="1", started_s=0.0, heartbeat_s=site.clock.now_s() - age_s))
    assert decode_view(StatusView, site.get("/v1/status").content).head.stall == stall


def test_all_jobs_are_listed_once_a_second(site: Site) -> None:
    def listed() -> list[int]:
        return [job.job_id for job in decode_view(JobListView, site.get("/v1/jobs").content).jobs]

    assert listed() == []
    site.submit(7)
    site.clock.at_s += routes.ANSWER_MAX_AGE_S / 2
    assert listed() == []
    site.clock.at_s += routes.ANSWER_MAX_AGE_S
    assert listed() == [7]


def test_a_status_is_made_once_a_second_for_all_who_ask_the_same(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made, make = [], routes.views.status_view
    monkeypatch.setattr(routes.views, "status_view", lambda *args, **more: made.append(1) or make(*args, **more))

    def states(query: str = "?cycles=1&since_s=3600.5") -> dict[str, int]:
        return dict(decode_view(StatusView, site.get(f"/v1/status{query}").content).states)

    assert states() == {}
    site.submit(7)
    site.clock.at_s += routes.ANSWER_MAX_AGE_S / 2
    assert [states(), states("?since_s=3601.25")] == [{}, {}]
    assert len(made) == 1
    assert states("?cycles=2") == {"PENDING": 1}
    site.clock.at_s += routes.ANSWER_MAX_AGE_S
    assert states() == {"PENDING": 1}
    assert len(made) == 3


def test_many_questions_of_one_user_are_answered_one_at_a_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    now, most, make = [0], [0], routes.views.status_view
    monkeypatch.setattr(routes, "MAX_STATUS_WAIT_S", 0.0)

    def slow(*args: Any, **more: Any) -> StatusView:
        now[0] += 1
        most[0] = max(most[0], now[0])
        time.sleep(0.02)
        now[0] -= 1
        return make(*args, **more)

    monkeypatch.setattr(routes.views, "status_view", slow)

    async def ask() -> list[int]:
        transport = httpx.ASGITransport(app=site.app, client=(site.client, 1234))
        async with httpx.AsyncClient(transport=transport, base_url="http://10.0.0.1:6830") as client:
            paths = [f"/v1/status?cycles={count}" for count in range(6)]
            asked = [client.get(path, headers=signed(site.munged, path)) for path in paths]
            return [answer.status_code for answer in await asyncio.gather(*asked)]

    assert asyncio.run(ask()) == [200] * 6
    assert most == [1]


def test_a_user_waits_for_his_own_turn_and_rest_and_for_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slept = FakeClock(), list[float]()
    turns = UserTurns(clock, lambda took_s: 10 * took_s)

    async def sleep(wait_s: float) -> None:
        slept.append(wait_s)

    async def take() -> None:
        async with turns.of("eve"):
            async with turns.of("alice"):
                pass
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(turns.of("eve").__aenter__(), 0.05)
            clock.at_s += 0.5
        async with turns.of("alice"), turns.of("eve"):
            pass

    monkeypatch.setattr("slurm_soda.daemon.api.kept_answers.asyncio.sleep", sleep)
    asyncio.run(take())
    assert slept == [0.0, 0.0, 0.0, 5.0]


def test_a_user_rests_after_a_refusal_too() -> None:
    clock = FakeClock()
    turns = UserTurns(clock, lambda took_s: 10 * took_s)

    async def refuse() -> None:
        async with turns.of("eve"):
            clock.at_s += 0.5
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(refuse())
    assert turns._rests_until_s == {"eve": clock.elapsed_s() + 5.0}


def test_answers_are_bounded(site: Site) -> None:
    site.submit(7)
    rows = [
        {"job_id": 7, "submit_s": record(7).submit_s, "kind": "order", "state": "done", "created_s": float(at)}
        for at in range(MAX_CHANGES + 10)
    ]
    with site.store.write() as session:
        session.execute(Action.__table__.insert(), rows)  # type: ignore[attr-defined]  # declared as FromClause
    actions = decode_view(JobDetailView, site.get("/v1/jobs/7").content).actions
    assert [action.created_s for action in actions] == [float(at) for at in range(10, MAX_CHANGES + 10)]


@pytest.mark.parametrize("path", ["/v1/status", "/v1/jobs", "/v1/jobs/7", "/v1/fit?limit=9"])
@pytest.mark.parametrize(
    ("public", "client", "status"),
    [
        (True, "10.0.0.9", 200),
        (False, "10.0.0.9", 403),
        (False, "10.0.0.1", 200),
        (False, "127.0.0.1", 200),
        (False, "::1", 200),
    ],
)
def test_who_may_look(site: Site, path: str, public: bool, client: str, status: int) -> None:
    site.settings, site.client = Settings(api=ApiSettings(public=public)), client
    answer = site.get(path)
    assert answer.status_code == status
    assert ("api.public" in answer.text) == (status == 403)


def test_a_store_that_fails_is_said_in_short(site: Site) -> None:
    with site.store.write() as session:
        session.connection().exec_driver_sql("DROP TABLE admin_setting")
    answer = site.get("/v1/jobs/7")
    assert (answer.status_code, answer.json()) == (503, {"detail": "the store cannot be read; ask again later"})


BYTES = st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape"))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
HEAD = ViewHeader(None, daemon_alive=False, stall="", mode="observe", policy="fifo", parameters={})
JOBS = st.builds(
    dict, id=st.integers(), job_id=st.integers(), submit_s=NUMBERS, name=BYTES, user=BYTES, account=BYTES, partition=BYTES,
    reason=BYTES, state=BYTES, gpus=st.integers(), nodes=st.integers(), cpus=st.integers(), end_s=st.none() | NUMBERS,
    time_limit_s=st.none() | NUMBERS, hints=st.dictionaries(BYTES, BYTES), first_start_s=st.none() | NUMBERS,
    exit_code=BYTES, executed_s=NUMBERS, waited_since_s=st.none() | NUMBERS, preemptions=st.integers(),
    promotions=st.integers(), promoted_s=st.none() | NUMBERS, last_seen_s=NUMBERS, cpu_s=st.none() | NUMBERS,
    memory_peak_mib=st.none() | NUMBERS, accounted=st.booleans(), note=st.dictionaries(BYTES, st.none() | NUMBERS | BYTES),
)  # fmt: skip


@given(JOBS)
def test_a_row_arrives_as_it_was_sent(values: dict[str, Any]) -> None:
    sent = encode_view(JobListView(HEAD, [Job(**values)], more=False))
    (job,) = decode_view(JobListView, sent).jobs
    assert {key: getattr(job, key) for key in values} == values
    assert encode_view(JobListView(HEAD, [job], more=False)) == sent


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_does_not_have_arrives_as_nan(number: float) -> None:
    epoch = Epoch(
        id=1,
        host="h",
        pid=1,
        version="1",
        started_s=number,
        heartbeat_s=1,
        ended_s=None,
        state_dir="",
        take_over_after_s=1,
    )
    assert str(decode_view(Epoch, encode_view(epoch)).started_s) == "nan"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["head", "job", "runs", "id", "epoch"]), inner),
)


@given(JSON)
def test_what_is_no_picture_is_refused(data: Any) -> None:
    with pytest.raises(ViewJsonError):
        decode_view(JobDetailView, json.dumps(data).encode())


def test_what_a_newer_sodad_adds_is_left_out() -> None:
    told = json.loads(encode_view(HEAD)) | {"added": 1}
    assert decode_view(ViewHeader, json.dumps(told).encode()) == HEAD
