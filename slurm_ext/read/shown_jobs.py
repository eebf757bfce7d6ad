"""What ``scontrol show job`` tells of jobs, as JSON or, where this Slurm writes none, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from slurm_soda.slurm_ext.client import Allocation
from slurm_soda.slurm_ext.errors import OutputTooLongError, SlurmCommandError, SlurmReplyError
from slurm_soda.slurm_ext.read.asking import AskingCommands, failure
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
from slurm_soda.slurm_ext.read.job_request import JobRequest
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.scontrol_allocation import (
    SHOW_JOBS_COMMAND,
    parse_allocations,
    parse_array_throttles,
    parse_extras,
    show_jobs_script,
)
from slurm_soda.slurm_ext.read.scontrol_request import parse_request, show_job_command
from slurm_soda.slurm_ext.read.scontrol_text import (
    SHOW_JOBS_AS_TEXT,
    parse_allocations_from_text,
    parse_request_from_text,
    show_job_as_text,
    show_jobs_as_text_script,
)

_Told = TypeVar("_Told")


@dataclass(frozen=True, slots=True)
class ShownJobs:
    """Jobs as scontrol shows them."""

    ask: AskingCommands
    capabilities: CommandCapabilities

    def allocations(self, job_ids: Sequence[int], shared_gres: str) -> dict[int, Allocation | SlurmReplyError]:
        """What each running job holds; ``shared_gres`` is the GRES that guests have."""
        return self._as_json_or_text(
            lambda: self._show(job_ids, lambda stdout: parse_allocations(stdout, job_ids, shared_gres)),
            lambda: self._allocations_from_text(job_ids),
        )

    def extras(self, job_ids: Sequence[int]) -> dict[int, str | SlurmReplyError]:
        """The Extra field of each."""
        return self._show(job_ids, lambda stdout: parse_extras(stdout, job_ids))

    def array_throttles(self, arrays: Sequence[int]) -> dict[int, int | SlurmReplyError]:
        """How many tasks of each array may run at a time."""
        return self._show(arrays, lambda stdout: parse_array_throttles(stdout, arrays))

    def request(self, job_id: int) -> JobRequest:
        """What a waiting job asks for, and what is peculiar about it."""
        framing = self.ask.framing()

        def exclusive() -> ExclusiveNodes:
            said = self.ask.whole(exclusive_command(job_id), framing, exclusive_environment(framing))
            return parse_exclusive_job(said, framing, job_id)

        request = self._as_json_or_text(
            lambda: parse_request(self.ask.whole(show_job_command(job_id), framing), framing, job_id, exclusive),
            lambda: parse_request_from_text(self.ask.whole(show_job_as_text(job_id), framing), framing, job_id),
        )
        if request.peculiar:
            return request
        return replace(request, peculiar=self._peculiar_script(job_id, framing, request.tasks))

    def _peculiar_script(self, job_id: int, framing: ReplyFraming, tasks: int) -> str:
        try:
            most_bytes = MAX_SCRIPT_BYTES + len(framing.end)
            said = self.ask.whole(show_script_command(job_id), framing, most_bytes=most_bytes)
        except OutputTooLongError:
            return SCRIPT_TOO_LONG
        except SlurmCommandError as error:
            if error.status is None:
                raise
            return "a script that cannot be read"
        return steps_own_cpus(parse_script(said, framing, job_id), tasks)

    def _allocations_from_text(self, job_ids: Sequence[int]) -> dict[int, Allocation | SlurmReplyError]:
        nonce = self.ask.nonce()
        return self._show(
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

    def _show(
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
        said = self.ask.run(command, show_jobs_script(job_ids) if script is None else script)
        found = parse(said.stdout)
        if said.status != 0 and all(isinstance(answer, SlurmReplyError) for answer in found.values()):
            raise failure(said.argv, said)
        return found
