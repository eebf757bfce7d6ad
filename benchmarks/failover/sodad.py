"""sodad itself, over the small Slurm of the measurement: in each cycle it changes the SiteFactor of every waiting job."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Sequence
from multiprocessing.connection import Client
from typing import Any

from benchmarks.failover.slurm_server import JOBS, KEY
from slurm_soda.daemon import main as daemon_main
from slurm_soda.daemon import process
from slurm_soda.daemon.cycle import plan_execution
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store import server
from slurm_soda.slurm_ext.client import JobUpdate, JobUpdateResult
from slurm_soda.slurm_ext.command_runner import LocalCommandRunner
from slurm_soda.slurm_ext.errors import SlurmCommandError
from slurm_soda.slurm_ext.write.job_changes import JobChange

SEND = 'exec 3<>"/dev/tcp/127.0.0.1/$0"; cat >&3; head -n 1 <&3'
"""In place of scontrol."""


class RemoteSlurm:
    """Reads the small Slurm, and changes it by a process for each chunk."""

    def __init__(self, port: int, update_port: int, timeout_s: float) -> None:
        self._connection = Client(("127.0.0.1", port), authkey=KEY)
        self._update_port, self._timeout_s = update_port, timeout_s
        self._runner = LocalCommandRunner(bound=True)

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self._connection.send((name, arguments))
            return self._connection.recv()

        return call

    def update(self, updates: Sequence[JobUpdate]) -> list[JobUpdateResult]:
        lines = [f"{os.getpid()}", *(f"{one.job_id} {dict(one.fields)['SiteFactor']}" for one in updates), "", ""]
        done = self._runner(
            ("bash", "-c", SEND, str(self._update_port)),
            stdin="\n".join(lines).encode(),
            timeout_s=self._timeout_s,
            env={"PATH": "/usr/bin:/bin"},
        )
        if done.stdout != b"done\n":
            raise SlurmCommandError(done.argv, None, "", "wait")
        return [JobUpdateResult(one.job_id) for one in updates]


def run(config: str, port: int, update_port: int, lease_s: float) -> int:
    """Run sodad; ``lease_s`` may be shorter than a site's."""
    read_settings = daemon_main._settings
    numbers = itertools.count(1)
    clients: list[RemoteSlurm] = []

    def settings(arguments: Any) -> Settings:
        found = read_settings(arguments)
        return found.model_copy(update={"cycle": found.cycle.model_copy(update={"lease_s": lease_s})})

    def client(slurm: Any, _reading_runner: Any, _shared_gres: str) -> RemoteSlurm:
        clients.append(RemoteSlurm(port, update_port, slurm.write_timeout_s))
        return clients[-1]

    def lift_all(*_: Any, **__: Any) -> list[JobChange]:
        shown, value = clients[-1].site_factors(), os.getpid() % 10_000 * 10_000 + next(numbers)
        return [
            JobChange(job_id, "order", {"SiteFactor": str(value)}, {"SiteFactor": str(shown.get(job_id, 0))}, "load")
            for job_id in JOBS
        ]

    # A leader that is paused within a transaction keeps it for 10 s, a fraction of a site's lease.
    server._SESSION["idle_in_transaction_session_timeout"] = "2s"
    daemon_main._settings = settings
    process.make_slurm_client = client  # type: ignore[assignment]
    plan_execution.order_changes = lift_all
    return daemon_main.main(["--config", config])


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
