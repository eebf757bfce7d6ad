"""``sodactl page``: a link that opens the page of a real server once, and what is said where there is none."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest

from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.clock import SystemClock
from slurm_soda.daemon.settings.addresses import ApiSettings, PageSettings
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.sodactl.live import sodad_http
from slurm_soda.sodactl.live.page import _ssh_command
from tests.daemon.api_server import FakeRights, api_server
from tests.sodactl.conftest import Bench, stored_job
from tests.sodactl.test_commands_documentation import section
from tests.sodactl.view_source.conftest import leave


@pytest.fixture
def paged(soda: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of a sodad that serves a page."""
    monkeypatch.setattr(sodad_http, "TIMEOUT_S", 60.0)
    clock, bound = SystemClock(), socket.create_server(("127.0.0.1", 0))
    writer = ReportWriter(soda.store, clock, on_close=lambda: None)
    page = PageSettings(listen=f"127.0.0.1:{bound.getsockname()[1]}")
    server = api_server(
        soda.store,
        writer,
        soda.munged,
        ApiSettings(host="127.0.0.1", port=0),
        settings=lambda: Settings(page=page),
        slurm=FakeRights(),
        page=bound,
    )
    server.start()
    yield f"http://127.0.0.1:{server.port}"
    server.close()
    writer.close()


def test_the_link_opens_the_page_once(soda: Bench, paged: str) -> None:
    soda.add(stored_job(7))
    leave(soda, paged)
    document = soda("page", "--json").document
    assert all(f"`{key}`" in section("page") for key in document)
    address, _, secret = document["link"].partition("#")
    port = address.rstrip("/").rpartition(":")[2]
    assert document["ssh"] == f"ssh -L {port}:127.0.0.1:{port} CONTROLLER"
    with httpx.Client(base_url=address, trust_env=False, timeout=30) as browser:
        assert "<!doctype html>" in browser.get("").text
        begun = browser.get("session", headers={"X-Soda-Link": secret})
        shown = browser.get("data/queue", headers={"X-Soda-Page": begun.json()["key"]}).json()
        assert [job["job_id"] for job in shown["view"]["jobs"]] == [7]
        assert browser.get("session", headers={"X-Soda-Link": secret}).status_code == 403
        assert browser.get("data/queue", headers={"Host": "evil.example"}).status_code == 421


def test_people_are_told_what_the_link_is(soda: Bench, paged: str) -> None:
    leave(soda, paged)
    link, what, through = soda("page").out.splitlines()
    assert link.startswith("http://127.0.0.1:")
    assert "good once, within 1 min 00 s" in what
    assert "ssh -L" in through


def test_where_no_page_is_served_it_says_what_an_admin_does(soda: Bench, sodad: str) -> None:
    leave(soda, sodad)
    assert "set page.listen" in soda("page", status=1).err.replace("sets", "set")


def test_where_no_sodad_answers(soda: Bench) -> None:
    leave(soda, "http://127.0.0.1:1")
    assert "sodad does not answer (http://127.0.0.1:1: " in soda("page", status=1).err


@pytest.mark.parametrize(
    ("url", "controller", "expected"),
    [
        ("http://127.0.0.1:6832/", "ctl", "ssh -L 6832:127.0.0.1:6832 ctl"),
        ("http://[::1]:6832/", "ctl", "ssh -L 6832:[::1]:6832 ctl"),
        ("http://localhost/", "127.0.0.1", "ssh -L 80:localhost:80 CONTROLLER"),
        ("http://ctl:6832/", "ctl", ""),
        ("https://soda.site.example/", "ctl", ""),
    ],
)
def test_the_way_through_ssh(url: str, controller: str, expected: str) -> None:
    assert _ssh_command(url, controller) == expected
