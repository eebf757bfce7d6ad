"""Arrays made, changed and taken back in a running Slurm: recorded first, undone where a call fails.

Order matters, because slurmctld may restart at any moment, and jobs in a partition that it then does not find fail: a
partition is in the include file before it is in Slurm and until it has left it. Jobs are routed last, and stop being routed
first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from slurm_soda.policies.arrays.kinds import NodeClass, Share
from slurm_soda.policies.arrays.layout import ArrayTable
from slurm_soda.slurm_ext import partitions as words
from slurm_soda.slurm_ext.arrays import TABLE_NAME, ArraysRecord, read_record, record_document
from slurm_soda.slurm_ext.cli.partitions import PartitionRecord
from slurm_soda.slurm_ext.client import SlurmClient, Update
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmError
from slurm_soda.slurm_ext.partitions import Settings, Step
from slurm_soda.slurm_ext.routes import ROUTES_NAME, RoutingRules, render_routes
from slurm_soda.slurm_ext.statefiles import alone, remove, write_whole

LOCK_NAME = "arrays.lock"
_IN_USE = "in use"
"""Slurm's words about a partition that still holds jobs."""


class PartitionPort(Protocol):
    """What is asked of Slurm's partitions; :class:`~slurm_soda.slurm_ext.cli.partitions.CliPartitions` does it."""

    def partitions(self) -> dict[str, PartitionRecord]: ...

    def create(self, name: str, settings: Mapping[str, str]) -> None: ...

    def update(self, name: str, settings: Mapping[str, str]) -> None: ...

    def delete(self, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """Arrays as they shall be."""

    table: ArrayTable
    settings: Mapping[str, Settings]
    """By partition of the table, as Slurm is told."""
    shares: Mapping[NodeClass, Share]
    rules: RoutingRules
    bases: Mapping[str, Settings]
    """The divided partitions as Slurm shows them."""
    include_path: Path


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done."""

    steps: tuple[Step, ...]
    moved: tuple[int, ...] = ()
    """Waiting jobs whose list of partitions was changed."""
    leaving: tuple[str, ...] = ()
    """Partitions that stay until the jobs that run in them have ended."""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Arranger:
    """Changes arrays; one at a time, whoever calls."""

    slurm: SlurmClient
    partitions: PartitionPort
    state_dir: Path
    now_s: Callable[[], float]
    by: str

    def steps(self, wanted: Wanted, *, force: bool = False) -> list[Step]:
        """What :meth:`apply` would do.

        Raises:
            SlurmError: it would refuse: a name is taken, or somebody else changed a partition of ours.
        """
        return self._steps(read_record(self.state_dir), wanted, self.partitions.partitions(), force=force)

    def apply(self, wanted: Wanted, *, force: bool = False) -> Outcome:
        """Bring the arrays about; a second time nothing happens. Where a call fails, those before it are undone.

        Args:
            force: also overwrite what somebody else changed in our partitions.

        Raises:
            SlurmError: as for :meth:`steps`, or Slurm refused a call.
        """
        with alone(self.state_dir / LOCK_NAME):
            record = read_record(self.state_dir)
            present = self.partitions.partitions()
            todo = self._steps(record, wanted, present, force=force)
            old = {} if record is None else dict(record.sent)
            draft = ArraysRecord(
                "applying", wanted.table, wanted.shares, wanted.rules, {**old, **wanted.settings}, {},
                wanted.bases, str(wanted.include_path), self.now_s(), self.by,
            )  # fmt: skip
            try:
                self._write(draft)
            except SlurmError:
                self._restore(record, draft)
                raise
            self._carry_out([step for step in todo if step.verb != "retire"], record, draft)
            outcome = self._leave([step.name for step in todo if step.verb == "retire"], _bases(record))
            shown = self.partitions.partitions()
            sent = dict(wanted.settings) | {name: {**old[name], "State": "DRAIN"} for name in outcome.leaving}
            done = replace(
                draft, phase="applied", sent=sent, shown={n: dict(shown[n].fields) for n in sent if n in shown}
            )  # fmt: skip
            self._write(done)
            if record is not None and record.include_path != done.include_path:
                # Two files with the same partitions would keep slurmctld from starting.
                write_whole(Path(record.include_path), words.include_text({}))
            write_whole(self.state_dir / ROUTES_NAME, render_routes(done.table, done.rules))
            return replace(outcome, steps=tuple(todo))

    def revert(self, *, force: bool = False) -> Outcome:
        """Take the arrays back as far as possible now; to be run again for what still holds jobs.

        No job is ended: waiting ones go back to the base, running ones end where they are. Without arrays nothing is done.

        Raises:
            SlurmError: somebody else changed a partition of ours (and not ``force``), or Slurm does not answer.
        """
        with alone(self.state_dir / LOCK_NAME):
            record = read_record(self.state_dir)
            if record is None:
                return Outcome(())
            present = self.partitions.partitions()
            # Somebody who drains one of them wants what we want.
            self._refuse_changed(record, present, force=force, passing=("State",))
            remove(self.state_dir / ROUTES_NAME)
            self._write(replace(record, phase="reverting", changed_s=self.now_s(), by=self.by))
            ours = [name for name in record.sent if name in present]
            outcome = self._leave(ours, _bases(record))
            left = {name: {**record.sent[name], "State": "DRAIN"} for name in outcome.leaving}
            if left:
                shown = self.partitions.partitions()
                table = ArrayTable({part.name: part for part in record.table if part.name in left})
                self._write(replace(record, phase="reverting", table=table, sent=left, changed_s=self.now_s(), by=self.by,
                                    shown={name: dict(shown[name].fields) for name in left if name in shown}))  # fmt: skip
            else:
                write_whole(Path(record.include_path), words.include_text({}))
                remove(self.state_dir / TABLE_NAME)
            steps = tuple(Step("retire", name, {}, record.sent[name]) for name in ours)
            return replace(outcome, steps=steps)

    def _steps(
        self, record: ArraysRecord | None, wanted: Wanted, present: Mapping[str, PartitionRecord], *, force: bool
    ) -> list[Step]:
        ours = {} if record is None else {name: of for name, of in record.sent.items() if name in present}
        taken = words.strangers(wanted.table, {} if record is None else record.sent, present)
        if taken:
            raise SlurmError(
                f"partition {taken[0]} is there already and is not slurm-soda's; rename or delete it, then try again"
            )
        if record is not None:
            self._refuse_changed(record, present, force=force)
        if force:
            ours = {name: {key: present[name].fields.get(key, "") for key in of} for name, of in ours.items()}
        return words.steps(ours, wanted.settings)

    @staticmethod
    def _refuse_changed(
        record: ArraysRecord, present: Mapping[str, PartitionRecord], *, force: bool, passing: Sequence[str] = ()
    ) -> None:
        for name, shown in record.shown.items():
            changed = words.differences(shown, present[name].fields, passing=passing) if name in present else []
            if changed and not force:
                raise SlurmError(
                    f"partition {name} was changed by somebody else: {'; '.join(changed)};"
                    " put it back with scontrol, or say --force to overwrite it"
                )

    def _write(self, record: ArraysRecord) -> None:
        write_whole(self.state_dir / TABLE_NAME, json.dumps(record_document(record), indent=1) + "\n")
        write_whole(Path(record.include_path), words.include_text(record.sent))

    def _carry_out(self, todo: Sequence[Step], before: ArraysRecord | None, draft: ArraysRecord) -> None:
        done: list[Step] = []
        try:
            for step in todo:
                done.append(step)
                for verb, settings in words.calls(step):
                    (self.partitions.create if verb == "create" else self.partitions.update)(step.name, settings)
        except SlurmError as error:
            stuck = self._take_back(done)
            if stuck:
                raise SlurmError(
                    f"{error}; and not all could be taken back: {'; '.join(stuck)}; run `sodactl arrays revert`"
                ) from error
            self._restore(before, draft)
            raise SlurmError(f"nothing is changed: {error}") from error

    def _restore(self, before: ArraysRecord | None, draft: ArraysRecord) -> None:
        """The files as they were; one that cannot be written has not been written before either."""
        if before is not None:
            write_whole(self.state_dir / TABLE_NAME, json.dumps(record_document(before), indent=1) + "\n")
        else:
            remove(self.state_dir / TABLE_NAME)
        moved = before is None or before.include_path != draft.include_path
        with suppress(SlurmError):
            write_whole(Path(draft.include_path), words.include_text({} if moved or before is None else before.sent))

    def _take_back(self, done: Sequence[Step]) -> list[str]:
        """Undo steps, the last first; what could not be undone. The last one failed, so it may have done nothing."""
        stuck: list[str] = []
        for at, step in reversed(list(enumerate(done))):
            try:
                if step.verb == "create":
                    if step.name in self.partitions.partitions():
                        self.partitions.delete(step.name)
                else:
                    back = {key: value for key, value in step.before.items() if value}
                    self.partitions.update(step.name, back)
            except SlurmError as error:
                if at < len(done) - 1 or step.verb == "create":
                    stuck.append(str(error))
        return stuck

    def _leave(self, names: Sequence[str], bases: Mapping[str, str]) -> Outcome:
        """Empty and delete partitions; those with running jobs are drained and stay."""
        moved, problems = self._move(names, bases) if names else ([], [])
        leaving: list[str] = []
        for name in names:
            with suppress(SlurmCommandError):  # without it a job could still come; the deletion tells
                self.partitions.update(name, {"State": "DRAIN"})
            try:
                self.partitions.delete(name)
            except SlurmCommandError as error:
                leaving.append(name)
                if _IN_USE not in error.stderr:
                    problems.append(str(error))
        return Outcome((), tuple(moved), tuple(leaving), tuple(problems))

    def _move(self, names: Collection[str], bases: Mapping[str, str]) -> tuple[list[int], list[str]]:
        """Waiting jobs out of partitions that go."""
        updates = []
        for job in self.slurm.jobs():
            listed = job.partition.split(",")
            gone = [name for name in listed if name in names]
            if job.state == "PENDING" and gone:
                stay = [name for name in listed if name not in names] or [bases[gone[0]]]
                updates.append(Update(job.job_id, (("Partition", ",".join(stay)),)))
        results = self.slurm.update(updates) if updates else []
        moved = [result.job_id for result in results if not result.error]
        return moved, [f"job {result.job_id}: {result.error}" for result in results if result.error]


def _bases(record: ArraysRecord | None) -> dict[str, str]:
    """The base of every partition that we made."""
    if record is None:
        return {}
    known = {part.name: part.base for part in record.table}
    # One that was leaving already is in no table; jobs are rarely in two bases' arrays, and any base will take them.
    return {name: known.get(name, next(iter(record.bases))) for name in record.sent}
