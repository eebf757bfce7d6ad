"""Runs on a cluster's controller: an owner's edits of a job race with its rewrite to a guest (``benchmarks.consent``)."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from threading import Lock, Thread

RECORD = "soda-guest:1,hosts=7,gpus=0,undo=TresPerNode=gres/gpu:1;ReqNodeList="
REWRITE = ("TresPerNode=gres/sharedgpu:g0:1", "ReqNodeList=n1", f"Extra={RECORD}")
ASKS = (
    "TresPerNode=gres/sharedgpu:g1:1", "TresPerJob=gres/sharedgpu:g1:1", "TresPerNode=", "TresPerNode=gres/gpu:1",
    "TresPerNode=gres/gpu:0", "TresPerNode=gres/gpu:2", "TresPerNode=gres/nosuch:1", "TresPerTask=gres/gpu:1",
    "TresPerNode=none",
)  # fmt: skip
PLACES = ("ReqNodeList=", "ReqNodeList=n2", "ReqNodeList=n1,n2", "NumNodes=2", "NumNodes=1-2", "NumTasks=40", "NumCPUs=40",
          "Extra=", "Extra=mine", f"Extra={RECORD}", "MinMemoryNode=100", "ExcNodeList=n2", "Partition=gpu",
          "Requeue=0")  # fmt: skip
REFUSED = ("Deadline=2020-01-01", "CoreSpec=3", "Nice=-5", "SiteFactor=8", "Dependency=foo:bar", "Features=nosuch",
           "TimeMin=99999", "Licenses=nosuch", "Reservation=nosuch", "TresBind=x", "Contiguous=yes")  # fmt: skip
"""Fields at which Slurm gives a change up after it has carried part of it out."""

OF_NO_MATTER = {"ExcNodeList=n2", "Partition=gpu", "TimeLimit=5"}
"""The owner of a guest may say so as well."""

START_S = 3.0
STARTING = Lock()


def run_race(owner: tuple[int, int], draw: random.Random) -> str:
    """One race; what became of the job: ``guest``, ``plain``, or how it is a guest that could start elsewhere,
    or that asked for something else before.
    """
    uid, gid = owner
    submit = ("sbatch", "--parsable", "--hold", "--output=/dev/null", "--gres=gpu:1", "--ntasks=1", "--wrap=true")
    job = subprocess.run(
        submit, user=uid, group=gid, cwd="/", capture_output=True, check=True, text=True
    ).stdout.strip()

    accepted: list[str] = []

    def update(fields: tuple[str, ...], after_s: float, uid: int, gid: int) -> None:
        time.sleep(after_s)
        argv = ("scontrol", "update", f"JobId={job}", *fields)
        done = subprocess.run(argv, user=uid, group=gid, cwd="/", capture_output=True, check=False)
        if uid and not done.returncode:
            accepted.extend(set(fields) - OF_NO_MATTER)

    senders = [Thread(target=update, args=(REWRITE, draw.uniform(0.0, 0.02), 0, 0))]
    for _ in range(draw.randint(1, 3)):
        fields = [
            *draw.sample(ASKS, draw.randint(0, 1)),
            *draw.sample(PLACES, draw.randint(0, 2)),
            *draw.sample(REFUSED, draw.randint(0, 1)),
        ]
        senders.append(
            Thread(target=update, args=(tuple(fields or ["TimeLimit=5"]), draw.uniform(0.0, 0.03), uid, gid))
        )
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    found = judge(show(job))
    if found == "guest, maybe on several nodes":
        found = where_it_starts(job)
    if found == "guest" and accepted:
        found = "guest, though Slurm had accepted another request"
    subprocess.run(("scancel", job), check=True)
    return found


def show(job: str) -> dict[str, str]:
    """Fields of ``scontrol show job``."""
    text = subprocess.run(("scontrol", "-o", "show", "job", job), capture_output=True, check=True, text=True).stdout
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def where_it_starts(job: str) -> str:
    """Let a guest start, one at a time."""
    with STARTING:
        subprocess.run(("scontrol", "release", job), check=True)
        until_s = time.monotonic() + START_S
        while time.monotonic() < until_s and (shown := show(job))["JobState"] == "PENDING":
            time.sleep(0.1)
        return "guest" if shown["JobState"] == "PENDING" or shown["NodeList"] == "n1" else "guest on several nodes"


def judge(shown: dict[str, str]) -> str:
    """What a job is, by ``scontrol show job``."""
    if "sharedgpu" not in shown["ReqTRES"]:
        return "plain"
    if shown["ReqNodeList"] != "n1":
        return "guest on any node"
    if shown["NumNodes"] not in ("1", "1-1"):
        return "guest, maybe on several nodes"
    return "guest" if shown.get("Extra") == RECORD else "guest without its record"


def run_inside(races: int, seed: int, uid: int, gid: int) -> dict[str, int]:
    """So many races on this controller, four at a time; how many ended how."""
    counts: dict[str, int] = {}

    def work(draws: list[random.Random]) -> None:
        for draw in draws:
            found = run_race((uid, gid), draw)
            counts[found] = counts.get(found, 0) + 1

    draws = [random.Random(f"{seed} {number}") for number in range(races)]
    workers = [Thread(target=work, args=(draws[start::4],)) for start in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return counts


if __name__ == "__main__":
    print(json.dumps(run_inside(*map(int, sys.argv[1:]))))
