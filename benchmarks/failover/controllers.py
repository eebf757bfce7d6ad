"""Two controllers with one store on PostgreSQL: their leader is killed or paused, and what follows is judged."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy import func, select

from benchmarks.failover.slurm_server import Chunk, SlurmServer
from slurm_soda.daemon.main import EXIT_SUPERSEDED
from slurm_soda.daemon.store import audit_log
from slurm_soda.daemon.store.engine import open_store
from slurm_soda.daemon.store.tables.scheduling import NO_DAEMON, Action, Cycle, Epoch

TOP = Path(__file__).parents[2]
CYCLE_S = 0.5
COMMAND_S = 2.0
LEASE_S = 5.0
WITHIN_S = 60.0

CONFIG = """
mode = "enforce"
state_dir = "{folder}"
wake_path = "{folder}/wake"
[store]
url = "{url}"
[api]
host = "127.0.0.1"
port = 0
[policy]
name = "tiresias-las"
[cycle]
interval_s = {cycle_s}
retry_s = 0.2
[change_limits]
min_change_interval_s = 0.0
breaker_failures = 1000
[slurm]
accounting = false
write_timeout_s = {command_s}
"""

Fault = Literal["kill", "pause"]


@dataclass(frozen=True, slots=True)
class TakeOver:
    """What one fault of a leader led to."""

    fault: Fault
    began_early_s: float
    """How long before lease and command time-out were over the successor began; not above 0 if all is well."""
    acted_after_s: float
    """From the instant at which the successor might begin to its first update."""
    acted_in_cycle: int
    """Number of the successor's cycle in which it sent its first change, from 1."""
    stale_chunks: int
    """Chunks of the old leader that began after the take-over."""
    stale_landed: int
    """Updates of chunks that the old leader began before, done after the take-over."""
    unsettled: int
    """Changes of the old leader that nobody settled."""
    unrecorded: int
    """Updates of the old leader that Slurm did and the store does not know."""
    exit_status: int | None
    """Of a paused leader that went on; ``None`` after a kill."""

    def violations(self) -> list[str]:
        """What must not have happened."""
        found = []
        if self.began_early_s > 0:
            found.append(f"took over {self.began_early_s:.3f} s too early")
        if self.acted_in_cycle > 2:
            found.append(f"acted in its cycle {self.acted_in_cycle} only")
        if self.stale_chunks > (1 if self.fault == "pause" else 0):
            found.append(f"{self.stale_chunks} chunks of the old leader began after the take-over")
        if self.fault == "pause" and self.exit_status != EXIT_SUPERSEDED:
            found.append(f"the paused leader ended with status {self.exit_status}")
        counts = {"late": self.stale_landed, "unsettled": self.unsettled, "unrecorded": self.unrecorded}
        return found + [f"{count} {name} updates of the old leader" for name, count in counts.items() if count]


class Controllers:
    """Two controllers, their sodads running."""

    def __init__(self, folder: Path, url: str, seed: int) -> None:
        self._random = random.Random(seed)
        self.slurm, self.store = SlurmServer(), open_store(url)
        self._configs: list[Path] = []
        for name in ("ctl1", "ctl2"):
            place = folder / name
            place.mkdir()
            text = CONFIG.format(folder=place, url=url, cycle_s=CYCLE_S, command_s=COMMAND_S)
            (place / "soda.toml").write_text(text)
            self._configs.append(place / "soda.toml")
        self.sodads = [self._start(at) for at in range(2)]

    def close(self) -> None:
        """End both."""
        for sodad in self.sodads:
            with suppress(ProcessLookupError):
                sodad.send_signal(signal.SIGCONT)
            sodad.kill()
            sodad.wait()
        self.slurm.close()
        self.store.close()

    def _start(self, at: int) -> subprocess.Popen[bytes]:
        path = self._configs[at]
        argv = [str(path), str(self.slurm.port), str(self.slurm.update_port), str(LEASE_S)]
        environ = {**os.environ, "PYTHONPATH": f"{TOP / 'src'}:{TOP}"}
        with path.with_name("log").open("ab") as log:
            return subprocess.Popen([sys.executable, "-m", "benchmarks.failover.sodad", *argv], env=environ, stderr=log)

    def log(self, at: int) -> str:
        """What a sodad has logged."""
        return self._configs[at].with_name("log").read_text()

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Until something holds.

        Raises:
            TimeoutError: it took too long.
        """
        until_s = time.monotonic() + WITHIN_S
        while not condition():
            if time.monotonic() > until_s:
                raise TimeoutError(f"{what}\n{self.log(0)[-3000:]}\n---\n{self.log(1)[-3000:]}")
            time.sleep(0.02)

    def leader(self) -> int:
        """Which one leads: 0 or 1; -1 while none does."""
        with self.store.read() as session:
            newest = session.scalars(select(Epoch).order_by(Epoch.id.desc()).limit(1)).first()
        pids = [sodad.pid for sodad in self.sodads]
        return pids.index(newest.pid) if newest is not None and newest.pid in pids and newest.ended_s is None else -1

    def waits(self, at: int) -> bool:
        """Whether this one stands by."""
        return self.sodads[at].poll() is None and f"waiting pid={self.sodads[at].pid}" in self.log(at)

    def _is_ready(self) -> bool:
        """Whether one leads and works while the other one stands by. On a slow machine one may give way unasked."""
        for at, sodad in enumerate(self.sodads):
            if sodad.poll() is not None:
                self.sodads[at] = self._start(at)
        at = self.leader()
        return at >= 0 and self.waits(1 - at) and len(self.slurm.of(self.sodads[at].pid)) > 6

    def fail_over(self, fault: Fault) -> TakeOver:
        """Let the leader fail at some instant of its work, wait for the other one, and restart the first."""
        self.wait(self._is_ready, "one leads and works, and the other one stands by")
        at = self.leader()
        old, new = self.sodads[at], self.sodads[1 - at]
        time.sleep(self._random.uniform(0, 2 * CYCLE_S))
        old.send_signal(signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
        self.wait(lambda: self.slurm.of(new.pid), "the other one acts")
        free_s = self._free_s(old.pid)
        status = None
        if fault == "pause":
            time.sleep(self._random.uniform(0, 1))
            old.send_signal(signal.SIGCONT)
            status = old.wait(WITHIN_S)
        else:
            old.wait()
        with suppress(TimeoutError):
            self.wait(lambda: not self._unsettled(old.pid), "all is settled")
        return self._judge(fault, (old.pid, new.pid), free_s, status)

    def _unsettled(self, pid: int) -> int:
        with self.store.read() as session:
            of = select(Epoch.id).where(Epoch.pid == pid)
            query = select(Action.id).where(Action.epoch_id.in_(of), Action.state.in_(audit_log.UNSETTLED_STATES))
            return len(session.scalars(query).all())

    def _free_s(self, pid: int) -> float:
        """From when on another one may begin, by this one's last heartbeat."""
        with self.store.read() as session:
            epoch = session.scalars(select(Epoch).where(Epoch.pid == pid).order_by(Epoch.id.desc())).first()
            assert epoch is not None
            return epoch.heartbeat_s + epoch.take_over_after_s

    def _judge(self, fault: Fault, pids: tuple[int, int], free_s: float, status: int | None) -> TakeOver:
        old_pid, new_pid = pids
        with self.store.read() as session:
            epochs = {e.pid: e for e in session.scalars(select(Epoch).where(Epoch.pid != NO_DAEMON).order_by(Epoch.id))}
            old, new = epochs[old_pid], epochs[new_pid]
            cycles = session.scalars(select(Cycle.id).where(Cycle.epoch_id == new.id).order_by(Cycle.id)).all()
            first = session.scalar(select(func.min(Action.cycle_id)).where(Action.epoch_id == new.id))
            known = {
                (job_id, values.get("SiteFactor"))
                for job_id, values in session.execute(
                    select(Action.job_id, Action.new).where(Action.epoch_id == old.id)
                )
            }
        chunks = self.slurm.of(old_pid)
        return TakeOver(
            fault=fault,
            began_early_s=free_s - new.started_s,
            acted_after_s=self.slurm.of(new_pid)[0].began_s - free_s,
            acted_in_cycle=1 + sum(cycle < (first or 0) for cycle in cycles),
            stale_chunks=sum(chunk.began_s > new.started_s for chunk in chunks),
            stale_landed=sum(_landed(chunk, new.started_s) for chunk in chunks if chunk.began_s <= new.started_s),
            unsettled=self._unsettled(old_pid),
            unrecorded=sum((job, value) not in known for chunk in chunks for _, job, value in chunk.applied),
            exit_status=status,
        )


def _landed(chunk: Chunk, after_s: float) -> int:
    return sum(at_s > after_s for at_s, _, _ in chunk.applied)
