"""A node with the scripts of MPS as they are installed; the control daemon is the emulated one, a real process."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.emulation.conftest import emulated_hardware

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPTS = ("prolog/mps-settings", "prolog/mps-daemon", "prolog/mps-start", "epilog/mps-stop")
CONTROL = "nvidia-cuda-mps-control"
UID, OTHER = 65534, 1  # users that every machine has
CONF = "mps=yes\npartitions=gpu,long\n"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="hooks run as root")


@dataclass(frozen=True)
class Node:
    """A node's directories, under a folder of the test."""

    top: Path

    @property
    def run(self) -> Path:
        return self.top / "run"

    @property
    def mps(self) -> Path:
        return self.run / "mps"

    def hook(self, name: str, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
        argv = [str(self.top / "libexec" / name), *map(str, arguments)]
        return subprocess.run(argv, env=env, cwd="/", capture_output=True, text=True, timeout=20, check=False)

    def start(self, job: int, uid: int = UID, gpus: str = "0", *limits: int) -> int:
        """As prolog does: its own record of the job first."""
        self.record(job).write_text(f"{gpus}\n{uid}\n")
        return self.hook("mps-start", job, uid, gpus, *limits).returncode

    def stop(self, job: int) -> subprocess.CompletedProcess[str]:
        """As epilog does: its own record of the job goes first."""
        self.record(job).unlink(missing_ok=True)
        return self.hook("mps-stop", job)

    def record(self, job: int) -> Path:
        return self.run / "shares" / f"gpus.{job}"

    def lines(self, job: int) -> list[str]:
        path = self.run / "shares" / f"env.{job}"
        lines = path.read_text().splitlines() if path.exists() else ["end"]
        assert lines[-1] == "end"
        return lines[:-1]

    def daemon(self, who: object = UID) -> int:
        return int((self.mps / str(who) / "daemon").read_text().split()[0])

    def left(self) -> list[str]:
        """What is in the directory of daemons, and the processes that know it."""
        files = sorted(str(path.relative_to(self.mps)) for path in self.mps.rglob("*")) if self.mps.exists() else []
        return files + [f"process {pid}" for pid in self.processes()]

    def processes(self) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"CUDA_MPS_PIPE_DIRECTORY={self.mps}".encode() in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found


@pytest.fixture(scope="module")
def hardware(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return emulated_hardware(tmp_path_factory)


def install_scripts(node: Node) -> None:
    """The hooks' scripts with a test's places in them, as install/place.sh writes another prefix into units."""
    (node.top / "libexec").mkdir()
    (node.top / "etc").mkdir()
    places = (
        ("/run/slurm-soda-agent", node.run),
        ("/run/slurm-soda-node", node.run),
        ("/etc/slurm-soda", node.top / "etc"),
    )
    for script in SCRIPTS:
        text = (CHECKOUT / script).read_text()
        for place, there in places:
            text = text.replace(place, str(there))
        text = text.replace(f"/usr/bin/{CONTROL} /usr/local/bin/{CONTROL}", f"{node.top}/bin/{CONTROL}")
        target = node.top / "libexec" / Path(script).name
        target.write_text(text)
        target.chmod(0o755)
    for path in (node.top, *node.top.parents):
        if str(path) not in ("/", "/tmp"):
            path.chmod(path.stat().st_mode | 0o055)
    (node.run / "shares").mkdir(parents=True, mode=0o700)


@pytest.fixture
def node(hardware: Path, tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    (tmp_path / "bin").mkdir()
    for program in (CONTROL, "nvidia-cuda-mps-server", "soda-train"):
        shutil.copy(hardware / program, tmp_path / "bin")
    install_scripts(node)
    (tmp_path / "etc/sharing.conf").write_text(CONF)
    (node.run / "mps-gpus").write_text("0 fit\n1 fit\n")
    yield node
    for pid in node.processes():
        os.kill(pid, signal.SIGKILL)


def train(node: Node, job: int, uid: int = UID) -> subprocess.Popen[str]:
    """A program of the job, with what its tasks would have."""
    state = node.top / "state"
    state.mkdir(exist_ok=True)
    state.chmod(0o1777)
    (state / "gpus.conf").write_text("devices=0,1\n")
    env = dict(line.split("=", 1) for line in node.lines(job))
    profiles = (CHECKOUT / "emulation/trainer/profiles.tsv").open()  # under /root, say, only root could open it
    return subprocess.Popen(
        ["setpriv", f"--reuid={uid}", "--clear-groups", str(node.top / "bin/soda-train"), "--profiles", "/dev/stdin",
         "--model", "vgg16", "--duration-s", "1e6", "--cpu-load", "0"],
        env={"SODA_GPU_STATE": str(state), "CUDA_VISIBLE_DEVICES": "0", "SLURM_CPUS_ON_NODE": "28", **env},
        stdin=profiles, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def as_user(script: str, *arguments: object, uid: int = UID) -> subprocess.Popen[str]:
    """A program of a user; Python, which says in its first line that it is at work."""
    who = (f"--reuid={uid}", f"--regid={pwd.getpwuid(uid).pw_gid}", "--clear-groups")
    argv = ["setpriv", *who, "/usr/bin/python3", "-c", script, *map(str, arguments)]
    program = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    program.stdout.readline()
    return program


def plant(kind: str, path: Path, target: Path) -> None:
    """Something else where a directory should be."""
    if kind == "link":
        path.symlink_to(target)
    elif kind == "dangling link":
        path.symlink_to(target / "absent")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "file":
        path.write_text("x")
    elif kind == "another's directory":
        path.mkdir()
        os.chown(path, OTHER, OTHER)
