"""The arrays of a service in Slurm: which there are, submitting them, cancelling them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.command_runner import CommandRunner
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmReplyError, SodaError
from slurm_soda.sodactl.service.submission import Submission

SUBMIT_TIMEOUT_S = 60.0
CANCEL_TIMEOUT_S = 30.0

_ENDED = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT")
_ANSWER = re.compile(rb"\s*(\d{1,10})(?:;[^\n]*)?\s*")
"""What ``sbatch --parsable`` prints: job id, and the cluster's name where there are several."""


@dataclass(frozen=True, slots=True)
class ServiceArray:
    """One array of a service that Slurm still has."""

    array_job_id: int
    name: str
    running: int
    waiting: int
    """Tasks; those that Slurm lists as one are counted as one."""


@dataclass(frozen=True, slots=True)
class SubmittedArray:
    """What ``sbatch`` made."""

    array_job_id: int
    device: str
    tasks: int


def find_submitted(jobs: Sequence[SlurmJob], service: str, uid: int) -> list[ServiceArray]:
    """A user's arrays of one service that have not ended, by id."""
    mine: dict[int, list[SlurmJob]] = {}
    for job in jobs:
        if job.uid == uid and job.state not in _ENDED and job.hints.service == service:
            mine.setdefault(job.array_job_id or job.job_id, []).append(job)
    return [
        ServiceArray(
            array_id,
            tasks[0].name,
            running=sum(job.state == "RUNNING" for job in tasks),
            waiting=sum(job.state == "PENDING" for job in tasks),
        )
        for array_id, tasks in sorted(mine.items())
    ]


def submit_all(run: CommandRunner, submissions: Sequence[Submission]) -> list[SubmittedArray]:
    """Submit the arrays, all of them or none.

    Raises:
        SlurmError: Slurm refused one. Those before it were cancelled, which the message says, or why they could not be.
    """
    done: list[SubmittedArray] = []
    for submission in submissions:
        try:
            done.append(SubmittedArray(_submit(run, submission), submission.plan.device, submission.tasks))
        except SodaError as error:
            raise SodaError(f"{error}{_undone(run, done)}") from error
    return done


def _submit(run: CommandRunner, submission: Submission) -> int:
    remedy = "correct what it names: sbatch arguments are in the service file, the rest is shown by --dry-run"
    completed = run(
        submission.argv, stdin=os.fsencode(submission.script), timeout_s=SUBMIT_TIMEOUT_S, env=_owners_environment()
    )
    if completed.status != 0 and b"--soda-service" in completed.stderr:
        remedy = "sbatch does not know slurm-soda's flags on this host: `sodactl doctor` says why, docs/install.md how"
    elif completed.status is None:
        remedy = "it may have been submitted all the same: `squeue --me` shows it, `sodactl service stop` cancels it"
    completed.check(remedy)
    match = _ANSWER.fullmatch(completed.stdout)
    if match is None:
        said = completed.stdout[:100].decode("utf-8", "backslashreplace")
        raise SlurmReplyError(
            f"sbatch printed {said!r} where a job id was expected; `squeue --me` shows what was submitted"
        )
    return int(match[1])


def _undone(run: CommandRunner, done: Sequence[SubmittedArray]) -> str:
    if not done:
        return ""
    named = ", ".join(f"{array.array_job_id} ({array.device})" for array in done)
    try:
        cancel(run, [array.array_job_id for array in done])
    except SlurmCommandError as error:
        return f"; array {named} had been submitted and could not be cancelled ({error})"
    return f"; array {named}, which had been submitted before it, was cancelled"


def cancel(run: CommandRunner, array_job_ids: Sequence[int]) -> None:
    """End arrays: running tasks get SIGTERM and answer what they have.

    Raises:
        SlurmCommandError: Slurm refused, or did not answer.
    """
    argv = ("scancel", *map(str, array_job_ids))
    run(argv, stdin=b"", timeout_s=CANCEL_TIMEOUT_S, env=_owners_environment()).check(
        "try again; `squeue --me` shows them"
    )


def _owners_environment() -> Mapping[str, str]:
    """This user's own: ``sbatch`` hands it to the service's command, as for every other job of the user.

    Without ``SBATCH_WAIT``, with which ``sbatch`` would return when the service ends.
    """
    return {name: value for name, value in os.environ.items() if name != "SBATCH_WAIT"}


def show_call(submission: Submission) -> str:
    """A call as one would type it, with its standard input."""
    return f"{shlex.join(submission.argv)} <<'EOF'\n{submission.script}EOF"
