"""The stand-in for cpusets refuses what the kernel refuses, and the emulated training counts its cores there."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.emulation.conftest import SOURCE, Hardware

Tree = Path
ONLINE = len(os.sched_getaffinity(0))


class StandIn:
    """A mounted stand-in as version 1 or 2, with two CPUs like the smallest machine that can tell."""

    def __init__(self, point: Path, version: int = 1, cpus: str = "0-1") -> None:
        setup = json.dumps({"version": version, "cpus": cpus})
        argv = [sys.executable, str(SOURCE / "cpuset" / "serve.py"), "private", str(point), setup]
        self.server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.server.stdout is not None
        said = json.loads(self.server.stdout.readline())
        if "refused" in said:
            self.server.wait(10)
            pytest.skip(f"the cpuset stand-in needs /dev/fuse and the right to mount: {said['refused']}")
        self.mount = Path(said["mount"])

    def end(self) -> None:
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait(10)


@pytest.fixture(params=["stand-in", "kernel"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tree]:
    """An empty group of version 1 with all CPUs: the same questions to the stand-in and to the kernel."""
    if request.param == "stand-in":
        stand_in = StandIn(tmp_path)
        (stand_in.mount / "top").mkdir()
        (stand_in.mount / "top/cpuset.cpus").write_text("0-1")
        yield stand_in.mount / "top"
        stand_in.end()
        return
    top = Path(f"/sys/fs/cgroup/cpuset/emulation{os.getpid()}")
    if ONLINE != 2:
        pytest.skip("the answers are those for two CPUs")
    try:
        top.mkdir()
    except OSError as error:
        pytest.skip(f"no group of cgroup v1 can be made here: {error}")
    (top / "cpuset.mems").write_text("0")
    (top / "cpuset.cpus").write_text("0-1")
    yield top
    deadline_s = time.monotonic() + 10.0
    for name in ("a/b", "a", ""):
        while (top / name).exists():
            with suppress(OSError):  # busy until what was in it is gone
                (top / name).rmdir()
            assert time.monotonic() < deadline_s


@contextmanager
def running(argv: list[str], env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def answer(do: Callable[[], object]) -> str:
    """What the kernel says: nothing, or the errno's name."""
    try:
        do()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return ""


def test_the_kernels_rules(tree: Tree) -> None:
    def write(name: str, text: str) -> str:
        path = tree / name / "cpuset.cpus"

        def once() -> None:
            fd = os.open(path, os.O_WRONLY)
            try:
                os.write(fd, text.encode())
            finally:
                os.close(fd)

        return answer(once)

    (tree / "a").mkdir()
    (tree / "a/b").mkdir()
    assert (tree / "a/cpuset.cpus").read_text() == "\n"  # a new group has none
    assert write("a/b", "0") == "EACCES"  # not within its parent
    assert write("a", "0-1") == ""
    assert write("a/b", "1") == ""
    assert write("a", "0") == "EBUSY"  # a child has more
    assert write("a/b", "1-0") == "EINVAL"
    assert write("a/b", "x") == "EINVAL"
    assert write("a/b", "9999") == "ERANGE"
    assert (tree / "a/b/cpuset.effective_cpus").read_text() == "1\n"
    assert write("a/b", "\n") == ""  # nobody is in it
    assert write("a/b", "0") == ""
    assert answer((tree / "a").rmdir) == "EBUSY"
    if tree.parent.name == "cpuset":  # the kernel lets nobody into a group without memory
        for name in ("a", "a/b"):
            (tree / name / "cpuset.mems").write_text("0")
    with running(["/bin/sleep", "600"]) as sleeper:
        (tree / "a/b/cgroup.procs").write_text(str(sleeper.pid))
        assert (tree / "a/b/cgroup.procs").read_text() == f"{sleeper.pid}\n"
        assert write("a/b", "\n") == "ENOSPC"


def test_version_2_has_what_it_asks_for_as_far_as_its_parent_has_it(tmp_path: Path) -> None:
    stand_in = StandIn(tmp_path, 2, "0-27")
    try:
        child = stand_in.mount / "job" / "step"
        child.mkdir(parents=True)
        (child.parent / "cpuset.cpus").write_text("0-3")
        assert (child / "cpuset.cpus").read_text() == "\n"
        assert (child / "cpuset.cpus.effective").read_text() == "0-3\n"
        (child / "cpuset.cpus").write_text("2-9")
        assert (child / "cpuset.cpus.effective").read_text() == "2-3\n"
        (child.parent / "cpuset.cpus").write_text("0-1")  # nothing of the child's is left: it has its parent's
        assert (child / "cpuset.cpus.effective").read_text() == "0-1\n"
        assert (child / "cpuset.cpus").read_text() == "2-9\n"
    finally:
        stand_in.end()


def test_the_training_counts_the_cores_of_its_group(hardware: Hardware, tmp_path: Path) -> None:
    """Its group is named by /proc/self/cgroup; below SODA_CPUSETS any file with a list will do."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((line.split(":", 2)[2] for line in lines if line.split(":", 2)[1] == "cpuset"), None)
    if own is None:
        pytest.skip("this host has no cgroup v1 cpusets, whose tree the training looks for")
    group = tmp_path / "cpusets" / own.strip("/")
    group.mkdir(parents=True)
    cpus = group / "cpuset.cpus"
    cpus.write_text("0-2,9\n")
    env = hardware.env(CUDA_VISIBLE_DEVICES="0", SODA_CPUSETS=str(tmp_path / "cpusets"), SLURM_CPUS_ON_NODE="28")
    options = ["--profiles", str(SOURCE / "trainer" / "soda.tsv"), "--duration-s", "1e6", "--report-s", "0.3"]
    argv = [hardware.train, "--model", "alexnet", *options]
    with running(argv, env) as training:
        assert training.stdout is not None
        assert "4 cores" in training.stdout.readline()
        full = 256 / 0.10584
        rates = iter(lambda: float(training.stdout.readline().split()[-2]), None)  # type: ignore[union-attr]
        assert next(rates) == pytest.approx(full * 4 / 7.6, rel=0.001)
        cpus.write_text("0-27\n")
        assert any(rate == pytest.approx(full, rel=0.001) for rate in (next(rates) for _ in range(100)))
