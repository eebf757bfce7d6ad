"""A primary and a backup controller of a real Slurm in containers, a sodad beside each, and their store on PostgreSQL.

Everything that changes Slurm by scontrol's standard input is written down, and so is whether Slurm answers. Jobs of some
seconds come all the time, so that the waiting queue and its order change.
"""

from __future__ import annotations

import io
import platform
import re
import shutil
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import docker

from benchmarks.failover.controller_load import ACCEPTED, DRAINED_WITHIN_S, MEND, MENDED, SUBMIT, JobCounts
from benchmarks.postgresql import PostgresqlServer
from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.cluster_spec import BACKUP_CONTROLLER, CONTROLLER, LABEL, ClusterError
from slurm_soda.containers.slurm_releases import find_release
from slurm_soda.containers.wheels import ContainerPython, ensure_wheels, lock_for_containers
from slurm_soda.daemon.store.engine import Store, open_store

TOP = Path(__file__).parents[2]
CYCLE_S, LEASE_S, WRITE_S, READ_S = 2.0, 15.0, 12.0, 12.0
SLURM_CONF = "/etc/slurm/slurm.conf"
SLURM_TIMES_S = {"SlurmctldTimeout": 10, "MessageTimeout": 10}
"""After so long the backup takes over (Slurm's default is 120), and a command gives up (Slurm's default)."""

SODA_TOML = """mode = "enforce"
[store]
url = "{url}"
[policy]
name = "smallest"
[cycle]
interval_s = {cycle_s}
lease_s = {lease_s}
[change_limits]
min_change_interval_s = 0.0
breaker_failures = 1000
[slurm]
write_timeout_s = {write_s}
read_timeout_s = {read_s}
"""

CHUNKS = "/var/log/cluster/chunks"
RECORDING_SCONTROL = f"""#!/bin/sh
# Writes down what comes by standard input: when, from whom, each update, and when scontrol is done.
[ $# = 0 ] || exec /usr/bin/scontrol.real "$@"
read -r _ _ _ sender _ </proc/$PPID/stat
chunk="$(date +%s.%N) $sender"
echo "$chunk begin" >>{CHUNKS}
input=$(cat)
printf '%s\\n' "$input" | sed -n "s|^update |$chunk update |p" >>{CHUNKS}
printf '%s\\n' "$input" | /usr/bin/scontrol.real
status=$?
echo "$chunk end $(date +%s.%N)" >>{CHUNKS}
exit $status
"""
ANSWERS = "/var/log/cluster/answers"
ASK = f"""while sleep 0.5; do
    began=$(date +%s.%N)
    said=$(timeout -s KILL 30 sprio --noheader '--format=%i %S' 2>/dev/null) || continue
    echo "$began $(date +%s.%N) $(echo "$said" | awk '$2 > 0' | wc -l)" >>{ANSWERS}
done"""
"""On the backup: when Slurm answered, and how many jobs had a lift."""

_UPDATE = re.compile(r"JobId=(\d+) .*\bSiteFactor=(-?\d+)")


@dataclass(frozen=True, slots=True)
class SentChunk:
    """Updates that shared one scontrol."""

    host: str
    sender: int
    """Process that began it."""
    began_s: float
    ended_s: float | None
    """``None``: it was killed, or is under way."""
    updates: tuple[tuple[int, str], ...]
    """Job and SiteFactor."""


@dataclass(frozen=True, slots=True)
class SlurmAnswer:
    """One question to Slurm from the backup that was answered."""

    began_s: float
    ended_s: float
    lifts: int


def parse_chunks(host: str, text: str) -> list[SentChunk]:
    """Of the file that :data:`RECORDING_SCONTROL` writes, in order of their beginning."""
    found: dict[tuple[str, str], tuple[list[tuple[int, str]], list[float]]] = {}
    for line in text.splitlines():
        began, sender, what, *rest = line.split(" ", 3)
        updates, ends = found.setdefault((began, sender), ([], []))
        if what == "end":
            ends.append(float(rest[0]))
        elif what == "update" and (update := _UPDATE.match(rest[0])):
            updates.append((int(update[1]), update[2]))
    return [
        SentChunk(host, int(sender), float(began), ends[0] if ends else None, tuple(updates))
        for (began, sender), (updates, ends) in sorted(found.items())
    ]


class ControllerPair:
    """The cluster with both sodads. Use :meth:`up`."""

    def __init__(self, cluster: ContainerCluster) -> None:
        self.cluster = cluster
        self._folder = Path(tempfile.mkdtemp(prefix="soda-controllers-"))
        self._folder.chmod(0o755)
        self._server: PostgresqlServer | None = None
        self.store: Store

    @classmethod
    def up(cls, name: str, say: Callable[[str], None]) -> ControllerPair:
        """Bring all of it up; a failure leaves nothing behind."""
        pair = cls(ContainerCluster.up(name, backup=True, progress=say))
        try:
            pair._set_up(say)
        except BaseException:
            pair.down()
            raise
        return pair

    def down(self) -> None:
        """Remove all of it."""
        self.cluster.down()
        if self._server is not None:
            self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def shell(self, script: str, host: str = CONTROLLER, user: str = "root") -> str:
        """What a script says."""
        return self.cluster.exec(user, ("bash", "-c", script), node=host, timeout_s=90).check().stdout

    def chunks(self) -> list[SentChunk]:
        """Of both controllers, by their beginning."""
        found = [
            chunk
            for host in self.cluster.spec.controllers
            for chunk in parse_chunks(host, self.shell(f"cat {CHUNKS}", host))
        ]
        return sorted(found, key=lambda chunk: chunk.began_s)

    def answers(self, since_s: float) -> list[SlurmAnswer]:
        """To questions that were put after an instant."""
        lines = [line.split() for line in self.shell(f"cat {ANSWERS}", BACKUP_CONTROLLER).splitlines()]
        found = [SlurmAnswer(float(began), float(ended), int(lifts)) for began, ended, lifts in lines]
        return [answer for answer in found if answer.began_s > since_s]

    def start_load(self) -> None:
        """Submit until the cluster goes."""
        self.shell(f"touch {ACCEPTED}; setsid bash -c {_quoted(SUBMIT)} >/dev/null 2>&1 </dev/null &", "n1", "alice")
        self.shell(f"touch {MENDED}; setsid bash -c {_quoted(MEND)} >/dev/null 2>&1 </dev/null &", "n2")

    def end_load(self) -> JobCounts:
        """Submit no more, wait until the queue is empty or nothing moves any more, and count."""
        self.shell("pkill -u alice bash; true", "n1")
        with suppress(ClusterError):
            self.cluster.wait_until(lambda: not self.shell("squeue --noheader"), "the queue is empty", DRAINED_WITHIN_S)
        accepted = [line.split()[0] for line in self.shell(f"cat {ACCEPTED}").splitlines()]
        left = self.shell("squeue --noheader '--format=%i %T %r'").splitlines()
        lines = self.shell("sacct -nPXa --starttime=now-1day --format=JobIDRaw,State").splitlines()
        states = dict(line.split("|", 1) for line in lines)
        counts = Counter(states.get(job, "unknown to Slurm") for job in accepted)
        mended = Counter(self.shell(f"cat {MENDED}", "n2").splitlines())
        return JobCounts(len(accepted), dict(counts), tuple(left), dict(mended))

    def _set_up(self, say: Callable[[str], None]) -> None:
        gateway, network = self._network()
        say("starting PostgreSQL")
        self._server = PostgresqlServer(self._folder, gateway, network)
        url = self._server.create()
        self.store = open_store(url)
        url = url.replace("127.0.0.1", gateway)
        driver = _driver(self.cluster.spec.slurm, say)
        settings = SODA_TOML.format(url=url, cycle_s=CYCLE_S, lease_s=LEASE_S, write_s=WRITE_S, read_s=READ_S)
        for host in self.cluster.spec.controllers:
            self._prepare(host, driver, settings)
        self._set_slurm_times()
        for host in self.cluster.spec.controllers:
            self.cluster.start("sodad", node=host)
        self.shell(f"touch {ANSWERS}; setsid bash -c {_quoted(ASK)} >/dev/null 2>&1 </dev/null &", BACKUP_CONTROLLER)

    def _network(self) -> tuple[str, str]:
        """This machine's address in the cluster's network, and the network."""
        [found] = docker.from_env().networks.list(filters={"label": f"{LABEL}={self.cluster.spec.name}"})
        [config] = found.attrs["IPAM"]["Config"]
        return str(config["Gateway"]), str(config["Subnet"])

    def _prepare(self, host: str, driver: bytes, settings: str) -> None:
        """The driver of PostgreSQL, sodad's configuration, and an scontrol that keeps a record."""
        self.cluster.copy_in(driver, "/tmp/driver.tar", node=host)
        pip = "/opt/slurm-soda-tools/bin/pip --python /opt/slurm-soda/bin/python install --quiet --no-index --no-deps"
        self.shell(f"mkdir /tmp/driver; tar -xf /tmp/driver.tar -C /tmp/driver; {pip} /tmp/driver/*.whl", host)
        uid = int(self.shell("id -u slurm", host))
        self.cluster.copy_in(settings.encode(), "/etc/slurm-soda/soda.toml", node=host, mode=0o600, uid=uid)
        self.shell(f"mv /usr/bin/scontrol /usr/bin/scontrol.real; touch {CHUNKS}; chmod 666 {CHUNKS}", host)
        self.cluster.copy_in(RECORDING_SCONTROL.encode(), "/usr/bin/scontrol", node=host, mode=0o755)

    def _set_slurm_times(self) -> None:
        edit = "; ".join(f"s/^{name}=.*/{name}={value}/" for name, value in SLURM_TIMES_S.items())
        for host in self.cluster.spec.hosts:
            self.shell(f"sed -i '{edit}' {SLURM_CONF}", host)
        for host in reversed(self.cluster.spec.controllers):
            self.cluster.stop("slurmctld", node=host)
        for host in self.cluster.spec.controllers:
            self.cluster.start("slurmctld", node=host)
        self.cluster.wait_until(self.is_whole, "both slurmctlds answer")
        self.shell("scontrol reconfigure")
        self.cluster.wait_until(self.is_whole, "both slurmctlds answer again")

    def is_whole(self) -> bool:
        """Both slurmctlds answer, and jobs can run on every node."""
        said = self.cluster.exec("root", ("scontrol", "ping"), node=BACKUP_CONTROLLER, timeout_s=25).stdout
        states = self.cluster.node_states()
        bad = [state for state in states.values() if any(word in state for word in _UNUSABLE)]
        return said.count(" is UP") == 2 and len(states) == self.cluster.spec.nodes and not bad


_UNUSABLE = ("down", "drain", "unknown", "*")


def _quoted(script: str) -> str:
    return "'" + script.replace("'", "'\\''") + "'"


def _driver(slurm: str, say: Callable[[str], None]) -> bytes:
    """psycopg's wheels for the containers, as a tar file."""
    python = ContainerPython(find_release(slurm).python, platform.machine())
    lock = lock_for_containers((TOP / "requirements-postgresql.lock").read_text(), python)
    wanted = [line for line in lock.splitlines() if line.startswith("psycopg")]
    wheels = ensure_wheels("".join(f"{line}\n" for line in wanted), TOP / "build" / "wheels", python, say)
    return _tar(sorted(wheels.iterdir()))


def _tar(files: Sequence[Path]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for file in files:
            archive.add(file, file.name)
    return packed.getvalue()
