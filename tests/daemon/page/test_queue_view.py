"""The queue as the page gets it: order, search, pages that stay small, and names that are only text."""

from __future__ import annotations

import asyncio
import json

import pytest

from slurm_soda.daemon.api.viewers import Viewer
from slurm_soda.daemon.page import kept_rows
from slurm_soda.daemon.page.queue_view import MAX_ROWS, QueueFilter, QueueRow, queue_excerpt, read_queue
from slurm_soda.daemon.page.routes import MAX_WAITING_OF_USER
from slurm_soda.daemon.store.tables.scheduling import Job
from tests.daemon.page.page_site import NOW_S, PageSite, fill, job, note
from tests.sodactl.conftest import HOSTILE

SCRIPTS = [
    "<script>alert(1)</script>", "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "${alert(1)}",
    "\"><svg onload=alert(1)>", "javascript:alert(1)", "{{7*7}}", "<!--", "]]>", "\u2028alert(1)",
]  # fmt: skip


def test_the_order(site: PageSite) -> None:
    site.add(
        job(3, note=note(1)), job(5, note=note(0)), job(1), job(2, state="RUNNING"),
        job(4, state="COMPLETING", note=note(0)), job(6, end_s=NOW_S, state="COMPLETED"),
    )  # fmt: skip
    jobs = site.browser(1000).view("/data/queue")["jobs"]
    assert [one["job_id"] for one in jobs] == [5, 3, 1, 2, 4], "waiting ones in the policy's order, then running ones"
    assert [one["position"] for one in jobs] == [1, 2, None, None, None]


def test_what_is_told_of_a_job(site: PageSite) -> None:
    fill(site)
    waits, runs, *_ = site.browser(1000).view("/data/queue")["jobs"]
    assert (waits["reason"], waits["verdict"], waits["start_s"]) == ("train", "wait", None)
    assert (waits["expects_start"], waits["low_s"], waits["high_s"]) == (True, NOW_S + 60, NOW_S + 900)
    assert (runs["state"], runs["start_s"], runs["expects_start"]) == ("RUNNING", NOW_S - 500, False)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("states=waiting", [7]), ("states=running", [8, 9, 10]), ("mine=true", [7, 10]), ("words=LAB", [8, 9]),
        ("words=guest", [9]), ("words=10", [10]), ("mine=true&states=running", [10]), ("words=nothing", []),
        ("offset=1&limit=2", [8, 9]), ("offset=99", []),
    ],
)  # fmt: skip
def test_which_jobs_are_asked_for(site: PageSite, query: str, found: list[int]) -> None:
    fill(site)
    assert [one["job_id"] for one in site.browser(1000).view(f"/data/queue?{query}")["jobs"]] == found


@pytest.mark.parametrize(
    "query", ["limit=0", f"limit={MAX_ROWS + 1}", "offset=-1", "states=x", "mine=x", f"words={'x' * 101}", "offset=1e9"]
)
def test_questions_are_bounded(site: PageSite, query: str) -> None:
    assert site.browser(1000).get(f"/data/queue?{query}").status_code == 422


@pytest.mark.parametrize(
    "path", ["/data/jobs/0", "/data/jobs/4294967296", "/data/changes?before=0", "/data/gpus?kind=x"]
)
def test_other_questions_are_bounded(site: PageSite, path: str) -> None:
    assert site.browser(1000).get(path).status_code == 422


@pytest.mark.parametrize("name", [*SCRIPTS, *(text for text in HOSTILE if "\0" not in text)])
def test_what_users_wrote_comes_as_json_and_unchanged(site: PageSite, name: str) -> None:
    fill(site, name)
    browser = site.browser(1000)
    for path in ("/data/queue", "/data/jobs/7", "/data/gpus", "/data/changes"):
        answer = browser.get(path)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.content.isascii()
    (shown,) = browser.view("/data/queue?states=waiting")["jobs"]
    assert (shown["name"], shown["reason"], shown["partition"]) == (name, name, name)


def row(job_id: int) -> QueueRow:
    """As long as rows get at real sites."""
    return QueueRow(
        job_id, f"user{job_id % 50}", "department-of-physics", "gpu-large", "train-resnet50-imagenet-seed-17", "PENDING",
        "Resources", 8, 2, 64, NOW_S - 3600.25, 3, job_id, 1, "wait for preemption", False, None, "", True, NOW_S + 60.125,
        NOW_S + 600.125, NOW_S + 6000.125,
    )  # fmt: skip


def test_an_answer_on_ten_thousand_jobs_is_small(site: PageSite) -> None:
    site.served._routes._queue._kept = [row(number) for number in range(1, 10_001)]
    site.served._routes._queue._until_s = NOW_S + 100
    browser = site.browser(1000)
    answer = browser.get("/data/queue")
    view = json.loads(answer.content)["view"]
    assert (len(view["jobs"]), view["found"], view["totals"]["waiting_gpus"]) == (100, 10_000, 80_000)
    assert len(answer.content) < 60_000
    last = browser.view("/data/queue?offset=9900&limit=200")["jobs"]
    assert (len(last), last[-1]["job_id"]) == (100, 10_000)


def test_rows_are_read_once_for_all(site: PageSite, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(site)
    one, other = site.browser(1000), site.browser(1001)
    before = one.queued()
    site.add(job(11))
    assert (one.queued(), other.queued()) == (before, before)
    site.later(kept_rows.MAX_AGE_S)
    assert 11 in other.queued()


def test_a_user_with_many_questions_keeps_no_connections(site: PageSite) -> None:
    fill(site)
    alice, bob = site.browser(1000), site.browser(1001)

    async def many() -> list[int]:
        go_on, read = asyncio.Event(), site.served._routes._queue.read

        async def read_late() -> list[QueueRow]:
            await go_on.wait()
            return await read()

        site.served._routes._queue.read = read_late
        asked = [asyncio.create_task(alice.asking("/data/queue")) for _ in range(MAX_WAITING_OF_USER + 2)]
        asked.append(asyncio.create_task(bob.asking("/data/queue")))
        while sum(task.done() for task in asked) < 2:
            await asyncio.sleep(0.01)
        go_on.set()
        return sorted([(await task).status_code for task in asked])

    assert asyncio.run(many()) == [*[200] * (MAX_WAITING_OF_USER + 1), 429, 429]
    assert not site.served._routes._turns._waiting


def test_rows_of_the_store_are_those_of_the_jobs(site: PageSite) -> None:
    fill(site)
    with site.store.read() as session:
        rows = read_queue(session)
        live = session.query(Job).where(Job.end_s.is_(None)).count()
    assert len(rows) == live
    page = queue_excerpt(rows, Viewer("bob", frozenset({"jobs"})), QueueFilter(), offset=0, limit=1)
    assert (page.found, [one.job_id for one in page.jobs]) == (2, [8])
