"""The :class:`SlurmClient` that uses Slurm's own commands."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from slurm_soda.slurm_ext.client import Allocation, JobUpdate, JobUpdateResult, SlurmJob, SlurmNode
from slurm_soda.slurm_ext.command_runner import LATER_S, SLURM_ENVIRONMENT, CommandRunner, CompletedCommand
from slurm_soda.slurm_ext.errors import (
    OutputTooLongError,
    PriorityPluginError,
    SlurmCommandError,
    SlurmReplyError,
    is_no_answer,
)
from slurm_soda.slurm_ext.read.batch_script import (
    MAX_SCRIPT_BYTES,
    SCRIPT_TOO_LONG,
    parse_script,
    show_script_command,
    steps_own_cpus,
)
from slurm_soda.slurm_ext.read.capabilities import CommandCapabilities
from slurm_soda.slurm_ext.read.exclusive_nodes import (
    ExclusiveNodes,
    exclusive_command,
    exclusive_environment,
    parse_exclusive_job,
)
from slurm_soda.slurm_ext.read.job_request import JobRequest, PartitionLimits
from slurm_soda.slurm_ext.read.partition_limits import (
    SHOW_CONFIG_COMMAND,
    SHOW_PARTITIONS_COMMAND,
    parse_boot_s,
    parse_cluster_memory_limit,
    parse_limits,
    parse_tiers,
)
from slurm_soda.slurm_ext.read.priority_parts import (
    PRIORITY_PARTS_COMMAND,
    ShownPriority,
    parse_most_earned,
    parse_priority_parts,
)
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming, random_nonce, with_end_mark
from slurm_soda.slurm_ext.read.scontrol_allocation import (
    SHOW_JOBS_COMMAND,
    parse_allocations,
    parse_array_throttles,
    parse_extras,
    show_jobs_script,
)
from slurm_soda.slurm_ext.read.scontrol_nodes import SHOW_NODES_COMMAND, parse_nodes
from slurm_soda.slurm_ext.read.scontrol_request import parse_request, show_job_command
from slurm_soda.slurm_ext.read.scontrol_text import (
    SHOW_JOBS_AS_TEXT,
    parse_allocations_from_text,
    parse_request_from_text,
    show_job_as_text,
    show_jobs_as_text_script,
)
from slurm_soda.slurm_ext.read.sprio import NO_PRIORITIES, SPRIO_COMMAND, parse_site_factors
from slurm_soda.slurm_ext.read.squeue_jobs import SQUEUE_COMMAND, SqueueReader, squeue_environment
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob, read_waiting_jobs
from slurm_soda.slurm_ext.write.scontrol_updates import (
    TRANSIENT_ERRORS,
    parse_update_errors,
    refusal_of_update,
    scontrol_script,
)

_Told = TypeVar("_Told")
_SIGNAL = re.compile(r"[A-Z][A-Z0-9]{1,9}")
_VERSION = re.compile(r"\b(\d+\.\d+\.\d+)")
_MAX_TRIES = 4
_RETRY_WITHIN_S = 2.0
"""An update is tried again only so soon after it was first sent: who sends it was allowed to just before that."""
_REMEDY = "check that slurmctld answers (scontrol ping) and that this user may do it"


@dataclass(frozen=True, slots=True)
class CommandTimeouts:
    """How long each kind of command may take. While slurmctld is down, clients wait 9 to 18 s by themselves."""

    read_s: float = 15.0
    act_s: float = 20.0
    per_update_s: float = 0.02
    """On top of ``act_s`` for each update of a batch; one takes about 1 ms."""

    def updates_s(self, count: int) -> float:
        """Time limit of one scontrol process with so many updates."""
        return self.act_s + self.per_update_s * count

    def longest_change_s(self, updates: int) -> float:
        """Longest time from the beginning of a call that changes Slurm to the end of its last command.

        It holds for a paused caller as well, where the runner ends commands by itself.

        Args:
            updates: most updates in one call. Other calls take no longer.
        """
        return _RETRY_WITHIN_S + self.updates_s(updates) + LATER_S


@dataclass(frozen=True)
class CliSlurmClient:
    """Slurm through squeue, scontrol, sprio and scancel."""

    runner: CommandRunner
    limits: CommandTimeouts = field(default_factory=CommandTimeouts)
    environment: Mapping[str, str] = field(default_factory=lambda: SLURM_ENVIRONMENT)
    nonce: Callable[[], str] = random_nonce
    reader: SqueueReader = field(default_factory=SqueueReader, repr=False, compare=False)
    writing_runner: CommandRunner | None = None
    """Runs what changes Slurm; ``None``: as the rest."""

    capabilities: CommandCapabilities = field(init=False, repr=False, compare=False)
    """What this Slurm's commands can tell."""

    def __post_init__(self) -> None:
        known = CommandCapabilities(self.runner, self.environment, self.limits.read_s)
        object.__setattr__(self, "capabilities", known)

    @property
    def _shared_gres(self) -> str:
        return self.reader.shared_gres

    def jobs(self) -> list[SlurmJob]:
        framing = ReplyFraming(self.nonce())
        return self.reader.parse(self._read(SQUEUE_COMMAND, framing, squeue_environment(framing)), framing)

    def nodes(self) -> list[SlurmNode]:
        framing = ReplyFraming(self.nonce())
        return parse_nodes(self._read(SHOW_NODES_COMMAND, framing), framing, self._shared_gres)

    def waiting_jobs(self) -> dict[int, WaitingJob]:
        return read_waiting_jobs(self.runner, None, self.limits.read_s)

    def site_factors(self) -> dict[int, int]:
        framing = ReplyFraming(self.nonce())
        try:
            return parse_site_factors(self._read(SPRIO_COMMAND, framing), framing)
        except SlurmCommandError as error:
            if found := NO_PRIORITIES.search(error.stderr):
                raise PriorityPluginError(found[1]) from error
            raise

    def priority_parts(self) -> dict[int, ShownPriority]:
        framing = ReplyFraming(self.nonce())
        return parse_priority_parts(self._read(PRIORITY_PARTS_COMMAND, framing), framing)

    def most_earned_priority(self) -> int:
        framing = ReplyFraming(self.nonce())
        return parse_most_earned(self._read(SHOW_CONFIG_COMMAND, framing), framing)

    def allocations(self, job_ids: Sequence[int]) -> dict[int, Allocation | SlurmReplyError]:
        return self._as_json_or_text(
            lambda: self._show_jobs(job_ids, lambda stdout: parse_allocations(stdout, job_ids, self._shared_gres)),
            lambda: self._allocations_from_text(job_ids),
        )

    def _allocations_from_text(self, job_ids: Sequence[int]) -> dict[int, Allocation | SlurmReplyError]:
        nonce = self.nonce()
        return self._show_jobs(
            job_ids,
            lambda stdout: parse_allocations_from_text(stdout, job_ids, nonce),
            SHOW_JOBS_AS_TEXT,
            show_jobs_as_text_script(job_ids, nonce),
        )

    def _as_json_or_text(self, as_json: Callable[[], _Told], as_text: Callable[[], _Told]) -> _Told:
        """By the second where this Slurm's scontrol writes no JSON."""
        if self.capabilities.known_to_lack_json:
            return as_text()
        try:
            return as_json()
        except SlurmCommandError as error:
            if not self.capabilities.lacks_json_by(error):
                raise
        return as_text()

    def extras(self, job_ids: Sequence[int]) -> dict[int, str | SlurmReplyError]:
        return self._show_jobs(job_ids, lambda stdout: parse_extras(stdout, job_ids))

    def array_throttles(self, arrays: Sequence[int]) -> dict[int, int | SlurmReplyError]:
        return self._show_jobs(arrays, lambda stdout: parse_array_throttles(stdout, arrays))

    def _show_jobs(
        self,
        job_ids: Sequence[int],
        parse: Callable[[bytes], dict[int, _Told | SlurmReplyError]],
        command: Sequence[str] = SHOW_JOBS_COMMAND,
        script: bytes | None = None,
    ) -> dict[int, _Told | SlurmReplyError]:
        """What scontrol tells of each job, by one process.

        Raises:
            SlurmCommandError: it failed and told nothing of any.
        """
        stdin = show_jobs_script(job_ids) if script is None else script
        said = self._run(command, stdin=stdin, timeout_s=self.limits.read_s)
        found = parse(said.stdout)
        if said.status != 0 and all(isinstance(answer, SlurmReplyError) for answer in found.values()):
            raise SlurmCommandError(said.argv, said.status, said.stderr.decode("utf-8", "backslashreplace"), _REMEDY)
        return found

    def request(self, job_id: int) -> JobRequest:
        framing = ReplyFraming(self.nonce())

        def exclusive() -> ExclusiveNodes:
            said = self._read(exclusive_command(job_id), framing, exclusive_environment(framing))
            return parse_exclusive_job(said, framing, job_id)

        request = self._as_json_or_text(
            lambda: parse_request(self._read(show_job_command(job_id), framing), framing, job_id, exclusive),
            lambda: parse_request_from_text(self._read(show_job_as_text(job_id), framing), framing, job_id),
        )
        if request.peculiar:
            return request
        try:
            said = self._read(show_script_command(job_id), framing, most_bytes=MAX_SCRIPT_BYTES + len(framing.end))
        except OutputTooLongError:
            return replace(request, peculiar=SCRIPT_TOO_LONG)
        except SlurmCommandError as error:
            if error.status is None:
                raise
            return replace(request, peculiar="a script that cannot be read")
        return replace(request, peculiar=steps_own_cpus(parse_script(said, framing, job_id), request.tasks))

    def partition_limits(self) -> dict[str, PartitionLimits]:
        framing = ReplyFraming(self.nonce())
        cluster_mib = parse_cluster_memory_limit(self._read(SHOW_CONFIG_COMMAND, framing), framing)
        return parse_limits(self._read(SHOW_PARTITIONS_COMMAND, framing), framing, cluster_mib)

    def partition_tiers(self) -> dict[str, int]:
        framing = ReplyFraming(self.nonce())
        return parse_tiers(self._read(SHOW_PARTITIONS_COMMAND, framing), framing)

    def boot_s(self) -> float:
        framing = ReplyFraming(self.nonce())
        return parse_boot_s(self._read(SHOW_CONFIG_COMMAND, framing), framing)

    def update(self, updates: Sequence[JobUpdate]) -> list[JobUpdateResult]:
        results = [JobUpdateResult(update.job_id, refusal_of_update(update)) for update in updates]
        waiting = [at for at, result in enumerate(results) if not result.error]
        until_s = time.clock_gettime(time.CLOCK_BOOTTIME) + _RETRY_WITHIN_S
        for attempt in range(_MAX_TRIES):
            if not waiting or (attempt and time.clock_gettime(time.CLOCK_BOOTTIME) > until_s):
                break
            again = [updates[at] for at in waiting]
            try:
                answers = self._send(again)
            except SlurmCommandError as error:
                if attempt == 0:
                    raise
                # What became of the others is known from the tries before.
                answers = [JobUpdateResult(u.job_id, str(error), not error.may_have_happened) for u in again]
            for at, answer in zip(waiting, answers, strict=True):
                results[at] = answer
            waiting = [at for at in waiting if any(text in results[at].error for text in TRANSIENT_ERRORS)]
        return results

    def signal(self, job_id: int, signal: str) -> None:
        if not _SIGNAL.fullmatch(signal):
            raise SlurmReplyError(f"job {job_id}: {signal!r} is no signal name such as USR1; nothing is sent")
        self._act(("scancel", "--full", f"--signal={signal}", self._address(job_id)))

    def requeue(self, job_id: int, *, ended: bool = False) -> None:
        which = () if ended else ("incomplete",)
        self._act(("scontrol", "requeue", *which, self._address(job_id)))

    def _address(self, job_id: int) -> str:
        """As the last list of jobs has it: the id of one task may be that of its whole array."""
        return self.reader.addresses.get(job_id, str(job_id))

    def version(self) -> str:
        said = self._run(("scontrol", "--version"), timeout_s=self.limits.read_s).check(
            "install Slurm's client commands"
        )
        match = _VERSION.search(said.stdout.decode("ascii", "replace"))
        if not match:
            raise SlurmReplyError(f"scontrol --version said {said.stdout[:60]!r}, which is no version")
        return match[1]

    def _send(self, updates: Sequence[JobUpdate]) -> list[JobUpdateResult]:
        """One scontrol process; a result for each update.

        Raises:
            SlurmCommandError: scontrol did not even get past the first.
        """
        nonce = self.nonce()
        limit_s = self.limits.updates_s(len(updates))
        said = self._change(("scontrol",), stdin=scontrol_script(updates, nonce, self._address), timeout_s=limit_s)
        found = parse_update_errors(said.stderr, len(updates), nonce)
        if found[0] is None:
            raise SlurmCommandError(said.argv, said.status, said.stderr.decode("utf-8", "backslashreplace"), _REMEDY)
        return [_result(update, text) for update, text in zip(updates, found, strict=True)]

    def _read(
        self,
        argv: Sequence[str],
        framing: ReplyFraming,
        env: Mapping[str, str] | None = None,
        most_bytes: int | None = None,
    ) -> bytes:
        said = self.runner(
            with_end_mark(argv),
            stdin=b"",
            timeout_s=self.limits.read_s,
            env={**self.environment, **framing.env, **(env or {})},
            most_bytes=most_bytes,
        )
        if said.cut:
            raise OutputTooLongError(f"{' '.join(argv)} prints more than {most_bytes} bytes")
        if said.status != 0:
            raise SlurmCommandError(tuple(argv), said.status, said.stderr.decode("utf-8", "backslashreplace"), _REMEDY)
        return said.stdout

    def _act(self, argv: Sequence[str]) -> None:
        self._change(argv, timeout_s=self.limits.act_s).check(_REMEDY)

    def _change(self, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"") -> CompletedCommand:
        runner = self.writing_runner or self.runner
        return runner(argv, stdin=stdin, timeout_s=timeout_s, env=self.environment)

    def _run(self, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"") -> CompletedCommand:
        return self.runner(argv, stdin=stdin, timeout_s=timeout_s, env=self.environment)


def _result(update: JobUpdate, text: str | None) -> JobUpdateResult:
    if text is None:
        text = "scontrol stopped before it said what became of this update; it is not known to be done"
        return JobUpdateResult(update.job_id, text, answered=False)
    return JobUpdateResult(update.job_id, text, answered=not is_no_answer(text))
