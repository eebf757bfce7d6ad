"""The address of the page in a whole server: bound or said why not, with limits of its own, and beside the API."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest
from pydantic import ValidationError

from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.api.server import make_api_server
from slurm_soda.daemon.clock import SystemClock
from slurm_soda.daemon.page.addresses import own_hosts, page_url
from slurm_soda.daemon.page.endpoint import bind_page
from slurm_soda.daemon.services.service_board import ServiceBoard
from slurm_soda.daemon.settings.addresses import ApiSettings, PageSettings
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.engine import Store


@pytest.fixture
def served(store: Store) -> Iterator[tuple[str, str]]:
    """Addresses of the API and of the page of one server."""
    page = bind_page(PageSettings(listen="127.0.0.1:0"))
    assert page.socket is not None
    port = page.socket.getsockname()[1]
    settings = Settings(page=PageSettings(listen=f"127.0.0.1:{port}"), api=ApiSettings(host="127.0.0.1", port=0))
    writer = ReportWriter(store, SystemClock(), on_close=lambda: None)
    server = make_api_server(
        store, SystemClock(), writer, lambda: settings, str, services=ServiceBoard(), page=page.socket
    )
    with closing(writer), closing(server):
        server.start()
        yield f"http://127.0.0.1:{server.port}", f"http://127.0.0.1:{port}"


def get(url: str, method: str = "GET", **headers: str) -> httpx.Response:
    return httpx.request(method, url, headers=headers, trust_env=False, timeout=30)


def test_the_page_and_the_api_have_each_their_own_address(served: tuple[str, str]) -> None:
    api, page = served
    assert "<title>slurm-soda</title>" in get(f"{page}/").text
    assert get(f"{page}/data/queue").status_code == 401
    assert get(f"{page}/", Host="evil.example").status_code == 421
    assert get(f"{page}/v1/alive").status_code == 404
    assert get(f"{api}/data/queue").status_code == 404
    assert get(f"{api}/").status_code == 404
    assert get(f"{api}/v1/page-link", "POST").status_code == 403


def test_without_an_address_there_is_no_page() -> None:
    assert bind_page(PageSettings()).socket is None


def test_an_address_in_use_costs_the_page_alone_and_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        bound = bind_page(PageSettings(listen=f"127.0.0.1:{port}"))
    assert bound.socket is None
    assert bound.problems == (f"page: 127.0.0.1:{port} cannot be bound (Address already in use); change page.listen",)


@pytest.mark.parametrize(
    "values",
    [
        {"listen": "6832"}, {"listen": "ctl"}, {"listen": "ctl:99999"}, {"url": "soda.site.example"}, {"url": "ftp://x/"},
        {"url": "https://x/#y"}, {"url": "https://x/?y"}, {"url": "https://x y/"}, {"session_hours": 0.0},
        {"session_hours": 1000.0},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_meant_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        PageSettings.model_validate(values)


@pytest.mark.parametrize(
    ("values", "url", "hosts"),
    [
        ({"listen": "127.0.0.1:6832"}, "http://127.0.0.1:6832/", {"127.0.0.1", "ctl"}),
        ({"listen": "[::1]:6832"}, "http://[::1]:6832/", {"::1", "ctl"}),
        ({"listen": "0.0.0.0:6832"}, "http://Ctl:6832/", {"ctl", "0.0.0.0"}),
        ({"listen": "Node:1", "url": "https://S.example/a/b"}, "https://S.example/a/b/", {"s.example", "node", "ctl"}),
    ],
)
def test_where_it_is_found(values: dict[str, str], url: str, hosts: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "Ctl")
    page = PageSettings.model_validate(values)
    assert (page_url(page), own_hosts(page)) == (url, hosts)
