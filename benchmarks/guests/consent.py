"""Jobs of mixed consent under an enforcing sodad that shares: who was on a GPU with whom, by the jobs' own locks."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_soda.containers.cluster import ContainerCluster

HOME = "/home/guests"
USERS = ("alice", "bob", "carol")
CONFIGURATION = """
mode = "enforce"
[policy]
name = "srsf-share"
[cycle]
interval_s = 1
[change_limits]
breaker_failures = 1000
[sharing]
partitions = ["gpu"]
different_users = ["gpu"]
"""
WAITING = 60
"""Jobs that wait at a time: enough to choose from, too few to slow the queue."""
NODES, GPUS_OF_NODE, GPUS = 4, 8, (1, 1, 1, 2, 2, 4)
MEAN_S, MAX_S = 12, 60
KNOWN_AFTER_S = 30.0
"""By then sodad has read what it was told of the jobs."""
MET = "on a GPU with somebody, without the consent of both"
SHARES = "shares with somebody who did not agree"
UNENDED = "jobs that never came to their end"
MUST_BE_NONE = (MET, SHARES, UNENDED)
_KIND = ("--gpu-type=a100", "--batch=64")
_BESIDE = ("--with=resnet50", "--with-batch=64")
_LOCKS = "mkdir -p /run/guests; for gpu in 0 1 2 3 4 5 6 7; do : >>/run/guests/$gpu; chmod 666 /run/guests/$gpu; done"


@dataclass(frozen=True, slots=True)
class MixedJob:
    """One job to be submitted."""

    user: str
    gpus: int
    seconds: int
    consent: str
    """``yes``, ``no``, or empty: it says nothing."""

    @property
    def agrees(self) -> bool:
        return self.consent == "yes"

    @property
    def argv(self) -> tuple[str, ...]:
        words = [f"--gres=gpu:{self.gpus}", "--requeue", "--mem=1", "--output=/dev/null", "--chdir=/tmp", "--time=5"]
        words += ["--soda-model=resnet50", "--soda-batch-size=64", f"--soda-iterations={self.seconds * 2}"]
        words += [f"--soda-share={self.consent}"] if self.consent else []
        return ("sbatch", "--parsable", *words, f"{HOME}/meet.sh", str(self.seconds), "yes" if self.agrees else "no")


def draw_jobs(number: int, seed: int) -> list[MixedJob]:
    """Half of the jobs agree; most are short, as a guest must end before its host."""
    rng = random.Random(seed)
    return [
        MixedJob(
            rng.choice(USERS),
            rng.choice(GPUS),
            min(MAX_S, 1 + int(rng.expovariate(1 / MEAN_S))),
            rng.choice(("yes", "yes", "no", "")),
        )
        for _ in range(number)
    ]


def prepare(cluster: ContainerCluster, configuration: str = CONFIGURATION) -> None:
    """The jobs' program and locks; sodad, and what it must know of the jobs."""
    cluster.exec("root", ("sh", "-c", f"mkdir -p {HOME}; : >{HOME}/log; chmod 666 {HOME}/log")).check()
    cluster.copy_in((Path(__file__).parent / "meet.sh").read_bytes(), f"{HOME}/meet.sh", mode=0o755)
    for node in cluster.node_states():
        cluster.exec("root", ("sh", "-c", _LOCKS), node=node).check()
    cluster.start_daemon(configuration)
    cluster.wait_until(lambda: cluster.exec("root", ("sodactl", "status")).status == 0, "sodad answers")
    for gpus in sorted(set(GPUS)):
        for quantity, value, *more in (("iteration_s", "0.5"), ("xi", "1.1", *_BESIDE), ("fits", "1", *_BESIDE)):
            argv = ("sodactl", "profiles", "set", "resnet50", quantity, value, *_KIND, f"--gpus={gpus}", *more)
            cluster.exec("root", argv).check()
    time.sleep(KNOWN_AFTER_S)


def run(cluster: ContainerCluster, jobs: Sequence[MixedJob], say: Callable[[str], None]) -> Counter[str]:
    """Submits the jobs as others end, waits for all; what was found, each with its count."""
    agrees: dict[int, bool] = {}
    for at, job in enumerate(jobs):
        while at % 20 == 0 and (waiting := _in_queue(cluster, "PENDING")) > WAITING:
            say(f"{at} submitted, {waiting} wait")
            time.sleep(5)
        agrees[int(cluster.exec(job.user, job.argv).check().stdout)] = job.agrees
    cluster.wait_until(lambda: not _in_queue(cluster, "all"), "all jobs are over", 3600.0)
    lines = [line.split() for line in cluster.copy_out(f"{HOME}/log").decode().splitlines()]
    ends = cluster.exec("root", ("sodactl", "shares", "--json")).check().stdout
    shares = json.loads(ends)["shares"]
    found = Counter[str]({"jobs": len(jobs), "jobs that agree": sum(agrees.values()), "guests": len(shares)})
    found["starts"] = sum(line[1] == "start" for line in lines)
    found[UNENDED] = len(agrees.keys() - {int(line[2]) for line in lines if line[1] == "stop"})
    found[MET] = sum(line[1] == "met" for line in lines)
    found[SHARES] = sum(not all(agrees[job] for job in (share["job_id"], *share["hosts"])) for share in shares)
    return found


def _in_queue(cluster: ContainerCluster, state: str) -> int:
    states = ("--states=PENDING",) if state == "PENDING" else ()
    return len(cluster.exec("root", ("squeue", "--noheader", "--format=%i", *states)).check().stdout.split())
