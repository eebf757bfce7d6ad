"""Steps carried out in Slurm one after the other, and taken back where one fails."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmError
from slurm_soda.slurm_ext.pools import partition_settings as words
from slurm_soda.slurm_ext.pools.partition_settings import PartitionChange
from slurm_soda.slurm_ext.pools.scontrol_partitions import SlurmPartition
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob


class PartitionClient(Protocol):
    """What is asked of Slurm's partitions;
    :class:`~slurm_soda.slurm_ext.pools.scontrol_partitions.ScontrolPartitions` does it.
    """

    def partitions(self) -> dict[str, SlurmPartition]: ...

    def waiting(self, names: Collection[str]) -> dict[int, WaitingJob]: ...

    def create(self, name: str, settings: Mapping[str, str]) -> None: ...

    def update(self, name: str, settings: Mapping[str, str]) -> None: ...

    def delete(self, name: str) -> None: ...


class IncompleteRollbackError(SlurmError):
    """A step failed, and it is not known that everything is as it was before."""


def apply_partition_changes(port: PartitionClient, todo: Sequence[PartitionChange]) -> None:
    """Create and change partitions. Where a call fails, those before it are taken back, the last first.

    Raises:
        IncompleteRollbackError: not all could be taken back, or Slurm did not say whether it did the last one.
        SlurmError: Slurm refused a call; its partitions are as they were.
    """
    done: list[PartitionChange] = []
    for step in todo:
        made = 0
        try:
            for verb, settings in words.split_into_calls(step):
                (port.create if verb == "create" else port.update)(step.name, settings)
                made += 1
        except SlurmError as error:
            unheard = isinstance(error, SlurmCommandError) and error.may_have_happened
            stuck = [f"whether {step.name} was changed is not known"] if unheard else []
            # Of a step that was refused at once there is nothing to take back.
            stuck += _roll_back(port, [*done, step] if made or unheard else done)
            if stuck:
                raise IncompleteRollbackError(
                    f"{error}; and not all is known to be as before: {'; '.join(stuck)}; run `sodactl pools apply` again,"
                    " or `sodactl pools revert`"
                ) from error
            raise SlurmError(f"nothing is changed: {error}") from error
        done.append(step)


def _roll_back(port: PartitionClient, done: Sequence[PartitionChange]) -> list[str]:
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
