"""The made-up clusters of ``sodactl bench decide``, and what it prints."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from slurm_soda.policies.registry.catalog import make_policy, policy_names
from slurm_soda.policies.snapshot import JobState
from slurm_soda.policies.spreading.slowdowns import SpreadSlowdowns
from slurm_soda.sodactl.bench.decide import CLUSTER_MAKERS, bench
from slurm_soda.sodactl.bench.synthetic_cluster import fragmented_cluster
from slurm_soda.sodactl.bench.synthetic_sharing import shared_cluster
from tests.sampling import thorough


@pytest.mark.parametrize("cluster", sorted(CLUSTER_MAKERS))
def test_made_up_clusters_are_consistent_and_repeatable(cluster: str) -> None:
    snapshot, again = (CLUSTER_MAKERS[cluster](500, 40, 7) for _ in range(2))
    jobs, nodes = snapshot.jobs, snapshot.nodes
    assert len(jobs) == 500
    assert nodes.gpus_free.min() >= 0
    assert nodes.cpus_free.min() >= 0
    assert nodes.memory_free_mib.min() >= 0
    held = int(jobs.gpus[jobs.state == JobState.RUNNING].sum())
    assert nodes.gpus_free.sum() == nodes.gpus.sum() - held
    assert (held > 0) == (cluster != "idle")
    np.testing.assert_array_equal(jobs.executed_s, again.jobs.executed_s)
    np.testing.assert_array_equal(nodes.gpus_free, again.nodes.gpus_free)


def test_places_matter_on_the_fragmented_cluster() -> None:
    snapshot = fragmented_cluster(300, 20, 7)
    told, untold = (make_policy("soda").decide(one) for one in (snapshot, replace(snapshot, spread=SpreadSlowdowns())))
    assert told.places != untold.places


def test_jobs_share_on_the_shared_cluster() -> None:
    snapshot = shared_cluster(2000, 40, 7)
    for row in np.flatnonzero(snapshot.jobs.state == JobState.RUNNING).tolist():
        nodes = np.repeat([node for node, _, _ in snapshot.jobs.alloc(row)], snapshot.jobs.gpus_per_node[row])
        np.testing.assert_array_equal(snapshot.devices.of(row) // 8, nodes)
    for name in ("sjf-ffs", "sjf-bsbf"):
        assert make_policy(name).decide(snapshot).facts["starts_beside_others"] > 0


def test_json_has_a_result_for_every_policy() -> None:
    result = CliRunner().invoke(bench, ["decide", "--jobs", "200", "--nodes", "20", "--repeat", "1", "--json"])
    assert result.exit_code == 0
    printed = json.loads(result.output)
    assert (printed["jobs"], printed["nodes"]) == (200, 20)
    assert [entry["policy"] for entry in printed["results"]] == list(policy_names())
    by_name = {entry["policy"]: entry for entry in printed["results"]}
    assert by_name["tiresias-las"]["preempts"] > 0 == by_name["fifo"]["preempts"]
    assert all(0 < entry["median_s"] <= entry["worst_s"] for entry in printed["results"])


def test_a_shared_cluster_has_as_many_kinds_as_asked_for() -> None:
    assert len(shared_cluster(200, 20, 1, kinds=7).sharing.kinds) == 7
    runner, jobs = CliRunner(), "2000" if thorough() else "800"
    asked = ["decide", "--jobs", jobs, "--nodes", "40", "--repeat", "1", "--policy", "sjf-bsbf"]
    found = [json.loads(runner.invoke(bench, [*asked, "--json", "--cluster", "shared", *more]).output)
             for more in ([], ["--kinds", "26"], ["--kinds", "1"])]  # fmt: skip
    starts = [one["results"][0]["starts"] for one in found]
    assert starts[0] == starts[1] != starts[2]
    assert [one["kinds"] for one in found] == [26, 26, 1]
    refused = runner.invoke(bench, [*asked, "--kinds", "9"])
    assert refused.exit_code == 2
    assert "--kinds 9 is for --cluster shared" in refused.output


def test_people_get_a_table_and_a_bad_policy_is_named() -> None:
    runner = CliRunner()
    table = runner.invoke(bench, ["decide", "--jobs", "50", "--nodes", "4", "--policy", "fifo"])
    assert table.exit_code == 0
    assert "fifo" in table.output
    assert "srsf" not in table.output
    refused = runner.invoke(bench, ["decide", "--policy", "lifo"])
    assert refused.exit_code == 2
    assert "'lifo'" in refused.output
