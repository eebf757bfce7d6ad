"""Changes made by hand with sodactl: sent to Slurm, and recorded like the daemon's own, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.tables.scheduling import Action
from slurm_soda.slurm_ext.client import SlurmClient
from slurm_soda.slurm_ext.write.job_changes import JobChange
from slurm_soda.slurm_ext.write.sending import JobChangeResult, apply_changes

UNDO_KIND = "undo"
"""Kind of a recorded change that takes another one back; not itself something to undo."""


@dataclass(frozen=True, slots=True)
class ManualChange:
    """One change to make, of the job submitted at ``submit_s``; ``undoes`` names the action that it takes back."""

    change: JobChange
    submit_s: float
    undone_action_id: int | None = None


def record_intended(store: Store, wanted: Sequence[ManualChange], now_s: float) -> list[int]:
    """Record the changes before they are sent, so that no crash hides them; their action ids."""
    actions = [_intended_action(entry, now_s) for entry in wanted]
    with store.write() as session:
        session.add_all(actions)
        session.flush()
        return [action.id for action in actions]


def _intended_action(entry: ManualChange, now_s: float) -> Action:
    change = entry.change
    return Action(
        job_id=change.job_id,
        submit_s=entry.submit_s,
        kind=change.kind if entry.undone_action_id is None else UNDO_KIND,
        new=dict(change.new),
        old=dict(change.old),
        reason=change.reason,
        state="intended",
        created_s=now_s,
    )


def record_results(
    store: Store,
    wanted: Sequence[ManualChange],
    action_ids: Sequence[int],
    results: Sequence[JobChangeResult],
    now_s: float,
) -> None:
    """Record what became of them; what they take back becomes ``undone`` where Slurm took the change."""
    with store.write() as session:
        for entry, action_id, result in zip(wanted, action_ids, results, strict=True):
            action = session.get_one(Action, action_id)
            action.state = "failed" if result.error else "done"
            action.error, action.finished_s = result.error, now_s
            if entry.undone_action_id is not None and not result.error:
                session.get_one(Action, entry.undone_action_id).state = "undone"


def send_manual_changes(
    store: Store | None, client: SlurmClient, wanted: Sequence[ManualChange], now_s: float
) -> list[JobChangeResult]:
    """Send changes in order, recorded when there is a store to record them in."""
    changes = [entry.change for entry in wanted]
    if store is None or not wanted:
        return apply_changes(client, changes)
    action_ids = record_intended(store, wanted, now_s)
    results = apply_changes(client, changes)
    record_results(store, wanted, action_ids, results, now_s)
    return results


def format_fields(fields: Mapping[str, str]) -> str:
    """Fields on one line, in Slurm's words."""
    return " ".join(f"{name}={value}" for name, value in fields.items())
