"""``sodactl doctor`` on the web page: sodad serves it where an address is configured, and not unencrypted over a network."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.page.synthetic_site import served_site
from slurm_soda.daemon.cycle.epoch import HostLock
from slurm_soda.sodactl.checks import local_http
from tests.sodactl.checks.conftest import RecordedSlurm
from tests.sodactl.conftest import Bench


@pytest.fixture
def lives(soda: Bench, recorded: RecordedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A sodad runs here."""
    monkeypatch.setattr(local_http, "_TIMEOUT_S", 30.0)
    soda.config.write_text(f'state_dir = "{tmp_path}"\n{soda.config.read_text()}')
    soda.pids.add(os.getpid())
    with HostLock(tmp_path):
        yield


def found(soda: Bench, section: str) -> list[tuple[str, str]]:
    soda.config.write_text(f"{soda.config.read_text().partition('[page]')[0]}\n[page]\n{section}\n")
    findings = soda("doctor", "--json", status=None).document["findings"]
    return [(one["state"], f"{one['found']}; {one['remedy']}") for one in findings if one["check"] == "page"]


@pytest.fixture
def page_store(made_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    shutil.copy(made_store, folder / "soda.db")
    return folder


def test_the_page_answers(soda: Bench, lives: None, page_store: Path) -> None:
    with served_site(page_store, 30) as site:
        ((state, text),) = found(soda, f'listen = "127.0.0.1:{site.port}"')
        assert (state, f"links lead to {site.url}" in text) == ("ok", True)
        ((state, text),) = found(soda, f'listen = "127.0.0.1:{site.port}"\nurl = "https://soda.site.example"')
        assert (state, "links lead to https://soda.site.example/" in text) == ("ok", True)


@pytest.mark.parametrize(
    ("url", "state"), [("", "warn"), ("http://ctl.site.example:6832", "warn"), ("https://s.example", "ok")]
)
def test_over_a_network_only_with_tls(soda: Bench, lives: None, page_store: Path, url: str, state: str) -> None:
    with served_site(page_store, 30) as site:
        ((told, text),) = found(soda, f'listen = "0.0.0.0:{site.port}"\nurl = "{url}"')
        assert (told, "without encryption" in text) == (state, state == "warn")


def test_nobody_answers(soda: Bench, lives: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ((state, text),) = found(soda, f'listen = "127.0.0.1:{port}"')
    assert (state, "does not answer (Connection refused)" in text) == ("fail", True)


def test_nothing_where_none_is_configured(soda: Bench, lives: None) -> None:
    assert found(soda, "") == []
