"""One user's many questions take one place of those in which answers are made, and leave the others to others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from slurm_soda.daemon.api import kept_answers, viewers
from slurm_soda.daemon.api.kept_answers import MAX_DETAILS_OF_USER
from slurm_soda.daemon.api.routes import ViewRoutes
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.engine import open_store
from tests.daemon.api_server import FakeRights, signed, view_access
from tests.daemon.fake_slurm import FakeClock
from tests.wire.fake_munged import FakeMunged

USERS = {1000: "eve", 1001: "bob"}
PATHS = ["/v1/jobs/7", "/v1/job-reports/7", "/v1/fit?limit=9", "/v1/pair?model=a&other_model=b"]


@pytest.fixture
def views(fresh_store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ViewRoutes]:
    monkeypatch.setattr(viewers, "user_name", lambda uid: USERS[uid])
    monkeypatch.setattr(kept_answers, "MAX_DETAIL_WAIT_S", 0.0)
    store, clock = open_store(f"sqlite:///{fresh_store}/soda.db"), FakeClock()
    munged = FakeMunged()
    made = ViewRoutes(store, clock, view_access(munged, clock, FakeRights()), Settings)
    made.munged = munged  # type: ignore[attr-defined]
    yield made
    store.close()


@pytest.mark.parametrize("path", PATHS)
def test_many_questions_of_one_user_leave_places_to_others(
    views: ViewRoutes, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, munged = FastAPI(), views.munged  # type: ignore[attr-defined]
    app.include_router(views.routes())
    go_on, read, begun = threading.Event(), views._read, list[int]()

    def wait(what: Any) -> Any:
        begun.append(1)
        go_on.wait(20)
        return read(what)

    async def ask() -> list[int]:
        transport = httpx.ASGITransport(app=app, client=("10.0.0.9", 1234))
        async with httpx.AsyncClient(transport=transport, base_url="http://ctl:6830") as client:

            def asking(uid: int, wanted: str) -> asyncio.Task[httpx.Response]:
                munged.uid = uid
                return asyncio.create_task(client.get(wanted, headers=signed(munged, wanted)))

            monkeypatch.setattr(views, "_read", wait)
            eve = [asking(1000, path) for _ in range(MAX_DETAILS_OF_USER + 4)]
            while not begun or sum(one.done() for one in eve) < 4:
                await asyncio.sleep(0.01)
            assert len(begun) == 1, "one at a time"
            monkeypatch.setattr(views, "_read", read)
            bob = await asyncio.wait_for(asking(1001, "/v1/jobs/8"), 10)
            assert bob.status_code == 200
            go_on.set()
            return [(await one).status_code for one in eve]

    statuses = asyncio.run(ask())
    assert statuses.count(429) == 4, "more than so many do not wait"
