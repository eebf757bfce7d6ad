"""Slurm's job states and waiting reasons, and what they mean for a policy. Source: Slurm's squeue manual."""

from __future__ import annotations

from slurm_soda.policies.snapshot import JobState

ENDED_STATES = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
     "LAUNCH_FAILED", "REVOKED"}
)  # fmt: skip
"""The job holds nothing and never will again."""

RUN_TIME_STATES = frozenset({"CANCELLED", "COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT"})
"""Ends that show how long a job holds its GPUs: also of those that fail early, which is what their like will do."""

ENDED_FOR_GOOD = RUN_TIME_STATES | {"BOOT_FAIL", "DEADLINE"}
"""States of a run after which Slurm does not start the job again by itself."""

_LIVE_STATES = {
    "PENDING": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "CONFIGURING": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "SUSPENDED": JobState.SUSPENDED,
    "STOPPED": JobState.SUSPENDED,
    "COMPLETING": JobState.COMPLETING,
    "STAGE_OUT": JobState.COMPLETING,
    "POWER_UP_NODE": JobState.RUNNING,
    "UPDATE_DB": JobState.BLOCKED,
    "EXPEDITING": JobState.BLOCKED,
    "REQUEUED": JobState.BLOCKED,
    "REQUEUE_FED": JobState.BLOCKED,
    "REQUEUE_HOLD": JobState.BLOCKED,
    "SPECIAL_EXIT": JobState.BLOCKED,
    "RESV_DEL_HOLD": JobState.BLOCKED,
}

KNOWN_STATES = frozenset(_LIVE_STATES) | ENDED_STATES
"""Every state that a reply may hold; another one makes the reply unreadable."""

_ELIGIBLE_REASONS = frozenset({"", "None", "Priority", "Resources", "NodeDown", "ReqNodeNotAvail"})


def waits_for_resources(reason: str) -> bool:
    """Whether nothing but free resources and its turn keeps a pending job from starting.

    Slurm adds free text to some reasons (``ReqNodeNotAvail, UnavailableNodes:n3``; ``Nodes required for job are DOWN, …``).
    A reason unknown to us counts as something that a policy cannot give.
    """
    head = reason.split(",", 1)[0].replace(" ", "")
    return head in _ELIGIBLE_REASONS or head.startswith("NodesrequiredforjobareDOWN")


_LACKS_RESOURCES = frozenset({"Resources", "Priority"})
_NOT_LOOKED_AT = frozenset({"", "None"})


def lacks_only_resources(reason: str) -> bool:
    """Whether Slurm says that a pending job would start if only others left.

    It does not of nodes that are down or reserved, nor of a job that it has not looked at since it was submitted: that may
    have come up against a limit.
    """
    return reason in _LACKS_RESOURCES


def waits_for_places(state: str, reason: str) -> bool:
    """Whether a job waits and, as far as Slurm has said so far, lacks nothing but resources."""
    return state == "PENDING" and (lacks_only_resources(reason) or reason in _NOT_LOOKED_AT)


def policy_state(state: str, reason: str, *, may_act: bool = True, begin_is_ours: bool = False) -> JobState:
    """What a policy may do with a job in a live state.

    Args:
        state: Slurm's state.
        reason: why it waits.
        may_act: False for kinds of jobs that are left alone.
        begin_is_ours: its begin time does not count, because it is over or comes from our requeue.

    Raises:
        KeyError: ``state`` is no live state.
    """
    live = _LIVE_STATES[state]
    if live is not JobState.PENDING:
        return live
    eligible = waits_for_resources(reason) or (begin_is_ours and reason == "BeginTime")
    return JobState.PENDING if eligible and may_act else JobState.BLOCKED


def is_kept_back(state: str, reason: str) -> bool:
    """Whether a live job does not wait for resources or its turn, but for somebody's leave: it is held, depends on another
    one, has come up against a limit, or Slurm knows what.

    A begin time does not count, as Slurm tells by the eligible time how long that takes; nor does a requeue's delay.
    """
    return policy_state(state, reason) is JobState.BLOCKED and reason != "BeginTime"
