"""What is known before the clock runs: jobs as sessions see them, and when nodes fail and come back."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.session.ranking import INFINITY, SessionJob
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.workload import Workload


def make_session_jobs(workload: Workload) -> list[SessionJob]:
    """One record a job."""
    expected_s = np.where(np.isnan(workload.expected_s), INFINITY, workload.expected_s)
    columns = (workload.submit_s, workload.gpus, expected_s, workload.preemptible)
    return [
        SessionJob(row + 1, submit_s=submit_s, gpus=gpus, remaining_s=remaining_s, preemptible=preemptible)
        for row, (submit_s, gpus, remaining_s, preemptible) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        )
    ]


def list_node_events(cluster: SimulatedCluster) -> list[tuple[float, int, bool]]:
    """Times, rows of nodes and whether they come back then, latest first; a node's failures go before its returns.

    The first is never.

    Raises:
        SimulatorError: a failure that cannot be.
    """
    events: list[tuple[float, int, bool]] = [(INFINITY, len(cluster), True)]
    for failure in cluster.failures:
        if not (0 <= failure.node < len(cluster) and failure.down_s <= failure.up_s):
            raise SimulatorError(
                f"{failure} cannot be: node is a row from 0 to {len(cluster) - 1}, and down_s must not be after up_s"
            )
        events.append((failure.down_s, failure.node, False))
        if failure.up_s < INFINITY:
            events.append((failure.up_s, failure.node, True))
    return sorted(events, reverse=True)
