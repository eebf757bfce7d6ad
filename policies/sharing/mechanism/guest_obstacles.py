"""Which waiting jobs can be guests at all, and who may meet whom, by the columns of a snapshot alone."""

from __future__ import annotations

from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import UnknownNodes


def find_guest_obstacle(snapshot: SharingSnapshot, row: int) -> str:
    """Why a job's request cannot be made that of a guest, whoever its host would be; a clause for people, empty if it can.

    A guest is sent to nodes by name. So nodes that would do must be known, and others may be there.
    """
    jobs, sharing = snapshot.jobs, snapshot.sharing
    obstacle = int(sharing.obstacle[row])
    if obstacle >= 0:
        return sharing.obstacles[obstacle]
    if len(jobs.unknown_nodes) and jobs.unknown_nodes[row] != UnknownNodes.KNOWN:
        return "nobody knows which nodes would do for it"
    if len(jobs.whole_nodes) and jobs.whole_nodes[row]:
        return "it wants whole nodes"
    return ""


def may_meet(snapshot: SharingSnapshot, one: int, other: int) -> bool:
    """Whether two jobs may be on one GPU, as far as it is about their users."""
    user, meets_others = snapshot.jobs.user, snapshot.sharing.meets_others
    allowed = snapshot.mechanism.different_users or user[one] == user[other]
    return bool(allowed or (meets_others[one] and meets_others[other]))
