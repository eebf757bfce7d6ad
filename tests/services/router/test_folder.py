"""Forged files are not believed, and nothing that lies in the folder stops the router."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.services.router.endpoints import healthy_endpoints
from slurm_soda.services.router.errors import FolderError
from slurm_soda.services.router.heartbeats import SILENT_S, Heartbeats
from slurm_soda.services.router.service_folder import ServiceFolder
from slurm_soda.wire.services.instance_file import InstanceFile
from slurm_soda.wire.services.service_file import read_service_file
from tests.services.router.backends import Backends
from tests.services.router.conftest import SERVICE, Site

GOOD = InstanceFile("resnet", 7, "n1", 80, "cpu", "ready", 1.0, 2.0)


@pytest.fixture
def folder(tmp_path: Path) -> ServiceFolder:
    made = ServiceFolder(tmp_path / "resnet.toml", read_service_file(SERVICE, "service"))
    made.prepare()
    return made


def place(folder: ServiceFolder, name: str = "n1.7.json", **changes: object) -> Path:
    path = folder.path / "instances" / name
    path.write_text(json.dumps(GOOD.to_dict() | changes))
    return path


def test_an_own_file_is_believed(folder: ServiceFolder) -> None:
    """As it is; one that is being written is not looked at."""
    place(folder)
    place(folder, ".n1.8.json")
    assert folder.read().instances == {"n1.7": GOOD}


def test_it_is_made_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        made = ServiceFolder(tmp_path / "resnet.toml", read_service_file(SERVICE, "service"))
        made.prepare()
    finally:
        os.umask(before)
    assert made.path.stat().st_mode & 0o077 == (made.path / "instances").stat().st_mode & 0o077 == 0
    assert made.read().instances == {}


@pytest.mark.parametrize("forge", ["link", "other owner", "fifo", "garbage", "huge", "directory", "another's", "port"])
def test_a_forged_file_is_not(folder: ServiceFolder, tmp_path: Path, forge: str) -> None:
    """It is named, and the others are read."""
    place(folder, "n2.8.json", job_id=8)
    path = place(folder)
    if forge == "link":
        path.rename(tmp_path / "target")
        path.symlink_to(tmp_path / "target")
    elif forge == "other owner":
        if os.geteuid():
            pytest.skip("only root can give a file away")
        os.chown(path, 2001, 2001)
    elif forge in ("fifo", "directory"):
        path.unlink()
        os.mkfifo(path) if forge == "fifo" else path.mkdir()
    elif forge == "garbage":
        path.write_bytes(b'{"job_id": \xff' + b"[" * 5000)
    elif forge == "huge":
        os.truncate(path, 1 << 40)
    else:
        place(folder, **({"service": "other"} if forge == "another's" else {"port": 70000}))
    found = folder.read()
    assert list(found.instances) == ["n2.8"]
    assert len(found.problems) == 1
    assert "n1.7.json" in found.problems[0]
    assert "\n" not in found.problems[0]


def test_a_drain_file_of_another_owner_is_not_believed(folder: ServiceFolder) -> None:
    """Nor is a link."""
    folder.ask_to_drain("n1.7")
    assert folder.read().drains == {"n1.7"}
    folder.take_back_drain("n1.7")
    (folder.path / "instances" / "n1.7.drain").symlink_to("/etc/passwd")
    assert folder.read().drains == set()


def test_a_folder_that_others_may_write_to_is_refused(folder: ServiceFolder) -> None:
    """They could take a file's name away."""
    (folder.path / "instances").chmod(0o777)
    with pytest.raises(FolderError, match="others may write"):
        folder.read()


@given(
    data=st.binary(max_size=100),
    name=st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=20),
)
def test_nothing_in_the_folder_stops_it(tmp_path_factory: pytest.TempPathFactory, data: bytes, name: str) -> None:
    """Whatever its name and content."""
    path = tmp_path_factory.mktemp("any")
    folder = ServiceFolder(path / "resnet.toml", read_service_file(SERVICE, "service"))
    folder.prepare()
    (folder.path / "instances" / f"{name}.json").write_bytes(data)
    assert folder.read().instances == {}


def test_heartbeats_count_by_the_routers_clock() -> None:
    """A node's clock may be hours off: what counts is that its file changes."""
    beats = Heartbeats()
    off = {"a": replace(GOOD, heartbeat_s=5.0), "b": replace(GOOD, heartbeat_s=10_000.0)}
    beats.observe(off, 100.0, 10_000.0)
    assert (beats.silent("a", 100.0), beats.silent("b", 100.0), beats.silent("c", 100.0)) == (True, False, True)
    beats.observe({**off, "a": replace(GOOD, heartbeat_s=7.0)}, 102.0, 10_002.0)
    assert not beats.silent("a", 102.0)
    for at_s in (104.0, 106.0, 108.0, 110.0):
        beats.observe({**off, "a": replace(GOOD, heartbeat_s=at_s)}, at_s, 10_000.0 + at_s - 100)
    assert (beats.silent("a", 111.0), beats.silent("b", 111.0)) == (False, True)


def test_nobody_grew_silent_while_the_router_could_not_look() -> None:
    """Its file system hung for a minute."""
    beats = Heartbeats()
    beats.observe({"a": replace(GOOD, heartbeat_s=1.0)}, 0.0, 1.0)
    beats.observe({"a": replace(GOOD, heartbeat_s=1.0)}, 60.0, 61.0)
    assert not beats.silent("a", 60.0)
    assert beats.silent("a", 60.0 + SILENT_S)


def test_endpoints_for_another_router(tmp_path: Path, site: Site) -> None:
    """Those that answer when asked; also if their node's clock is an hour off."""
    backends = Backends(site.folder / "instances")
    good = backends.add(1)
    backends.add(2, healthy=False)
    backends.add(3, state="draining")
    folder = ServiceFolder(site.file, read_service_file(SERVICE, "service"))
    assert [one.port for one in healthy_endpoints(folder, "/health")[0]] == [good.port]
    backends.end()
    time.sleep(0.5)
    old = site.folder / "instances" / "127.0.0.1.1.json"
    old.write_text(json.dumps(json.loads(old.read_text()) | {"heartbeat_s": time.time() - 3600}))
    assert healthy_endpoints(folder, "/health")[0] == []
