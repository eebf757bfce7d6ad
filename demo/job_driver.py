"""Runs on the controller: submits a list of jobs by the clock and reports the queue until it has drained.

Reads one JSON document on standard input and writes one JSON object a line. It is one process for a whole run, so that
watching costs the cluster little. Only the standard library is used.
"""

from __future__ import annotations

import json
import pwd
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DriverEvent = dict[str, Any]
"""``submitted`` (index, job_id, at_s), ``refused`` (index, error), ``queue`` (at_s, states by job id), ``unreadable``
(error), ``done`` or ``timeout``."""

_QUEUE = ("squeue", "--noheader", "--format=%i|%T")
_COMMAND_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class CommandReply:
    """What a command said."""

    status: int
    stdout: str
    stderr: str


RunCommand = Callable[[Sequence[str], str | None, str], CommandReply]
"""``(argv, user or None for ourselves, standard input)``."""


@dataclass(frozen=True, slots=True)
class DriverEnvironment:
    """Clock and processes, so that tests can bring their own."""

    now_s: Callable[[], float]
    sleep: Callable[[float], None]
    run: RunCommand


def submit_and_watch(
    world: DriverEnvironment, orders: Sequence[Mapping[str, Any]], poll_s: float, limit_s: float
) -> Iterator[DriverEvent]:
    """Submit each order at its ``at_s`` after the first, look at the queue every ``poll_s``, end when our jobs are gone.

    A late submission does not delay the next ones. ``limit_s`` bounds the whole run.
    """
    began_s = world.now_s()
    mine: set[int] = set()
    index, next_look_s = 0, began_s
    while world.now_s() < began_s + limit_s:
        if index < len(orders) and world.now_s() >= began_s + float(orders[index]["at_s"]):
            event = _submit(world, orders[index], index)
            if event["event"] == "submitted":
                mine.add(int(event["job_id"]))
            index += 1
            yield event
            continue
        if world.now_s() >= next_look_s:
            next_look_s = world.now_s() + poll_s
            event = _read_queue(world, mine)
            yield event
            if index == len(orders) and event["event"] == "queue" and not event["states"]:
                yield {"event": "done"}
                return
        due_s = began_s + float(orders[index]["at_s"]) if index < len(orders) else next_look_s
        world.sleep(max(0.0, min(due_s, next_look_s) - world.now_s()))
    yield {"event": "timeout"}


def _submit(world: DriverEnvironment, order: Mapping[str, Any], index: int) -> DriverEvent:
    at_s = world.now_s()
    reply = world.run(order["argv"], str(order["user"]), str(order["script"]))
    # sbatch may warn before it answers; the id is the last line, with ";cluster" behind it on a federation.
    last = reply.stdout.strip().splitlines()[-1:] or [""]
    job_id = last[0].partition(";")[0]
    if reply.status != 0 or not job_id.isdigit():
        return {"event": "refused", "index": index, "error": " ".join((reply.stderr or reply.stdout).split())[:300]}
    return {"event": "submitted", "index": index, "job_id": int(job_id), "at_s": at_s}


def _read_queue(world: DriverEnvironment, mine: set[int]) -> DriverEvent:
    reply = world.run(_QUEUE, None, "")
    if reply.status != 0:
        return {"event": "unreadable", "error": " ".join(reply.stderr.split())[:300]}
    rows = [line.split("|", 1) for line in reply.stdout.splitlines() if "|" in line]
    states = {job_id: state for job_id, state in rows if job_id.isdigit() and int(job_id) in mine}
    return {"event": "queue", "at_s": world.now_s(), "states": states}


def _run(argv: Sequence[str], user: str | None, stdin: str) -> CommandReply:
    become: dict[str, Any] = {}
    if user is not None:
        entry = pwd.getpwnam(user)
        environment = {"HOME": entry.pw_dir, "USER": user, "LOGNAME": user, "PATH": "/usr/local/bin:/usr/bin:/bin"}
        become = {
            "user": entry.pw_uid,
            "group": entry.pw_gid,
            "extra_groups": [],
            "cwd": entry.pw_dir,
            "env": environment,
        }
    try:
        done = subprocess.run(
            list(argv), input=stdin, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False, **become
        )
    except subprocess.TimeoutExpired:
        return CommandReply(124, "", f"{argv[0]} did not answer within {_COMMAND_TIMEOUT_S} s")
    return CommandReply(done.returncode, done.stdout, done.stderr)


def main() -> None:
    """Drive the orders on standard input through this machine's Slurm."""
    task = json.load(sys.stdin)
    world = DriverEnvironment(time.time, time.sleep, _run)
    for event in submit_and_watch(world, task["orders"], float(task["poll_s"]), float(task["limit_s"])):
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
