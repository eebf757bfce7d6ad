"""A real cluster with sodad on it: submitting trainings, reading Slurm and the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import slurm_repairs
from slurm_soda.containers.cluster import ContainerCluster

PYTHON = "/opt/slurm-soda/bin/python"
STORE, LOCK = "/var/lib/slurm-soda/soda.db", "/var/lib/slurm-soda/sodad.lock"

ENFORCE = """
mode = "enforce"
[policy]
name = "tiresias-las"
[policy.parameters]
thresholds_gpu_s = [24.0]
min_run_s = 3.0
[cycle]
interval_s = 1
retry_s = 0.5
[change_limits]
breaker_failures = 1000
"""
"""Seconds stand for hours, so the bounds are small; a test that kills slurmctld wants to see every cycle try."""

PAST_THRESHOLD_S = 7.5
"""A run on four GPUs has then had more service than the first queue's threshold."""

ASK = """
import json, sqlite3, sys
store = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
store.row_factory = sqlite3.Row
rows = [dict(row) for row in store.execute(sys.argv[2])]
print(json.dumps([{k: v.decode("latin-1") if isinstance(v, bytes) else v for k, v in row.items()} for row in rows]))
"""


@dataclass
class DaemonSite:
    cluster: ContainerCluster

    def train(
        self,
        user: str,
        gpus: int,
        seconds: float,
        signal: str = "TERM",
        *,
        consents: bool = True,
        asks: Sequence[str] = (),
    ) -> int:
        """Submit a training, which consents to preemption or not, with further options; gives its job id."""
        script = (
            f"#!/bin/bash\nexec soda-train --model resnet50 --duration-s {seconds} --signal {signal.partition('@')[0]}"
            " --checkpoint-dir $HOME --save-s 0.2 --load-s 0.2\n"
        )
        argv = (
            "sbatch", "--parsable", "--output=/dev/null", "--time=30", "--nodes=1", f"--gres=gpu:{gpus}",
            f"--cpus-per-task={gpus}", *([f"--soda-checkpoint={signal}"] if consents else []), *asks,
        )  # fmt: skip
        return int(self.cluster.exec(user, argv, input=script).check().stdout)

    def start(self, configuration: str = ENFORCE) -> None:
        """Start an enforcing sodad with an empty store and wait for its first cycle."""
        # An earlier test may have left a mode or a policy in the store, which would override the configuration.
        self.cluster.exec("root", ("sh", "-c", f"rm -f {STORE}* {LOCK}")).check()
        self.cluster.start_daemon(configuration)
        newest = "(select max(id) from epoch where ended_s is null)"
        alive = f"select 1 from cycle where epoch_id = {newest} and length(error) = 0"
        self.wait(lambda: bool(self.store(alive)), "sodad has run a cycle")

    def store(self, query: str) -> list[dict[str, Any]]:
        """Rows of sodad's store."""
        asked = self.cluster.exec("root", (PYTHON, "-c", ASK, STORE, query))
        if "unable to open" in asked.stderr or "no such table" in asked.stderr:
            return []  # sodad has never been started here
        rows: list[dict[str, Any]] = json.loads(asked.check().stdout)
        return rows

    def daemon_epoch(self) -> int:
        """Process id of a sodad whose epoch is in the store; 0 while there is none."""
        pid = self.cluster.exec("root", ("cat", "/run/cluster/sodad.pid")).stdout.strip()
        return int(pid) if pid and self.store(f"select 1 from epoch where pid = {pid}") else 0

    def states(self, jobs: list[int]) -> list[str]:
        argv = ("squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={','.join(map(str, jobs))}")
        return self.cluster.exec("root", argv).stdout.split()

    def wait(self, condition: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
        self.cluster.wait_until(condition, what, within_s)

    def wait_running(self, jobs: list[int]) -> None:
        self.wait(lambda: self.states(jobs) == ["RUNNING"] * len(jobs), f"jobs {jobs} run")

    def wait_completed(self, jobs: list[int], within_s: float = 240.0) -> None:
        self.wait(lambda: self.states(jobs) == ["COMPLETED"] * len(jobs), f"jobs {jobs} are completed", within_s)

    def wait_completed_and_repair(self, jobs: list[int], within_s: float = 240.0) -> None:
        """As :meth:`wait_completed`, after a kill of slurmctld: with an admin who mends what Slurm asks one to mend."""

        def repaired_and_completed() -> bool:
            down = self.cluster.exec("root", ("sinfo", "--noheader", "--list-reasons", "--format=%N %E")).stdout
            drained = {node: reason for node, _, reason in (line.partition(" ") for line in down.splitlines())}
            duplicate = {node: reason for node, reason in drained.items() if reason.startswith("Duplicate jobid")}
            slurm_repairs.resume_nodes(self.cluster, duplicate)
            argv = ("squeue", "--noheader", "--states=pending", "--format=%i %r")
            waiting = (line.partition(" ") for line in self.cluster.exec("root", argv).stdout.splitlines())
            slurm_repairs.release_jobs(self.cluster, {job: reason for job, _, reason in waiting})
            return self.states(jobs) == ["COMPLETED"] * len(jobs)

        self.wait(repaired_and_completed, f"jobs {jobs} are completed", within_s)

    def shown(self, job: int, field: str) -> str:
        """A field of ``scontrol show job``."""
        text = self.cluster.exec("root", ("scontrol", "-o", "show", "job", str(job))).check().stdout
        return dict(word.split("=", 1) for word in text.split() if "=" in word)[field]

    def cycles(self, after: int = 0) -> list[dict[str, Any]]:
        return self.store(f"select id, sent, planned, error from cycle where id > {after} order by id")

    def check_trail(self, jobs: list[int], *, forgetful: bool = False) -> int:
        """No requeue lost or doubled, no gap in the audit trail; gives the number of requeues.

        Args:
            jobs: all jobs of the test.
            forgetful: slurmctld was killed, so a requeue may have been sent twice and Slurm may have requeued by itself.
        """
        total = 0
        for job in jobs:
            restarts = int(self.shown(job, "Restarts"))
            done = self.store(f"select restart from preemption where job_id = {job} and phase = 'done'")
            sent = self.store(
                f"select preemption_id from action where job_id = {job} and kind = 'requeue' and state = 'done'"
            )
            told = f"job {job}: {restarts} restarts, {done}, {sent}"
            if forgetful:
                assert len({row["preemption_id"] for row in sent}) == len(done) <= restarts, told
            else:
                assert len(sent) == len(done) == restarts, told
            assert len({row["restart"] for row in done}) == len(done)
            total += restarts
        ids = ",".join(map(str, jobs))
        ongoing = f"select * from preemption where phase not in ('done', 'lost') and job_id in ({ids})"
        unsettled = f"select * from action where state in ('intended', 'sent') and job_id in ({ids})"
        self.wait(lambda: not self.store(ongoing) and not self.store(unsettled), "everything begun is settled")
        return total

    def clear(self) -> None:
        """Leave the cluster as it was."""
        self.cluster.stop_daemon()
        cancel = "for user in alice bob carol; do scancel --user=$user; done"
        self.cluster.exec("root", ("sh", "-c", cancel))
        self.wait(lambda: not self.cluster.exec("root", ("squeue", "--noheader")).stdout.strip(), "the queue is empty")
