"""Changes made by hand with sodactl: sent to Slurm, and recorded like the daemon's own, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.schema import Action
from slurm_soda.slurm_ext import actuator
from slurm_soda.slurm_ext.actuator import Change, ChangeResult
from slurm_soda.slurm_ext.client import SlurmClient

UNDO = "undo"
"""Kind of a recorded change that takes another one back; not itself something to undo."""


@dataclass(frozen=True, slots=True)
class ByHand:
    """One change to make, of the job submitted at ``submit_s``; ``undoes`` names the action that it takes back."""

    change: Change
    submit_s: float
    undoes: int | None = None


def intend(store: Store, wanted: Sequence[ByHand], now_s: float) -> list[int]:
    """Record the changes before they are sent, so that no crash hides them; their action ids."""
    actions = [_intended(entry, now_s) for entry in wanted]
    with store.write() as session:
        session.add_all(actions)
        session.flush()
        return [action.id for action in actions]


def _intended(entry: ByHand, now_s: float) -> Action:
    change = entry.change
    return Action(
        job_id=change.job_id, submit_s=entry.submit_s, kind=change.kind if entry.undoes is None else UNDO,
        new=dict(change.new), old=dict(change.old), reason=change.reason, state="intended", created_s=now_s,
    )  # fmt: skip


def conclude(
    store: Store, wanted: Sequence[ByHand], action_ids: Sequence[int], results: Sequence[ChangeResult], now_s: float
) -> None:
    """Record what became of them; what they take back becomes ``undone`` where Slurm took the change."""
    with store.write() as session:
        for entry, action_id, result in zip(wanted, action_ids, results, strict=True):
            action = session.get_one(Action, action_id)
            action.state = "failed" if result.error else "done"
            action.error, action.finished_s = result.error, now_s
            if entry.undoes is not None and not result.error:
                session.get_one(Action, entry.undoes).state = "undone"


def make(store: Store | None, client: SlurmClient, wanted: Sequence[ByHand], now_s: float) -> list[ChangeResult]:
    """Send changes in order, recorded when there is a store to record them in."""
    changes = [entry.change for entry in wanted]
    if store is None or not wanted:
        return actuator.apply(client, changes)
    action_ids = intend(store, wanted, now_s)
    results = actuator.apply(client, changes)
    conclude(store, wanted, action_ids, results, now_s)
    return results


def fields_text(fields: Mapping[str, str]) -> str:
    """Fields on one line, in Slurm's words."""
    return " ".join(f"{name}={value}" for name, value in fields.items())
