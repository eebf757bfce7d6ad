"""The :class:`SlurmClient` that uses Slurm's own commands."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_soda.slurm_ext.client import Allocation, JobUpdate, JobUpdateResult, SlurmJob, SlurmNode
from slurm_soda.slurm_ext.command_runner import LATER_S, SLURM_ENVIRONMENT, CommandRunner, CompletedCommand
from slurm_soda.slurm_ext.errors import PriorityPluginError, SlurmCommandError, SlurmReplyError, is_no_answer
from slurm_soda.slurm_ext.read.asking import REMEDY, AskingCommands, failure
from slurm_soda.slurm_ext.read.capabilities import CommandCapabilities
from slurm_soda.slurm_ext.read.job_request import JobRequest, PartitionLimits
from slurm_soda.slurm_ext.read.partition_limits import (
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
from slurm_soda.slurm_ext.read.reply_framing import random_nonce
from slurm_soda.slurm_ext.read.scontrol_nodes import SHOW_NODES_COMMAND, parse_nodes
from slurm_soda.slurm_ext.read.shown_jobs import ShownJobs
from slurm_soda.slurm_ext.read.slurm_config import SHOW_CONFIG_COMMAND
from slurm_soda.slurm_ext.read.sprio import NO_PRIORITIES, SPRIO_COMMAND, parse_site_factors
from slurm_soda.slurm_ext.read.squeue_jobs import SQUEUE_COMMAND, SqueueReader, squeue_environment
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob, read_waiting_jobs
from slurm_soda.slurm_ext.write.scontrol_updates import (
    TRANSIENT_ERRORS,
    parse_update_errors,
    refusal_of_update,
    scontrol_script,
)

_SIGNAL = re.compile(r"[A-Z][A-Z0-9]{1,9}")
_VERSION = re.compile(r"\b(\d+\.\d+\.\d+)")
_MAX_TRIES = 4
_RETRY_WITHIN_S = 2.0
"""An update is tried again only so soon after it was first sent: who sends it was allowed to just before that."""


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
    _ask: AskingCommands = field(init=False, repr=False, compare=False)
    _shown: ShownJobs = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = CommandCapabilities(self.runner, self.environment, self.limits.read_s)
        object.__setattr__(self, "capabilities", known)
        ask = AskingCommands(self.runner, self.environment, self.limits.read_s, self.nonce)
        object.__setattr__(self, "_ask", ask)
        object.__setattr__(self, "_shown", ShownJobs(ask, known))

    def jobs(self) -> list[SlurmJob]:
        framing = self._ask.framing()
        return self.reader.parse(self._ask.whole(SQUEUE_COMMAND, framing, squeue_environment(framing)), framing)

    def nodes(self) -> list[SlurmNode]:
        framing = self._ask.framing()
        return parse_nodes(self._ask.whole(SHOW_NODES_COMMAND, framing), framing, self.reader.shared_gres)

    def waiting_jobs(self) -> dict[int, WaitingJob]:
        return read_waiting_jobs(self.runner, None, self.limits.read_s)

    def site_factors(self) -> dict[int, int]:
        framing = self._ask.framing()
        try:
            return parse_site_factors(self._ask.whole(SPRIO_COMMAND, framing), framing)
        except SlurmCommandError as error:
            if found := NO_PRIORITIES.search(error.stderr):
                raise PriorityPluginError(found[1]) from error
            raise

    def priority_parts(self) -> dict[int, ShownPriority]:
        framing = self._ask.framing()
        return parse_priority_parts(self._ask.whole(PRIORITY_PARTS_COMMAND, framing), framing)

    def most_earned_priority(self) -> int:
        framing = self._ask.framing()
        return parse_most_earned(self._ask.whole(SHOW_CONFIG_COMMAND, framing), framing)

    def allocations(self, job_ids: Sequence[int]) -> dict[int, Allocation | SlurmReplyError]:
        return self._shown.allocations(job_ids, self.reader.shared_gres)

    def extras(self, job_ids: Sequence[int]) -> dict[int, str | SlurmReplyError]:
        return self._shown.extras(job_ids)

    def array_throttles(self, arrays: Sequence[int]) -> dict[int, int | SlurmReplyError]:
        return self._shown.array_throttles(arrays)

    def request(self, job_id: int) -> JobRequest:
        return self._shown.request(job_id)

    def partition_limits(self) -> dict[str, PartitionLimits]:
        framing = self._ask.framing()
        cluster_mib = parse_cluster_memory_limit(self._ask.whole(SHOW_CONFIG_COMMAND, framing), framing)
        return parse_limits(self._ask.whole(SHOW_PARTITIONS_COMMAND, framing), framing, cluster_mib)

    def partition_tiers(self) -> dict[str, int]:
        framing = self._ask.framing()
        return parse_tiers(self._ask.whole(SHOW_PARTITIONS_COMMAND, framing), framing)

    def boot_s(self) -> float:
        framing = self._ask.framing()
        return parse_boot_s(self._ask.whole(SHOW_CONFIG_COMMAND, framing), framing)

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
        said = self._ask.run(("scontrol", "--version")).check("install Slurm's client commands")
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
            raise failure(said.argv, said)
        return [_result(update, text) for update, text in zip(updates, found, strict=True)]

    def _act(self, argv: Sequence[str]) -> None:
        self._change(argv, timeout_s=self.limits.act_s).check(REMEDY)

    def _change(self, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"") -> CompletedCommand:
        runner = self.writing_runner or self.runner
        return runner(argv, stdin=stdin, timeout_s=timeout_s, env=self.environment)


def _result(update: JobUpdate, text: str | None) -> JobUpdateResult:
    if text is None:
        text = "scontrol stopped before it said what became of this update; it is not known to be done"
        return JobUpdateResult(update.job_id, text, answered=False)
    return JobUpdateResult(update.job_id, text, answered=not is_no_answer(text))
