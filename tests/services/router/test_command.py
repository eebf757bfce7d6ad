"""``sodactl service router`` and ``endpoints`` as processes: signals, and what is left when the router is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_soda.services.router.router import load_service
from slurm_soda.services.router.service_folder import ServiceFolder
from slurm_soda.sodactl.main import main
from tests.services.router.conftest import SERVICE, Site, wait_until
from tests.services.router.load import ask

ROUTER = [sys.executable, "-c", "from slurm_soda.sodactl.main import main; main()", "service", "router"]


@contextmanager
def started(site: Site, port: int) -> Iterator[subprocess.Popen[bytes]]:
    argv = [*ROUTER, str(site.file), "--listen", f"127.0.0.1:{port}", "--controller", "http://127.0.0.1:1"]
    process = subprocess.Popen(argv, stderr=(site.folder / "said").open("wb"))
    try:
        wait_until(lambda: status(port) == 200, (site.folder / "said").read_text)
        yield process
    finally:
        process.kill()
        process.wait()


def status(port: int) -> int:
    try:
        return ask(f"127.0.0.1:{port}", 2)[0]
    except OSError:
        return 0


def free_port(site: Site) -> int:
    """One that no server has: of a backend that is gone."""
    backend = site.backends.add(99)
    site.backends.do(backend.die())
    site.backends.remove(99)
    return backend.port


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_signals(site: Site) -> None:
    """SIGHUP reads the file again; SIGTERM ends all; after SIGKILL nothing of HAProxy is left, and a new one serves."""
    port = free_port(site)
    site.backends.add(1)
    said = site.folder / "said"
    with started(site, port) as router:
        site.file.write_text(SERVICE.replace("= 200", "= 300"))
        router.send_signal(signal.SIGHUP)
        wait_until(lambda: "was read again" in said.read_text(), said.read_text)
        haproxy = children(router.pid)
        router.kill()
        router.wait()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in haproxy), "HAProxy ends")
        wait_until(lambda: status(port) == 0, "the port is free")
    with started(site, port) as router:
        router.send_signal(signal.SIGTERM)
        assert router.wait(60) == 0
    assert status(port) == 0


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Status, output and errors of ``sodactl service``."""
    with pytest.raises(SystemExit) as ended:
        main(["service", *argv])
    return (int(ended.value.code or 0), *capsys.readouterr())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("command", ["router", "profile"])
def test_root_runs_nothing_of_a_users_service(site: Site, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The profile would run the user's command, and the router make directories where the user likes."""
    os.chown(site.file, 65534, -1)
    before = sorted(site.folder.rglob("*"))
    status, _, said = run(capsys, command, str(site.file))
    assert status
    assert "belongs to uid 65534, and this is root: run it as that user" in said
    assert sorted(site.folder.rglob("*")) == before


def test_once_and_endpoints(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """What would be served, and what another router could be told."""
    site.backends.add(1)
    site.backends.add(2, healthy=False)
    status, out, _ = run(capsys, "router", str(site.file), "--once", "--json")
    instances = {one["job_id"]: one["state"] for one in json.loads(out)["instances"]}
    assert (status, instances) == (0, {1: "ready", 2: "ready"})
    status, out, _ = run(capsys, "router", str(site.file), "--once")
    assert (status, "2 instances; HAProxy accepts" in out) == (0, True)
    status, out, _ = run(capsys, "endpoints", str(site.file), "--json")
    assert (status, [one["job_id"] for one in json.loads(out)["endpoints"]]) == (0, [1])
    folder = ServiceFolder(site.file, load_service(site.file)[1])
    assert folder.lock()  # as while a router serves
    status, out, _ = run(capsys, "router", str(site.file), "--once")
    assert (status, "2 instances; HAProxy accepts" in out, folder.chosen_port()) == (0, True, 0)
    folder.unlock()
    site.backends.set(1, state="failed")
    status, out, _ = run(capsys, "endpoints", str(site.file))
    assert (status, "no instance of resnet answers" in out) == (1, True)


def test_what_is_wrong_is_said_in_one_line(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """A port that is taken, an address that is none, a file that is not there."""
    taken = site.backends.add(1).port
    for argv, said in (
        ([str(site.file), "--listen", f"127.0.0.1:{taken}"], "choose another with --listen"),
        ([str(site.file), "--listen", "here"], "HOST:PORT"),
        (["none.toml"], "none.toml"),
    ):
        status, _, err = run(capsys, "router", *argv)
        assert (status, said in err, err.count("\n")) == (1, True, 1), err
