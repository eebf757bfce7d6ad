"""Pools made, changed and taken back in a running Slurm: recorded first, undone where a call fails.

Order matters, because slurmctld may restart at any moment, and jobs in a partition that it then does not find fail: a
partition is in the include file before it is in Slurm and until it has left it. Jobs are routed to partitions once all are
there, and to others before any goes; to one that changes, what it can hold in both forms.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_soda.policies.pipeline.actions import RouteJob
from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.layout.partitions import PoolTable
from slurm_soda.slurm_ext.client import SlurmClient
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmError
from slurm_soda.slurm_ext.pools import partition_settings as words
from slurm_soda.slurm_ext.pools.partition_settings import PartitionChange, PartitionSettings
from slurm_soda.slurm_ext.pools.partition_transaction import (
    IncompleteRollbackError,
    PartitionClient,
    apply_partition_changes,
)
from slurm_soda.slurm_ext.pools.pools_record import POOLS_RECORD_NAME, PoolsRecord, read_record, record_document
from slurm_soda.slurm_ext.pools.routes_file import ROUTES_NAME, RoutingRules, render_routes
from slurm_soda.slurm_ext.pools.scontrol_partitions import SlurmPartition
from slurm_soda.slurm_ext.pools.state_files import hold_lock, remove_state_file, write_state_file
from slurm_soda.slurm_ext.pools.waiting_jobs import reroute_stranded_jobs
from slurm_soda.slurm_ext.read.slurm_values import parse_integer
from slurm_soda.slurm_ext.write.job_changes import route_change
from slurm_soda.slurm_ext.write.sending import SendRecorded

POOLS_LOCK_NAME = "pools.lock"
_IN_USE = "in use"
"""Slurm's words about a partition that still holds jobs."""


@dataclass(frozen=True, slots=True)
class WantedPools:
    """Pools as they shall be."""

    table: PoolTable
    settings: Mapping[str, PartitionSettings]
    """By partition of the table, as Slurm is told."""
    shares: Mapping[NodeClass, PoolShare]
    rules: RoutingRules
    bases: Mapping[str, PartitionSettings]
    """The divided partitions as Slurm shows them."""
    include_path: Path


@dataclass(frozen=True, slots=True)
class PoolChangeOutcome:
    """What was done."""

    steps: tuple[PartitionChange, ...]
    moved: tuple[int, ...] = ()
    """Waiting jobs whose list of partitions was changed."""
    held_back: int = 0
    """Waiting jobs to be moved that the change limits held back: apply again."""
    leaving: tuple[str, ...] = ()
    """Partitions that stay until the jobs that run in them have ended."""
    problems: tuple[str, ...] = ()
    record_removed: bool = False
    """Routes and record, which were there, are gone: the pools are taken back as a whole."""


@dataclass(frozen=True)
class PoolInstaller:
    """Changes pools; one at a time, whoever calls."""

    slurm: SlurmClient
    partitions: PartitionClient
    state_dir: Path
    now_s: Callable[[], float]
    by: str
    send: SendRecorded
    """How waiting jobs are moved."""

    def steps(self, wanted: WantedPools, *, force: bool = False) -> list[PartitionChange]:
        """What :meth:`apply` would do.

        Raises:
            SlurmError: it would refuse: a name is taken, or somebody else changed a partition of ours.
        """
        return self._steps(read_record(self.state_dir), wanted, self.partitions.partitions(), force=force)

    def apply(self, wanted: WantedPools, *, force: bool = False) -> PoolChangeOutcome:
        """Bring the pools about; a second time nothing happens. Where a call fails, those before it are undone.

        One that was cut short is finished, whatever it had done. Waiting jobs that their partitions can no longer hold are
        routed anew, or go back to their base.

        Args:
            force: also overwrite what somebody else changed in our partitions.

        Raises:
            IncompleteRollbackError: Slurm refused or did not answer, and not everything is known to be as it was.
            SlurmError: as for :meth:`steps`, or Slurm refused a call.
        """
        with hold_lock(self.state_dir / POOLS_LOCK_NAME):
            record = read_record(self.state_dir)
            present = self.partitions.partitions()
            todo = self._steps(record, wanted, present, force=force)
            old = {} if record is None else dict(record.sent)
            base_of = ({} if record is None else dict(record.base_of)) | {part.name: part.base for part in wanted.table}
            draft = PoolsRecord(
                "applying",
                wanted.table,
                wanted.shares,
                wanted.rules,
                {**old, **wanted.settings},
                {},
                wanted.bases,
                base_of,
                str(wanted.include_path),
                self.now_s(),
                self.by,
            )
            if todo and record is not None and record.phase != "reverting":
                # sbatch is refused where a job is routed to what cannot hold it.
                self._write_routes(_table_during_change(draft.table, present), draft.rules)
            self._prepare(record, draft, [step for step in todo if step.verb != "retire"])
            # From here on jobs go by the new pools: those submitted meanwhile must not wait in what goes.
            self._write_routes(draft.table, draft.rules)
            outcome = self._leave(draft, [step.name for step in todo if step.verb == "retire"])
            shown = self.partitions.partitions()
            sent = dict(wanted.settings) | {name: {**old[name], "State": "DRAIN"} for name in outcome.leaving}
            done = replace(
                draft,
                # A sodad that is killed before it has moved all waiting jobs leaves the rest to the next one.
                phase="applying" if outcome.held_back else "applied",
                sent=sent,
                base_of={name: base_of[name] for name in sent},
                shown={name: dict(shown[name].fields) for name in sent if name in shown},
            )
            self._write(done)
            return replace(outcome, steps=tuple(todo))

    def revert(self, *, force: bool = False) -> PoolChangeOutcome:
        """Take the pools back as far as possible now; to be run again for what still holds jobs.

        No job is ended: waiting ones go back to the base, running ones end where they are. Without pools nothing is done.

        Raises:
            SlurmError: somebody else changed a partition of ours (and not ``force``), or Slurm does not answer.
        """
        with hold_lock(self.state_dir / POOLS_LOCK_NAME):
            record = read_record(self.state_dir)
            if record is None:
                return PoolChangeOutcome(())
            present = self.partitions.partitions()
            # Somebody who drains one of them wants what we want.
            self._refuse_changed(record, present, force=force, passing=("State",))
            remove_state_file(self.state_dir / ROUTES_NAME)
            draft = replace(record, phase="reverting", table=PoolTable(), changed_s=self.now_s(), by=self.by)
            self._write(replace(draft, table=record.table))
            ours = [name for name in record.sent if name in present]
            outcome = self._leave(draft, ours)
            left = {name: {**record.sent[name], "State": "DRAIN"} for name in outcome.leaving}
            if left:
                shown = self.partitions.partitions()
                table = PoolTable({part.name: part for part in record.table if part.name in left})
                self._write(
                    replace(
                        draft,
                        table=table,
                        sent=left,
                        changed_s=self.now_s(),
                        base_of={name: draft.base_of[name] for name in left},
                        shown={name: dict(shown[name].fields) for name in left if name in shown},
                    )
                )
            else:
                self._write_include(record.include_path, {})
                remove_state_file(self.state_dir / POOLS_RECORD_NAME)
            steps = tuple(PartitionChange("retire", name, {}, record.sent[name]) for name in ours)
            return replace(outcome, steps=steps, record_removed=not left)

    def _steps(
        self, record: PoolsRecord | None, wanted: WantedPools, present: Mapping[str, SlurmPartition], *, force: bool
    ) -> list[PartitionChange]:
        render_routes(wanted.table, wanted.rules)  # refuses pools that lua could not read
        ours = {} if record is None else {name: of for name, of in record.sent.items() if name in present}
        taken = words.find_foreign_partitions(wanted.table, {} if record is None else record.sent, present)
        if taken:
            raise SlurmError(
                f"partition {taken[0]} is there already and is not slurm-soda's; rename or delete it, then try again"
            )
        if record is not None:
            # One that was cut short may have drained some.
            passing = ("State",) if record.phase == "reverting" else ()
            self._refuse_changed(record, present, force=force, passing=passing)
            if force or record.phase != "applied":
                # What we meant to do says nothing about what was done.
                ours = {name: words.settings_of_partition(present[name]) for name in ours}
        return words.plan_partition_changes(ours, wanted.settings)

    @staticmethod
    def _refuse_changed(
        record: PoolsRecord, present: Mapping[str, SlurmPartition], *, force: bool, passing: Sequence[str] = ()
    ) -> None:
        for name, shown in record.shown.items():
            changed = (
                words.list_foreign_changes(shown, present[name].fields, passing=passing) if name in present else []
            )
            if changed and not force:
                # Nodes that Slurm no longer has cannot be put back.
                nodes = any(text.startswith("Nodes") for text in changed)
                remedy = "say --force to make it anew from the nodes that there are, or " if nodes else ""
                overwrite = "" if nodes else ", or say --force to overwrite it"
                raise SlurmError(
                    f"partition {name} was changed by somebody else: {'; '.join(changed)};"
                    f" {remedy}put it back with scontrol{overwrite}"
                )

    def _prepare(self, before: PoolsRecord | None, draft: PoolsRecord, todo: Sequence[PartitionChange]) -> None:
        """Record what is to be, and have Slurm make it; where that fails, the files are as they were."""
        try:
            if elsewhere := _record_with_other_include(before, draft):
                # Two files with the same partitions would keep slurmctld from starting. The record names the first until
                # it is empty.
                self._write_include(draft.include_path, draft.sent)
                self._write_include(elsewhere.include_path, {})
            self._write(draft)
            apply_partition_changes(self.partitions, todo)
        except IncompleteRollbackError:
            raise  # the record says that some of it may be there
        except SlurmError:
            self._restore(before, draft)
            raise

    def _write(self, record: PoolsRecord) -> None:
        text = words.include_text(record.sent)
        write_state_file(self.state_dir / POOLS_RECORD_NAME, json.dumps(record_document(record), indent=1) + "\n")
        write_state_file(Path(record.include_path), text, beside=self.state_dir)

    def _write_routes(self, table: PoolTable, rules: RoutingRules) -> None:
        write_state_file(self.state_dir / ROUTES_NAME, render_routes(table, rules))

    def _write_include(self, path: str, partitions: Mapping[str, PartitionSettings]) -> None:
        """The path is what the state directory's owner says it is."""
        write_state_file(Path(path), words.include_text(partitions), beside=self.state_dir)

    def _restore(self, before: PoolsRecord | None, draft: PoolsRecord) -> None:
        """The files as they were; one that cannot be written has not been written before either."""
        if before is not None:
            write_state_file(self.state_dir / POOLS_RECORD_NAME, json.dumps(record_document(before), indent=1) + "\n")
        else:
            remove_state_file(self.state_dir / POOLS_RECORD_NAME)
        if before is not None and before.phase == "applied":
            self._write_routes(before.table, before.rules)
        elsewhere = _record_with_other_include(before, draft)
        with suppress(SlurmError):
            self._write_include(draft.include_path, {} if before is None or elsewhere else before.sent)
        if elsewhere:
            with suppress(SlurmError):
                self._write_include(elsewhere.include_path, elsewhere.sent)

    def _leave(self, draft: PoolsRecord, names: Sequence[str]) -> PoolChangeOutcome:
        """Empty and delete partitions that go; those with running jobs are drained and stay.

        Waiting jobs are moved out of them, and out of those that cannot hold them any more.
        """
        for name in names:
            with suppress(SlurmCommandError):  # without it a job could still come; the deletion tells
                self.partitions.update(name, {"State": "DRAIN"})
        moved, held_back, problems = self._move(draft)
        leaving: list[str] = []
        for name in names:
            try:
                self.partitions.delete(name)
            except SlurmCommandError as error:
                leaving.append(name)
                if _IN_USE not in error.stderr:
                    problems.append(str(error))
        return PoolChangeOutcome((), tuple(moved), held_back, tuple(leaving), tuple(problems))

    def _move(self, draft: PoolsRecord) -> tuple[list[int], int, list[str]]:
        """Waiting jobs to where they can start: those moved, how many the change limits held back, and problems."""
        waiting = self.partitions.waiting(list(draft.base_of))
        jobs = {job.job_id: job for job in self.slurm.jobs()}
        lists = reroute_stranded_jobs(draft.table, draft.rules, draft.base_of, jobs.values(), waiting)
        why = (
            "the pools are taken back"
            if draft.phase == "reverting"
            else "its pool changed and may not hold it any more"
        )
        changes = [
            route_change(RouteJob(job_id, why, partitions=names, before=jobs[job_id].partition))
            for job_id, names in lists.items()
        ]
        results = self.send(changes, jobs)
        moved = [result.change.job_id for result in results if not result.error]
        problems = [f"job {result.change.job_id}: {result.error}" for result in results if result.error]
        return moved, len(changes) - len(results), problems


def _record_with_other_include(before: PoolsRecord | None, after: PoolsRecord) -> PoolsRecord | None:
    """The record before, if its partitions are in another include file."""
    return before if before is not None and before.include_path != after.include_path else None


def _table_during_change(table: PoolTable, present: Mapping[str, SlurmPartition]) -> PoolTable:
    """What each partition can hold before its change and after it; of one that is not there yet nothing."""
    found = {}
    for part in table:
        if part.name in present:
            limit, nodes = present[part.name].fields.get("MaxCPUsPerNode", ""), set(present[part.name].nodes)
            cores = min(part.most_cores, parse_integer(limit, "a limit")) if limit.isdecimal() else part.most_cores
            staying = tuple(name for name in part.nodes if name in nodes)
            found[part.name] = replace(part, cores_per_node=cores, nodes=staying)
    return PoolTable(found)
