"""A site with a page, without a network: rows in a store, Slurm's word on privacy, and browsers with a session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from socket import socket
from typing import Any

import httpx
from fastapi import APIRouter, FastAPI

from slurm_soda.daemon.api.connection_limits import Application
from slurm_soda.daemon.api.routes import ViewRoutes
from slurm_soda.daemon.page.link_route import PageLinkRoute
from slurm_soda.daemon.page.served_page import ServedPage
from slurm_soda.daemon.settings.addresses import PageSettings
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.tables.scheduling import (
    Action,
    AgentHeartbeat,
    Epoch,
    Job,
    JobNodeUsage,
    JobRun,
    NodeEvent,
    Preemption,
)
from slurm_soda.daemon.store.tables.sharing import ShareRow
from slurm_soda.daemon.store.tables.start_forecasts import ExpectedStart
from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge
from tests.daemon.api_server import FakeRights, view_access
from tests.daemon.fake_slurm import FakeClock
from tests.wire.fake_munged import FakeMunged

USERS = {0: "root", 1000: "alice", 1001: "bob", 1002: "carol", 64030: "slurm"}
NOW_S = FakeClock().at_s
SUBMIT_S = NOW_S - 1000
ADDRESS = PageSettings(listen="127.0.0.1:6832")


class NoSocket(socket):
    """What is never listened at."""

    def getsockname(self) -> Any:
        return "127.0.0.1", 6832


@dataclass
class PageSite:
    """A sodad with both its sides, as clients reach them."""

    store: Store
    page: PageSettings = ADDRESS
    clock: FakeClock = field(default_factory=FakeClock)
    slurm: FakeRights = field(default_factory=FakeRights)
    munged: FakeMunged = field(default_factory=FakeMunged)

    def __post_init__(self) -> None:
        access = view_access(self.munged, self.clock, self.slurm)
        settings = Settings(mode="enforce")
        views = ViewRoutes(self.store, self.clock, access, lambda: settings)
        self.served = ServedPage(NoSocket(), views, access, self.clock, lambda: self.page)
        endpoint = self.served.endpoint()
        self.app = endpoint.guard(_app(endpoint.router))
        self.api = _app(PageLinkRoute(views.admit, Munge(run=self.munged), self.served).routes())
        self.without = _app(PageLinkRoute(views.admit, Munge(run=self.munged), None).routes())

    def add(self, *rows: Any) -> None:
        with self.store.write() as session:
            for row in rows:
                session.add(row)
                session.flush()

    def link(self, uid: int, api: Application | None = None) -> httpx.Response:
        """Ask for a link as `sodactl page` does."""
        self.munged.uid = uid
        headers = {CREDENTIAL_HEADER: Munge(run=self.munged).encode_request(b"POST /v1/page-link?")}
        return ask(api or self.api, "/v1/page-link", headers, method="POST")

    def token(self, uid: int) -> str:
        """The secret in a link of this user."""
        return Munge(run=self.munged).decode_secret(self.link(uid).json()["sealed"]).decode()

    def browser(self, uid: int) -> Browser:
        """A browser with a session of this user."""
        browser = Browser(self.app)
        assert browser.enter(self.token(uid)).status_code == 200
        return browser

    def later(self, seconds: float) -> None:
        self.clock.at_s += seconds


@dataclass
class Browser:
    """Keeps a cookie and a key."""

    app: Application
    cookie: str = ""
    key: str = ""

    def enter(self, token: str) -> httpx.Response:
        answer = ask(self.app, "/session", {"X-Soda-Link": token})
        with suppress(ValueError, KeyError):
            self.key = answer.json()["key"]
            self.cookie = answer.cookies["soda-page"]
        return answer

    def get(self, path: str) -> httpx.Response:
        return asyncio.run(self.asking(path))

    async def asking(self, path: str) -> httpx.Response:
        return await asking(self.app, path, {"Cookie": f"soda-page={self.cookie}", "X-Soda-Page": self.key})

    def view(self, path: str) -> Any:
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return json.loads(answer.content)["view"]

    def queued(self) -> list[int]:
        return [job["job_id"] for job in self.view("/data/queue")["jobs"]]


def ask(
    app: Application, path: str, headers: Mapping[str, str], *, method: str = "GET", host: str = "127.0.0.1:6832"
) -> httpx.Response:
    return asyncio.run(asking(app, path, headers, method=method, host=host))


async def asking(
    app: Application, path: str, headers: Mapping[str, str], *, method: str = "GET", host: str = "127.0.0.1:6832"
) -> httpx.Response:
    transport = httpx.ASGITransport(app=app, client=("10.0.0.9", 1234))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:6832") as client:
        return await client.request(method, path, headers={"Host": host, **headers})


def _app(router: APIRouter) -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(router)
    return app


def job(job_id: int, **more: Any) -> Job:
    """A job that waits; of alice."""
    values: dict[str, Any] = {
        "submit_s": SUBMIT_S, "user": "alice", "account": "acc", "partition": "main", "name": "train", "state": "PENDING",
        "reason": "Priority", "gpus": 2, "nodes": 1, "cpus": 4, "last_seen_s": NOW_S, "time_limit_s": 3600.0,
    }  # fmt: skip
    return Job(job_id=job_id, **values | more)


def note(position: int) -> dict[str, Any]:
    return {"verdict": "wait", "queue": 0, "position": position, "score": 12.5, "score_name": "attained_gpu_s"}


def fill(site: PageSite, text: str = "train") -> None:
    """Job 7 of alice waits; 8 of bob runs on GPUs 0 and 1 of n1, with 9 of bob as its guest on GPU 0; 10 of alice on n2.

    ``text`` stands wherever a user or Slurm may have put one.
    """
    site.add(Epoch(host="h", pid=1, version="1", started_s=0.0, heartbeat_s=NOW_S))
    waits = job(7, name=text, reason=text, partition=text, note=note(0), hints={"model": "resnet50"})
    runs = [job(8, user="bob", account="lab", name=text, state="RUNNING", note=note(1), first_start_s=NOW_S - 500)]
    runs += [
        job(9, user="bob", account="lab", name="guest", state="RUNNING", gpus=0),
        job(10, name=text, state="RUNNING"),
    ]
    site.add(waits, *runs)
    site.add(ExpectedStart(job_pk=waits.id, at_s=NOW_S, low_s=NOW_S + 60, median_s=NOW_S + 300, high_s=NOW_S + 900))
    for one, node, gpus in zip(runs, ("n1", "n1", "n2"), ([0, 1], [], [0]), strict=True):
        at = {"job_id": one.job_id, "restart": 0, "node": node}
        site.add(
            JobRun(job_pk=one.id, restart=0, start_s=NOW_S - 500, gpus=2, node_names=text),
            NodeEvent(kind="open", **at, at_s=NOW_S - 500, record={"cpus": 4, "gpus": gpus}),
            JobNodeUsage(
                **at, first_s=NOW_S - 500, last_s=NOW_S, samples=9, gpu_count=2, gpu_util_ratio=0.75,
                gpu_util_last_ratio=0.5, gpu_memory_peak_mib=9000, cpu_s=70, memory_peak_mib=512,
            ),
        )  # fmt: skip
    site.add(
        *(AgentHeartbeat(node=node, agent_id="a", seq=1, seen_s=NOW_S - 3, gpu_count=4) for node in ("n10", "n2", "n1")),
        ShareRow(
            guest=9, submit_s=SUBMIT_S, restart=0, hosts=[8], nodes=["n1"], gpus=[0], phase="started", why=text,
            created_s=NOW_S - 400, deadline_s=NOW_S, started_s=NOW_S - 390, updated_s=NOW_S,
        ),
        Preemption(
            job_id=8, submit_s=SUBMIT_S, restart=0, phase="done", created_s=NOW_S - 800, deadline_s=NOW_S, updated_s=NOW_S,
            for_jobs=[7], reason=text,
        ),
    )  # fmt: skip
    for job_id in (7, 8, 9, 10):
        site.add(
            Action(
                job_id=job_id, submit_s=SUBMIT_S, epoch_id=1, kind="order", new={"SiteFactor": "5"}, old={"SiteFactor": "0"},
                reason=text, state="done", created_s=NOW_S - 50, finished_s=NOW_S - 50, error=text,
            )
        )  # fmt: skip
