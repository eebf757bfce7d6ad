"""What commands take as arguments: job ids, names, finite numbers, and names of lists that are long to import."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

MOST_JOB_ID = 2**32 - 1
"""Slurm's own limit."""
MOST_ROWS = 10**9
"""More rows, and higher numbers of rows, no store has."""


class OneOf(click.ParamType[str]):
    """A name of a list that is imported when it is needed."""

    def __init__(self, name: str, names: Callable[[], Sequence[str]]) -> None:
        self.name, self._names = name, names

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name itself, if it is one."""
        from slurm_soda.policies.errors import no_such  # noqa: PLC0415 - only where names are needed

        names = self._names()
        if value not in names:
            self.fail(no_such(self.name, value, names), param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names by prefix."""
        del ctx, param
        return [CompletionItem(name) for name in self._names() if name.startswith(incomplete)]


def _policy_names() -> Sequence[str]:
    from slurm_soda.policies.registry.catalog import policy_names  # noqa: PLC0415 - all policies, and numpy

    return policy_names()


POLICY = OneOf("policy", _policy_names)


_TASK = re.compile(r"[1-9][0-9]{0,9}_[0-9]{1,9}")


class _JobId(click.ParamType[int]):
    """A job's number, or ``14_2``, a task of an array that Slurm lists; says what to give instead of anything else."""

    name = "job id"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        text = str(value).strip()
        if text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_JOB_ID:
            return int(text)
        if _TASK.fullmatch(text):
            return self._number_of(text, param, ctx)
        remedy = "give its number, such as 4711; `sodactl jobs` lists jobs"
        return self.fail(f"{value!r} is not a valid job id; {remedy}", param, ctx)

    def _number_of(self, task: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Each task has a number of its own once it no longer waits with others; the last one has the array's."""
        from slurm_soda.daemon.config import Settings  # noqa: PLC0415 - few ask for a task
        from slurm_soda.slurm_ext.errors import SlurmError  # noqa: PLC0415 - the same
        from slurm_soda.sodactl.site_access import CommandContext  # noqa: PLC0415 - the same

        outside = (ctx.find_object(CommandContext) if ctx else None) or CommandContext()
        array, _, index = task.partition("_")
        try:
            tasks = {
                job.array_task: job for job in outside.connect(Settings()).jobs() if job.array_job_id == int(array)
            }
        except SlurmError as error:
            return self.fail(f"{task} is a task of an array, and Slurm is asked for its number: {error}", param, ctx)
        if index in tasks:
            return tasks[index].job_id
        rest = next((name for name, job in tasks.items() if job.array_rest), "")
        told = (
            f"tasks {rest} of it wait as one job; {array} means whichever of them comes first"
            if rest
            else ("give the number that it had; `sodactl history` lists jobs")
        )
        return self.fail(f"Slurm lists no task {index} of array {array} alone: {told}", param, ctx)


JOB_ID = _JobId()


class _StoredName(click.ParamType[str]):
    """A name that a store can be asked for."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name itself, if it is text."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail(f"{value!r} is no name: it must be UTF-8", param, ctx)
        return value


STORED_NAME = _StoredName()


class FiniteRange(click.FloatRange):
    """A number in a range, but neither NaN, which is in every range of click's, nor infinite."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number
