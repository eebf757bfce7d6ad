"""Memory bandwidth that agents report, and what services make of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.services.node_bandwidths import HOLDS_S, NodeBandwidths
from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.memory_bandwidth import NodeBandwidth
from slurm_soda.wire.records import NodeReport
from tests.daemon.services.service_daemon import CPU, GPU, Router, cluster, live, sodad


def report(node: str, *free_gb_s: float) -> NodeReport:
    told = tuple(NodeBandwidth(60.0 - one, 60.0) for one in free_gb_s)
    sent = NodeReport(node, "agent", 1, 0.0, bandwidth=told)
    assert NodeReport.from_json(json.dumps(sent.to_dict()).encode()) == sent
    return sent


def test_the_newest_word_of_each_node_holds_for_a_while() -> None:
    known = NodeBandwidths()
    assert known.free_gb_s(["n1", "n2"], 0.0).tolist() == []
    known.take(report("n1", 10.0), 0.0)
    known.take(report("n2", 50.0), 10.0)
    known.take(report("gone", 1.0), 10.0)
    np.testing.assert_equal(known.free_gb_s(["n2", "n3", "n1"], 20.0), [50.0, np.nan, 10.0])
    known.take(report("n1"), 30.0)
    np.testing.assert_equal(known.free_gb_s(["n2", "n1"], 30.0), [50.0, np.nan])
    assert known.free_gb_s(["n2", "n1"], 11.0 + HOLDS_S).tolist() == []


@pytest.mark.parametrize("used", [-1.0, "1", None, 1e300])
def test_what_is_no_bandwidth_is_refused(used: object) -> None:
    with pytest.raises(RecordError, match="used_gb_s"):
        NodeBandwidth.from_dict({"used_gb_s": used, "contended_gb_s": 40.0})


@pytest.mark.parametrize(("free_gb_s", "on"), [(0.5, GPU), (1.5, CPU), (None, CPU)])
def test_a_service_stays_off_nodes_without_free_bandwidth(fresh_store: Path, free_gb_s: float | None, on: int) -> None:
    """One of its instances takes 1 GB/s."""
    slurm = cluster()
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    if free_gb_s is not None:
        daemon.cycles._context.bandwidths.take(report("n1", free_gb_s), Instant.read(slurm.clock).steady_s)
    live(slurm, daemon, router, 5)
    assert {array: len(slurm.running(array)) for array in (CPU, GPU)} == {CPU: on == CPU, GPU: on == GPU}
