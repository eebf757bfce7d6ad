"""What people change of what is known: written down with what it replaced, and undone in reverse order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.learning.profile_rows import row_columns
from slurm_soda.daemon.learning.quantities import QUANTITIES
from slurm_soda.daemon.store import kind_profiles as stored
from slurm_soda.daemon.store.tables.kind_profiles import ObservedJob, ProfileEdit, ProfileValueRow, StoredSlowdownModel
from slurm_soda.policies.sharing.job_kinds import Source
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileSubject, ProfileValue
from slurm_soda.slurm_ext.errors import SodaError


@dataclass(frozen=True, slots=True)
class ProfileEditor:
    """Who changes something, and when."""

    who: str
    now_s: float

    def set_value(self, session: Session, value: ProfileValue) -> int:
        """Set a value, which then goes before all other sources; gives the number of the edit.

        Raises:
            SodaError: there is no such quantity, or it may not have this value.
        """
        quantity = QUANTITIES.get(value.quantity)
        if quantity is None:
            raise SodaError(f"there is no quantity {value.quantity!r}; choose one of: {', '.join(QUANTITIES)}")
        if not quantity.allows(value.estimate.value):
            raise SodaError(f"{quantity.name} must be {quantity.allowed}, not {value.estimate.value:g}")
        if quantity.pair != bool(value.subject.partner):
            missing = (
                "needs the model beside it: --with MODEL" if quantity.pair else "is of one job alone: leave --with out"
            )
            raise SodaError(f"{quantity.name} {missing}")
        own = replace(
            value, estimate=replace(value.estimate, source=Source.SET), origin=f"set by {self.who}", at_s=self.now_s
        )
        shown = f"{value.quantity} = {value.estimate.value:g} of {subject_text(value.subject)}"
        return self._write(session, "set", shown, [own])

    def take_table(self, session: Session, values: Sequence[ProfileValue], origin: str) -> int:
        """Import values that were measured elsewhere; gives the number of the edit.

        What was imported before of the same things is replaced.
        """
        own = [
            replace(value, estimate=replace(value.estimate, source=Source.IMPORTED), origin=origin, at_s=self.now_s)
            for value in values
        ]
        return self._write(session, "import", f"{len(own)} values of {origin}", own)

    def take_model(self, session: Session, document: Mapping[str, Any], summary: str) -> int:
        """Keep a trained model in the place of the one before; gives the number of the edit."""
        old = stored.stored_slowdown_model(session)
        edit = self._record(session, "train", summary, [] if old is None else [old])
        if old is not None:
            session.delete(old)
            session.flush()
        session.add(StoredSlowdownModel(at_s=self.now_s, summary=summary, document=dict(document), edit_id=edit.id))
        session.flush()
        return edit.id

    def forget(
        self, session: Session, model: str, *, quantity: str | None = None, source: Source | None = None
    ) -> tuple[int, int]:
        """Forget values of a model, alone and with co-runners; gives the number of the edit, and of values.

        With measured values go the ended jobs that they are of, or the next one would bring them back.

        Raises:
            SodaError: there is nothing to forget.
        """
        about: list[ColumnElement[bool]] = [(ProfileValueRow.model == model) | (ProfileValueRow.partner == model)]
        if quantity is not None:
            about.append(ProfileValueRow.quantity == quantity)
        if source is not None:
            about.append(ProfileValueRow.source == int(source))
        values = session.scalars(select(ProfileValueRow).where(*about)).all()
        if not values:
            raise SodaError(
                f"nothing is known of {model} that could be forgotten; `sodactl profiles list` lists models"
            )
        gone: list[stored.UndoableRow] = list(values)
        if source in (None, Source.MEASURED) and quantity is None:
            gone += session.scalars(select(ObservedJob).where(ObservedJob.model == model)).all()
        edit = self._record(session, "forget", f"{len(values)} values of {model}", gone)
        for row in gone:
            session.delete(row)
        return edit.id, len(values)

    def undo(self, session: Session, edit_id: int | None = None) -> ProfileEdit:
        """Take the newest edit that stands back.

        Raises:
            SodaError: none stands, or a later one than this one does.
        """
        edit = stored.newest_standing_edit(session)
        if edit is None:
            raise SodaError("no edit stands that could be undone")
        if edit_id not in (None, edit.id):
            raise SodaError(
                f"edit {edit.id} is the newest that stands: undo that first; `sodactl profiles edits` lists them"
            )
        for kind in (ProfileValueRow, StoredSlowdownModel):
            session.execute(delete(kind).where(kind.edit_id == edit.id))
        for row in edit.before:
            # Jobs may have shown the same anew since: what stood before goes before it.
            again: stored.UndoableRow | None = None
            if row["table"] == ProfileValueRow.__tablename__:
                again = stored.find_value(session, row)
            elif row["table"] == ObservedJob.__tablename__:
                again = session.get(ObservedJob, row["job_pk"])
            if again is not None:
                session.delete(again)
        session.flush()
        stored.restore_rows(session, edit.before)
        edit.undone_s = self.now_s
        return edit

    def _write(self, session: Session, action: str, summary: str, values: Sequence[ProfileValue]) -> int:
        rows = [row_columns(value) for value in values]
        found = {
            tuple(getattr(row, name) for name in stored.VALUE_KEY_COLUMNS): row
            for row in session.scalars(select(ProfileValueRow))
        }
        replaced = [
            found[key] for row in rows if (key := tuple(row[name] for name in stored.VALUE_KEY_COLUMNS)) in found
        ]
        edit = self._record(session, action, summary, replaced)
        for row in replaced:
            session.delete(row)
        session.flush()
        session.add_all([ProfileValueRow(**row, edit_id=edit.id) for row in rows])
        session.flush()
        return edit.id

    def _record(self, session: Session, action: str, summary: str, before: Sequence[stored.UndoableRow]) -> ProfileEdit:
        edit = ProfileEdit(
            at_s=self.now_s,
            who=self.who,
            action=action,
            summary=summary,
            before=[stored.row_to_dict(row) for row in before],
            undone_s=None,
        )
        session.add(edit)
        session.flush()
        return edit


def subject_text(subject: ProfileSubject) -> str:
    """What a value is about, for people."""
    kind = subject.kind
    batch = f", batch {kind.batch}" if kind.batch else ""
    gpus = f" on {kind.gpus} GPUs" if kind.gpus > 1 else ""
    where = f" of type {kind.gpu_type}" if kind.gpu_type else ""
    other_batch = f", batch {subject.partner_batch}" if subject.partner_batch else ""
    beside = f" beside {subject.partner}{other_batch}" if subject.partner else ""
    return f"{kind.model or 'any model'}{batch}{gpus}{where}{beside}"
