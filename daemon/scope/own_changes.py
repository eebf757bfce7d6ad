"""What of a job's recorded changes Slurm still shows, each with the change that takes it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from slurm_soda.daemon.store.audit_log import UNSETTLED_STATES
from slurm_soda.daemon.store.settlement import is_shown, shown_fields
from slurm_soda.daemon.store.tables.scheduling import Action
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.write.job_changes import ARRAY_TASK, JobChange, lease_end_change

_NO_REQUEST = frozenset({"SiteFactor", "StartTime", ARRAY_TASK})
"""Fields of changes that say nothing of what a job asks for."""


class OwnChange(NamedTuple):
    """A change that takes another one back."""

    action_id: int
    """The one that it takes back."""
    change: JobChange


def find_own_changes(
    job: SlurmJob, actions: Sequence[Action], site_factors: Mapping[int, int], reason: str
) -> tuple[list[OwnChange], bool]:
    """What takes back all that is in force of a waiting job, and whether the outcome of each change is known.

    Only what Slurm shows as it was written is taken back: what somebody else has changed since is his. A lift ends with
    SiteFactor 0, whatever was there before the first one: that was ours as well, or 0.

    Args:
        job: the job.
        actions: its orders, rewrites and leases in force, newest first; those of another job of its id are passed over.
        site_factors: as Slurm tells them.
        reason: why it is not in scope.
    """
    own = [action for action in actions if job.was_submitted_at(action.submit_s)]
    settled = not any(action.state in UNSETTLED_STATES for action in own)
    shown = shown_fields(job, site_factors)
    text = f"{reason}: what was changed before is taken back"
    found = []
    lifted = next((action for action in own if "SiteFactor" in action.new), None)
    if lifted is not None and lifted.new["SiteFactor"] == shown.get("SiteFactor", "0") != "0":
        fields = {"SiteFactor": "0"}, {"SiteFactor": shown["SiteFactor"]}
        found.append(OwnChange(lifted.id, JobChange(job.job_id, "release", *fields, text, f"scope:{lifted.id}")))
    lease = next((action for action in own if action.new.get("StartTime", "").startswith("uts")), None)
    if lease is not None and job.eligible_s == float(lease.new["StartTime"].removeprefix("uts")):
        found.append(OwnChange(lease.id, lease_end_change(job, text, f"scope:{lease.id}")))
    for action in own:
        wrote = {name: value for name, value in action.new.items() if name not in _NO_REQUEST and name in action.old}
        if action.kind != "rewrite" or not wrote or is_shown(wrote, shown) is False:
            continue
        restored = {name: action.old[name] for name in wrote}
        change = JobChange(job.job_id, "rewrite", restored, wrote, text, f"scope:request:{action.id}")
        found.append(OwnChange(action.id, change))
        shown |= {name: value for name, value in restored.items() if name in shown}
    return found, settled
