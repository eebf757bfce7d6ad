"""Steps carried out in Slurm one after the other, and taken back where one fails."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from slurm_soda.slurm_ext import partitions as words
from slurm_soda.slurm_ext.cli.partitions import PartitionRecord
from slurm_soda.slurm_ext.cli.waiting import WaitingJob
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmError
from slurm_soda.slurm_ext.partitions import Step

_UNHEARD = ("timed out", "zero bytes")
"""Slurm's words, in small letters, where a request was sent and no answer came."""


class PartitionPort(Protocol):
    """What is asked of Slurm's partitions; :class:`~slurm_soda.slurm_ext.cli.partitions.CliPartitions` does it."""

    def partitions(self) -> dict[str, PartitionRecord]: ...

    def waiting(self, names: Collection[str]) -> dict[int, WaitingJob]: ...

    def create(self, name: str, settings: Mapping[str, str]) -> None: ...

    def update(self, name: str, settings: Mapping[str, str]) -> None: ...

    def delete(self, name: str) -> None: ...


class StuckError(SlurmError):
    """A step failed, and it is not known that everything is as it was before."""


def carry_out(port: PartitionPort, todo: Sequence[Step]) -> None:
    """Create and change partitions. Where a call fails, those before it are taken back, the last first.

    Raises:
        StuckError: not all could be taken back, or Slurm did not say whether it did the last one.
        SlurmError: Slurm refused a call; its partitions are as they were.
    """
    done: list[Step] = []
    for step in todo:
        made = 0
        try:
            for verb, settings in words.calls(step):
                (port.create if verb == "create" else port.update)(step.name, settings)
                made += 1
        except SlurmError as error:
            unheard = _unheard(error)
            stuck = [f"whether {step.name} was changed is not known"] if unheard else []
            # Of a step that was refused at once there is nothing to take back.
            stuck += _take_back(port, [*done, step] if made or unheard else done)
            if stuck:
                raise StuckError(
                    f"{error}; and not all is known to be as before: {'; '.join(stuck)}; run `sodactl arrays apply` again,"
                    " or `sodactl arrays revert`"
                ) from error
            raise SlurmError(f"nothing is changed: {error}") from error
        done.append(step)


def _unheard(error: SlurmError) -> bool:
    """Whether Slurm may have done, or may yet do, what failed."""
    return isinstance(error, SlurmCommandError) and (
        error.status is None or any(text in error.stderr.lower() for text in _UNHEARD)
    )


def _take_back(port: PartitionPort, done: Sequence[Step]) -> list[str]:
    """What could not be taken back."""
    stuck: list[str] = []
    for step in reversed(done):
        try:
            if step.verb == "update":
                port.update(step.name, {key: value for key, value in step.before.items() if value})
            elif step.name in port.partitions():
                port.delete(step.name)
        except SlurmError as error:
            stuck.append(str(error))
    return stuck
