"""A real router with a real HAProxy, before real small HTTP servers."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from slurm_soda.services.router import router
from slurm_soda.services.router.listen_address import ListenAddress
from slurm_soda.services.router.router import Router
from slurm_soda.services.router.sodad_reports import Controllers, SodadReports
from slurm_soda.wire.munge import Munge
from tests.services.router.backends import Backends
from tests.services.router.fake_sodad import FakeSodad
from tests.services.router.load import ask
from tests.wire.fake_munged import FakeMunged

SERVICE = 'name = "resnet"\ncommand = "serve {port}"\ntarget_ms = 200\nwindow_ms = 10\n[cpu]\n'


def wait_until(true: Callable[[], object], what: str, limit_s: float = 40.0) -> None:
    until_s = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < until_s, f"never: {what}"
        time.sleep(0.02)


class Site:
    """One service: its file, its instances, its router, and sodad."""

    def __init__(self, path: Path) -> None:
        if shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin") is None:
            pytest.skip("haproxy is not installed (apt-get install haproxy)")
        self.file = path / "resnet.toml"
        self.file.write_text(SERVICE)
        self.folder = path / "services" / "resnet"
        self.folder.mkdir(mode=0o700, parents=True)
        self.backends = Backends(self.folder / "instances")
        self.munged = FakeMunged()
        self.sodad = FakeSodad(self.munged)
        self.said: list[str] = []
        self.router: Router | None = None
        self.thread: threading.Thread | None = None

    def start(self, *, with_sodad: bool = False) -> Router:
        find = lambda: Controllers((self.sodad.url,), frozenset({0, 64030}))  # noqa: E731
        reports = SodadReports(find, Munge(run=self.munged), self.said.append) if with_sodad else None
        self.router = Router(self.file, ListenAddress("127.0.0.1", 0), reports, self.said.append)
        self.thread = threading.Thread(target=self.router.run)
        self.thread.start()
        return self.router

    def stop(self) -> None:
        if self.router is not None and self.thread is not None:
            self.router.stop.set()
            self.thread.join(60)
            self.router.close()
            self.router = None

    @property
    def endpoint(self) -> str:
        assert self.router is not None
        return self.router.endpoint

    def serves(self, job_id: int) -> bool:
        assert self.router is not None
        return any(v.instance.job_id == job_id and v.server.serves for v in self.router.views)

    def status(self, job_id: int) -> str:
        assert self.router is not None
        return next((v.server.status for v in self.router.views if v.instance.job_id == job_id), "")

    def wait_serving(self, *jobs: int) -> None:
        wait_until(lambda: all(map(self.serves, jobs)), f"{jobs} serve ({self.said})")

    def asked(self, count: int) -> set[str]:
        """Who answers so many queries."""
        answers = [ask(self.endpoint) for _ in range(count)]
        assert {status for status, _ in answers} == {200}
        return {who for _, who in answers}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(router, "TURN_S", 0.1)
    made = Site(tmp_path)
    yield made
    with suppress(AssertionError):
        made.stop()
    made.sodad.end()
    made.backends.end()
