"""Streams that never end, against one job: it starts in time under every policy, and under some only by the limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.simulator.waiting.test_bound import LIMIT_S, POLICIES, STRETCH, WITHOUT, run, waits

RUN_S = 4.0
LASTS_S = 4 * LIMIT_S


def stream(every_s: float, **asked: Any) -> list[dict[str, Any]]:
    """Jobs one after the other for as long as anybody could wait."""
    return [
        {"submit_s": every_s * at, "run_s": RUN_S, "cpus": 1, "user": f"u{at % 5}", "shares": False, **asked}
        for at in range(int(LASTS_S / every_s))
    ]


GANG = {"submit_s": 1.0, "run_s": 10.0, "gpus": 8, "gpus_per_node": 2, "cpus": 4, "user": "late", "shares": False}
LONG = {"submit_s": 40.0, "run_s": 400.0, "gpus": 2, "cpus": 1, "user": "late", "shares": False}
STREAMS: Mapping[str, tuple[dict[str, Any], Sequence[dict[str, Any]]]] = {
    "short jobs against a gang": ({**GANG, "preemptible": False}, stream(0.5, gpus=1, preemptible=False)),
    "small jobs of others against a long one": (
        {**LONG, "preemptible": False},
        stream(0.4, gpus=1, preemptible=False),
    ),
    "preemptible jobs against a gang": ({**GANG, "preemptible": True}, stream(0.5, gpus=1, preemptible=True)),
    "guests against a gang": ({**GANG, "preemptible": False}, stream(0.5, gpus=1, preemptible=False, shares=True)),
}
IN_TURN = {"fifo", "kelp-fifo", "backfill"}
"""Policies under which whoever came first is passed by nobody whom it has to wait for."""
STARVING = [
    (name, policy)
    for name in STREAMS
    for policy in POLICIES
    # Gandiva gives jobs that can be preempted their time slices in turn.
    if policy not in IN_TURN and (name, policy) != ("preemptible jobs against a gang", "gandiva")
]
"""Streams that keep the job waiting for as long as they last if nothing bounds that."""


def first_wait_s(policy: str, name: str, limit_s: float) -> float:
    one, others = STREAMS[name]
    outcome = run(policy, [*others, one], limit_s=limit_s, cluster="4x2/8c")
    row = outcome.workload.users.index("late")
    (late,) = [at for at, user in enumerate(outcome.workload.user.tolist()) if user == row]
    return next(start_s - since_s for since_s, start_s, at in waits(outcome) if at == late)


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("policy", POLICIES)
def test_no_stream_keeps_a_job_waiting(policy: str, name: str) -> None:
    """The bound where nobody began to wait before it, and nobody in the stream stays longer than its time limit."""
    assert first_wait_s(policy, name, LIMIT_S) <= LIMIT_S + 2 * STRETCH * RUN_S


@pytest.mark.parametrize(("name", "policy"), STARVING)
def test_without_the_limit_it_would(policy: str, name: str) -> None:
    assert first_wait_s(policy, name, WITHOUT) >= LASTS_S
