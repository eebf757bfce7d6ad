"""Reads Slurm's jobs through pyslurm, for a parent that asks over pipes.

It runs in a process of its own, by the interpreter that has pyslurm: bindings run inside Slurm's C library, where a mistake
ends the process or ruins its memory. So this file imports nothing of slurm-soda, and takes Python 3.8.

The parent writes one line for each reading. Every answer is the number of its bytes, a line break, and JSON: first the
versions, then jobs whose row differs from the answer before, and ids of those that are gone.
"""

from __future__ import annotations

import json
import os
import pwd
import resource
import signal
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, BinaryIO

COLUMNS = (
    "job_id", "array_task_str", "array_task_id", "array_job_id", "het_job_id", "job_state", "state_reason", "user_id",
    "account", "partition", "qos", "name", "comment", "submit_time", "eligible_time", "start_time", "end_time", "time_limit",
    "priority", "nice", "restart_cnt", "tres_alloc_str", "tres_req_str", "tres_per_job", "tres_per_node", "tres_per_task",
    "cpus_per_task", "num_tasks", "nodes", "req_nodes", "requeue", "batch_flag",
)  # fmt: skip
"""Keys of pyslurm's dictionaries that are passed on as they are."""
MORE_COLUMNS = ("user_name", "exit_code", "dependency", "sharing")
"""What follows them in a row."""

_MOST_DEPENDENCY = 60
_MOST_SINGLE_LOADS = 20
_MEMORY_BYTES = 2 * 1024**3
"""Its parent's unit has a bound on the memory of both, at which all of it is stopped: this one comes first."""
_NEVER_ENDED = ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING")


class ChangedJobs:
    """All jobs at the last reading."""

    def __init__(self, pyslurm: Any) -> None:
        self._pyslurm = pyslurm
        self._rows: dict[int, list[Any]] = {}
        self._sharing: dict[tuple[int, int, int], str | None] = {}
        """OverSubscribe of jobs of which the dictionaries do not tell it, by id, user and submit time."""

    def read(self) -> dict[str, Any]:
        """What is another than before."""
        names: dict[int, str | None] = {}
        jobs = self._pyslurm.job().get()
        sharing = self._read_sharing(jobs)
        rows: dict[int, list[Any]] = {}
        for number, job in jobs.items():
            row = [job[key] for key in COLUMNS]
            user = job["user_id"]
            if user not in names:
                names[user] = _user_name(user)
            row += [names[user], exit_code(job), _cut(job["dependency"]), sharing[number]]
            rows[number] = row
        before, self._rows = self._rows, rows
        changed = [row for number, row in rows.items() if before.get(number) != row]
        gone = [number for number in before if number not in rows]
        return {"changed": changed, "gone": gone, "count": len(rows)}

    def _read_sharing(self, jobs: dict[int, Any]) -> dict[int, str | None]:
        """OverSubscribe of each job. The dictionaries call everything "OK" that is not NO, YES or USER.

        So the other interface is asked, once for each new job: it has Slurm's own word.
        """
        found: dict[int, str | None] = {}
        vague: dict[tuple[int, int, int], str | None] = {}
        new: list[tuple[int, int, int]] = []
        for number, job in jobs.items():
            found[number] = job["shared"]
            if job["shared"] == "OK":
                key = (number, job["user_id"], job["submit_time"])
                found[number] = vague[key] = self._sharing.get(key)
                if found[number] is None:
                    new.append(key)
        words = self._load_words([key[0] for key in new])
        for key in new:
            found[key[0]] = vague[key] = words.get(key[0])
        self._sharing = vague
        return found

    def _load_words(self, numbers: list[int]) -> dict[int, str]:
        if len(numbers) > _MOST_SINGLE_LOADS:
            return {job.id: job.resource_sharing for job in self._pyslurm.Jobs.load().values()}
        words = {}
        for number in numbers:
            try:
                job = self._pyslurm.Job.load(number)
            except self._pyslurm.RPCError:
                continue  # it has just gone; the parent asks in another way
            words[job.id] = job.resource_sharing
        return words


def exit_code(job: dict[str, Any]) -> str | None:
    """STATUS:SIGNAL as squeue prints it, or nothing where that cannot be told.

    pyslurm 22.05 to 24.11 writes ``derived_ec``, then ``exit_code``, from two variables that keep what they had: a process
    that exited sets the first alone, one that died of a signal the second alone.
    """
    status, number = str(job["exit_code"]).split(":")
    former_status, former_number = str(job["derived_ec"]).split(":")
    if number == "0":
        return status + ":0"
    if number != former_number:
        return "0:" + number
    if status != former_status:
        return status + ":0"
    return "0:0" if job["restart_cnt"] == 0 and job["job_state"] in _NEVER_ENDED else None


def _user_name(user: int) -> str | None:
    try:
        return pwd.getpwuid(user).pw_name
    except (KeyError, OverflowError):
        return None


def _cut(text: str | None) -> str | None:
    """An array that waits for a thousand tasks has 100 kB of it."""
    return text if text is None else text[:_MOST_DEPENDENCY]


def send(answers: BinaryIO, answer: dict[str, Any]) -> None:
    """One answer, framed by its length."""
    text = json.dumps(answer, separators=(",", ":")).encode("ascii")
    answers.write(b"%d\n" % len(text))
    answers.write(text)
    answers.flush()


def main(limit_s: int) -> int:
    """Answer until the parent closes its end; SIGALRM ends a reading that takes longer than ``limit_s``."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, _MEMORY_BYTES)
    signal.alarm(limit_s)
    try:
        pyslurm: Any = import_module("pyslurm")  # here, because a failure is an answer
        table = ChangedJobs(pyslurm)
        versions = {"pyslurm": pyslurm.__version__, "library": list(pyslurm.slurm_api_version())}
    except Exception as error:  # noqa: BLE001 - the parent tells whatever it is
        send(answers, {"error": _words(error)})
        return 1
    send(answers, versions)
    signal.alarm(0)
    while sys.stdin.buffer.readline():
        signal.alarm(limit_s)
        try:
            answer = table.read()
        except Exception as error:  # noqa: BLE001 - as above
            answer = {"error": _words(error)}
        send(answers, answer)
        signal.alarm(0)
    return 0


def _limit(what: int, most: int) -> None:
    with suppress(OSError, ValueError):  # the parent's limit is lower, or its unit allows no change
        resource.setrlimit(what, (most, most))


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:500]}"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
