"""Control daemons of MPS by the hooks' scripts, as they are installed; the daemon is the emulated one, a real process."""

from __future__ import annotations

import fcntl
import os
import pwd
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.emulation.conftest import emulated_hardware
from tests.emulation.mps import wait_until

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPTS = ("prolog/mps-settings", "prolog/mps-daemon", "prolog/mps-start", "epilog/mps-stop")
CONTROL = "nvidia-cuda-mps-control"
UID, OTHER = 65534, 1  # users that every machine has
CONF = "mps=yes\npartitions=gpu,long\n"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="hooks run as root")


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


def test_the_first_job_starts_a_daemon_and_the_last_ends_it(node: Node) -> None:
    assert node.start(7) == 0
    pid = node.daemon()
    assert Path(f"/proc/{pid}").stat().st_uid == UID
    assert node.lines(7) == [
        f"CUDA_MPS_PIPE_DIRECTORY={node.mps}/{UID}/pipe",
        f"CUDA_MPS_LOG_DIRECTORY={node.mps}/{UID}/log",
    ]
    assert node.start(8, UID, "0,1") == 0
    assert node.daemon() == pid
    program = train(node, 8)
    assert program.stdout is not None
    assert "by MPS" in program.stdout.readline()
    program.kill()
    program.communicate()
    assert node.stop(7).returncode == 0
    assert Path(f"/proc/{pid}").exists()
    assert node.stop(8).returncode == 0
    assert node.left() == []


def test_limits_count_the_devices_as_the_job_does(node: Node) -> None:
    assert node.start(7, UID, "1,3-4", 40, 2000) == 0
    assert node.lines(7)[2:] == [
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2000M,1=2000M,2=2000M",
    ]  # fmt: skip


def test_what_a_guest_was_told_before_stays(node: Node) -> None:
    (node.run / "shares/env.7").write_text("CUDA_VISIBLE_DEVICES=2\n-SLURM_GPUS\nend\n")
    assert node.start(7) == 0
    assert node.lines(7)[:3] == [
        "CUDA_VISIBLE_DEVICES=2",
        "-SLURM_GPUS",
        f"CUDA_MPS_PIPE_DIRECTORY={node.mps}/{UID}/pipe",
    ]
    assert sorted(path.name for path in (node.run / "shares").iterdir()) == ["env.7", "gpus.7"]


def test_every_user_has_a_daemon_and_no_other_users_way_into_it(node: Node) -> None:
    assert node.start(7) == node.start(8, OTHER) == 0
    assert node.daemon() != node.daemon(OTHER)
    for who, uid in ((UID, UID), (OTHER, OTHER)):
        assert (node.mps / str(who)).stat().st_uid == 0
        for name in ("pipe", "log"):
            place = (node.mps / str(who) / name).stat()
            assert (place.st_uid, place.st_mode & 0o777) == (uid, 0o700)
    node.stop(7)
    assert f"{UID}" not in " ".join(node.left())
    node.stop(8)
    assert node.left() == []


def test_one_daemon_for_all_users_where_the_site_says_so(node: Node) -> None:
    (node.top / "etc/sharing.conf").write_text(CONF + "mps_multiuser=yes\n")
    assert node.start(7) == node.start(8, OTHER) == 0
    assert Path(f"/proc/{node.daemon('all')}").stat().st_uid == 0
    programs = [train(node, 7), train(node, 8, OTHER)]
    assert all(program.stdout and "by MPS" in program.stdout.readline() for program in programs)
    for program in programs:
        program.kill()
        program.communicate()
    node.stop(7), node.stop(8)
    assert node.left() == []


NOT_FIT = {
    "no list": None,
    "empty list": "",
    "one that is not": "0 fit\n1 its compute mode is PROHIBITED\n",
    "half a line": "0 fit\n1",
}


@pytest.mark.parametrize("content", NOT_FIT.values(), ids=NOT_FIT)
def test_without_fit_gpus_the_job_runs_without_mps(node: Node, content: str | None) -> None:
    (node.run / "mps-gpus").unlink()
    if content is not None:
        (node.run / "mps-gpus").write_text(content)
    assert node.start(7) == 1
    assert node.lines(7) == node.left() == []


@pytest.mark.parametrize("program", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\nexec sleep 60\n", None])
def test_a_daemon_that_does_not_start_costs_two_seconds_at_most(node: Node, program: str | None) -> None:
    path = node.top / "bin" / CONTROL
    path.unlink()
    if program:
        path.write_text(program)
        path.chmod(0o755)
    begin = time.monotonic()
    assert node.start(7) == 1
    assert time.monotonic() - begin < 2
    assert node.lines(7) == node.left() == []


def test_a_daemon_that_hears_nothing_is_ended_all_the_same(node: Node) -> None:
    assert node.start(7) == 0
    os.kill(node.daemon(), signal.SIGSTOP)
    begin = time.monotonic()
    assert node.stop(7).returncode == 0
    assert time.monotonic() - begin < 4
    assert node.left() == []


def test_a_killed_daemon_with_a_server_and_its_directories_is_cleaned(node: Node) -> None:
    assert node.start(7) == 0
    program = train(node, 7)
    assert program.stdout is not None
    program.stdout.readline()
    first = node.daemon()
    os.kill(first, signal.SIGKILL)
    program.kill()
    program.communicate()
    wait_until(lambda: len(node.processes()) == 1)  # its server
    assert node.start(8) == 0
    assert node.daemon() != first
    assert len(node.processes()) == 1
    node.stop(7), node.stop(8)
    assert node.left() == []


def as_user(script: str, *arguments: object, uid: int = UID) -> subprocess.Popen[str]:
    """A program of a user; Python, which says in its first line that it is at work."""
    who = (f"--reuid={uid}", f"--regid={pwd.getpwuid(uid).pw_gid}", "--clear-groups")
    argv = ["setpriv", *who, "/usr/bin/python3", "-c", script, *map(str, arguments)]
    program = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    program.stdout.readline()
    return program


LOCKS_ALL = """import fcntl, os, sys, time
for place, folders, files in os.walk(sys.argv[1]):
    for name in (place, *(os.path.join(place, file) for file in files)):
        try: fcntl.flock(os.open(name, os.O_RDONLY | os.O_NONBLOCK), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError: pass
print(flush=True)
time.sleep(60)
"""


def test_a_user_who_locks_what_he_can_open_keeps_no_hook_waiting(node: Node) -> None:
    assert node.start(7) == 0
    attacker = as_user(LOCKS_ALL, node.run, uid=OTHER)
    try:
        assert node.start(8) == 0
        node.stop(7), node.stop(8)
        assert node.left() == []
    finally:
        attacker.kill()
        attacker.communicate()


STOPS_OWN = """import os, signal, sys, time
print(flush=True)
end = time.monotonic() + 20
while time.monotonic() < end:
    for pid in os.listdir("/proc"):
        try:
            if not pid.isdigit() or int(pid) == os.getpid() or os.stat("/proc/" + pid).st_uid != os.getuid(): continue
            if sys.argv[1] not in open(f"/proc/{pid}/cmdline").read(): continue  # of another test
            os.kill(int(pid), signal.SIGSTOP)
            for file in os.listdir(f"/proc/{pid}/fd"):
                link = os.readlink(f"/proc/{pid}/fd/{file}")
                if "/locks/" in link or link.endswith("/mps"): print("a lock", flush=True)
        except OSError: pass
"""


def test_a_user_who_stops_his_processes_and_looks_for_locks_in_them_harms_only_himself(node: Node) -> None:
    """While the hook asks his daemon to end, a process of his runs below it."""
    assert node.start(7) == 0
    attacker = as_user(STOPS_OWN, node.top)
    begin = time.monotonic()
    try:
        assert node.stop(7).returncode == 0
        assert time.monotonic() - begin < 4
    finally:
        attacker.kill()
        said, _ = attacker.communicate()
    assert said == ""
    assert node.left() == []


def test_an_epilog_waits_for_a_hook_that_ends_the_daemon_slowly(node: Node) -> None:
    """No attacker: a daemon that hears nothing takes longer than a second to end."""
    assert node.start(7) == node.start(8) == 0
    os.kill(node.daemon(), signal.SIGSTOP)
    stops = [threading.Thread(target=node.stop, args=(job,)) for job in (7, 8)]
    for stop in stops:
        stop.start()
    for stop in stops:
        stop.join()
    assert node.left() == []


def test_a_daemon_whose_epilog_was_killed_is_ended_by_the_next_hook(node: Node) -> None:
    assert node.start(7) == node.start(8, OTHER) == 0
    node.record(7).unlink()
    (node.run / "mps/all").mkdir()  # a hook was killed before it wrote anything
    for _ in range(2):  # one at a time
        assert node.hook("mps-stop").returncode == 0
    assert sorted(path.name for path in node.mps.iterdir()) == [str(OTHER)]
    assert len(node.processes()) == 1


def test_a_job_that_has_gone_is_forgotten_while_others_run(node: Node) -> None:
    assert node.start(7) == node.start(8) == node.start(9) == 0
    node.record(8).unlink()
    node.record(9).rename(node.run / "shares/guest.9")
    assert node.hook("mps-stop").returncode == 0
    assert sorted(path.name for path in (node.mps / str(UID)).glob("job.*")) == ["job.7", "job.9"]
    assert len(node.processes()) == 1


def test_a_daemon_that_another_hook_is_busy_with_is_left_to_it(node: Node) -> None:
    assert node.start(7) == 0
    node.record(7).unlink()
    with (node.run / f"locks/mps.{UID}").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        begin = time.monotonic()
        assert node.hook("mps-stop").returncode == 0
        assert time.monotonic() - begin < 1
        assert len(node.processes()) == 1


@pytest.mark.parametrize("later", [-1000, 1])
def test_another_process_with_the_daemons_number_is_let_alone(node: Node, later: int) -> None:
    innocent = subprocess.Popen(["sleep", "60"], start_new_session=True)
    assert node.start(7) == 0
    os.kill(node.daemon(), signal.SIGKILL)
    ticks = Path(f"/proc/{innocent.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    (node.mps / str(UID) / "daemon").write_text(f"{innocent.pid} {int(ticks) + later}\n")
    assert node.stop(7).returncode == 0
    assert innocent.poll() is None
    innocent.kill()
    innocent.wait()
    assert node.left() == []


WRONG = [("x",), ("7", "x"), ("7", UID, ""), ("7", UID, "0;id"), ("7", UID, "0", "0"), ("7", UID, "0", "101"),
         ("7", UID, "0", "50", "-1"), ("-7", UID, "0"), ("../7", UID, "0"), ("7", "../..", "0"),
         ("7", 4_111_222, "0")]  # fmt: skip


@pytest.mark.parametrize("arguments", WRONG, ids=lambda arguments: "-".join(map(str, arguments)))
def test_what_is_no_job_starts_nothing(node: Node, arguments: tuple[object, ...]) -> None:
    done = node.hook("mps-start", *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("slurm-soda: MPS: ")
    assert node.left() == []
    assert list((node.run / "shares").iterdir()) == []


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


@pytest.mark.parametrize("kind", ["link", "dangling link", "fifo", "file", "another's directory"])
@pytest.mark.parametrize("place", ["mps", f"mps/{UID}"])
def test_what_is_no_directory_of_root_is_not_used(node: Node, kind: str, place: str) -> None:
    target = node.top / "target"
    target.mkdir()
    path = node.run / place
    path.parent.mkdir(exist_ok=True)
    plant(kind, path, target)
    assert node.start(7) == 1
    assert node.lines(7) == list(target.iterdir()) == node.processes() == []


def test_only_root_can_put_anything_there(node: Node) -> None:
    """A user tries to make, replace and remove things where the hooks look, with a daemon of his own and without."""
    assert node.start(7) == 0
    base = node.mps / str(UID)
    script = """import os, random, sys
base, mine = sys.argv[1:]
top = os.path.dirname(base)
places = [top, base, *(base + name for name in ("/daemon", "/job.7", "/job.8", "/fresh", "/pipe", "/log")), top + "/fresh"]
acts = [lambda path: os.symlink("/etc", path), os.mkfifo, os.mkdir, os.unlink, os.rmdir,
        lambda path: os.rename(path, path + ".away"), lambda path: os.rename(mine, path),
        lambda path: os.chmod(path, 0o777),
        lambda path: os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK)), lambda path: os.link(mine, path)]
random.seed(1)
for _ in range(10000):
    path, act = random.choice(places), random.choice(acts)
    try:
        act(path)
    except OSError:
        continue
    print(act, path)
"""
    mine = node.top / "mine"
    mine.mkdir()
    for name in ("pipe", "log"):  # his own: what he does with them is the next test
        os.chown(base / name, 0, 0)
    os.chown(mine, UID, UID)
    tried = subprocess.run(
        ["setpriv", f"--reuid={UID}", "--clear-groups", "/usr/bin/python3", "-c", script, str(base), str(mine)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert tried.stdout == ""
    node.stop(7)
    assert node.left() == []


def test_a_hostile_user_of_his_own_directories_harms_only_himself(node: Node) -> None:
    """He replaces all in pipe and log by links, FIFOs and files, again and again while hooks start and stop."""
    precious = node.top / "precious"
    precious.mkdir()
    (precious / "kept").write_text("kept")
    script = """import os, random, shutil, sys, time
base, target, until = sys.argv[1], sys.argv[2], time.monotonic() + 5
names = ["control", "control_privileged", "control_lock", "log", "nvidia-cuda-mps-control.pid", "server.1", "control.log"]
while time.monotonic() < until:
    path = base + random.choice(["/pipe/", "/log/"]) + random.choice(names)
    try:
        if random.random() < .5: os.rename(path, path + "y") if random.random() < .1 else os.unlink(path)
        random.choice([lambda: os.symlink(target, path), lambda: os.symlink(target + "/kept", path), lambda: os.mkfifo(path),
                       lambda: os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK)), lambda: os.mkdir(path)])()
    except OSError: pass
"""
    attacker = subprocess.Popen(
        ["setpriv", f"--reuid={UID}", "--clear-groups", "/usr/bin/python3", "-c", script, str(node.mps / str(UID)),
         str(precious)],
    )  # fmt: skip
    rounds = 0
    while attacker.poll() is None:
        begin = time.monotonic()
        node.start(7)
        assert time.monotonic() - begin < 3
        node.stop(7)
        node.stop(8)
        rounds += 1
        (node.run / "shares/env.7").unlink(missing_ok=True)
    assert rounds > 2
    assert (precious / "kept").read_text() == "kept"
    assert precious.stat().st_uid == 0
    node.start(8, OTHER)
    node.stop(8)
    assert node.left() == []


def test_hooks_at_the_same_time_leave_one_daemon_or_none(node: Node) -> None:
    def both(job: int, pause_s: float) -> None:
        for _ in range(3):
            node.start(job)
            time.sleep(pause_s)
            node.stop(job)

    threads = [threading.Thread(target=both, args=(job, random.Random(job).random() / 20)) for job in range(1, 5)]
    for thread in threads:
        thread.start()
    most = 0
    while any(thread.is_alive() for thread in threads):
        most = max(most, len({pid for pid in node.processes() if _is_daemon(pid)}))
    for thread in threads:
        thread.join()
    assert most == 1
    assert node.left() == []


def _is_daemon(pid: int) -> bool:
    try:
        program, option, *_ = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return CONTROL.encode() in program and option == b"-f"  # without it, a command to one
    except (OSError, ValueError):
        return False


WANTED = {
    "yes": ({"SPANK_SODA_SHARE": "yes", "SLURM_JOB_PARTITION": "gpu"}, CONF, True),
    "said nothing": ({"SLURM_JOB_PARTITION": "gpu"}, CONF, False),
    "the site's default": ({"SLURM_JOB_PARTITION": "long"}, CONF + "consent_by_default=yes\n", True),
    "no": ({"SPANK_SODA_SHARE": "no", "SLURM_JOB_PARTITION": "gpu"}, CONF + "consent_by_default=yes\n", False),
    "another partition": ({"SPANK_SODA_SHARE": "yes", "SLURM_JOB_PARTITION": "lon"}, CONF, False),
    "a pattern": ({"SPANK_SODA_SHARE": "yes", "SLURM_JOB_PARTITION": "*"}, CONF, False),
    "no partition": ({"SPANK_SODA_SHARE": "yes"}, CONF, False),
    "mps=no": ({"SPANK_SODA_SHARE": "yes", "SLURM_JOB_PARTITION": "gpu"}, "mps=no\npartitions=gpu\n", False),
    "no end of line": ({"SPANK_SODA_SHARE": "yes", "SLURM_JOB_PARTITION": "gpu"}, "partitions=gpu\nmps=yes", True),
    "no file": ({"SPANK_SODA_SHARE": "yes", "SLURM_JOB_PARTITION": "gpu"}, None, False),
}


@pytest.mark.parametrize(("env", "conf", "wanted"), WANTED.values(), ids=WANTED)
def test_who_is_to_have_mps(node: Node, env: dict[str, str], conf: str | None, wanted: bool) -> None:
    (node.top / "etc/sharing.conf").unlink()
    if conf is not None:
        (node.top / "etc/sharing.conf").write_text(conf)
    argv = ["/bin/sh", "-c", f". {node.top}/libexec/mps-settings && mps_wanted"]
    assert (subprocess.run(argv, env=env, check=False).returncode == 0) == wanted
