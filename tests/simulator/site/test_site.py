"""Sites in simulations: what their description may say, and what it changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.generators.registry import generate_workload
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.site.description import SiteDescription, format_site, load_site, read_site
from slurm_soda.simulator.workload import Workload


def test_the_printed_site_is_the_default_one(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(format_site())
    site = load_site(path)
    assert site.priority == SiteDescription().priority
    assert site.qos_of("") == site.qos_of("any")
    assert site.partition_of("main") == site.partition_of("any")
    assert not site.rules_starts


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("color = 1", "no section 'color'; there are: bands, priority, shares, qos, partition"),
        ("bands = 'all'", "bands = 'all' is not allowed; use one of: off, qos, fairshare"),
        ("[priority]\nweight_ages = 1", "[priority] has no parameter 'weight_ages'"),
        ("[priority]\nweight_age = -1", "weight_age = -1 is not allowed"),
        ("[shares]\nalice = 0", "[shares]: alice = 0 is not allowed; use a whole number from 1"),
        ("[qos.high]\nmax_gpus_per_user = 0", "max_gpus_per_user = 0 is not allowed"),
        ("[qos]\nhigh = 3", "[qos.high]: 3 is not a section; its keys are: priority, max_gpus_per_user"),
        ("partition = 3", "partition = 3 is not allowed; write a section [partition]"),
        ("[priority", "not valid TOML"),
    ],
)
def test_what_a_site_may_not_say(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "site.toml"
    path.write_text(text)
    with pytest.raises(SimulatorError) as caught:
        load_site(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "--print-site" in str(caught.value)


def _run(policy: str, rows: list[dict[str, Any]], nodes: str, site: Mapping[str, Any]) -> SimulationOutcome:
    return simulate(Workload.build("site", rows), parse_cluster(nodes), make_policy(policy), site=read_site(site))


def test_who_has_used_much_waits_although_nothing_of_his_runs() -> None:
    rows = [
        {"submit_s": 0, "run_s": 5000, "gpus": 4, "user": "a"}, {"submit_s": 10, "run_s": 900, "gpus": 4, "user": "c"},
        {"submit_s": 20, "run_s": 100, "gpus": 4, "user": "a"}, {"submit_s": 5200, "run_s": 100, "gpus": 4, "user": "b"},
    ]  # fmt: skip
    outcome = _run("multifactor", rows, "1x4", {})
    assert outcome.first_start_s.tolist() == [0, 5000, 6000, 5900]


def test_shares_decide_who_has_used_much() -> None:
    rows = [
        {"submit_s": 0, "run_s": 6000, "gpus": 2, "user": "a"}, {"submit_s": 0, "run_s": 3000, "gpus": 2, "user": "b"},
        {"submit_s": 3000, "run_s": 3000, "gpus": 2, "user": "c"},
        {"submit_s": 5000, "run_s": 100, "gpus": 4, "user": "b"}, {"submit_s": 5000, "run_s": 100, "gpus": 4, "user": "a"},
    ]  # fmt: skip
    equal = _run("multifactor", rows, "1x4", {})
    assert equal.first_start_s.tolist()[3:] == [6000, 6100]
    more = _run("multifactor", rows, "1x4", {"shares": {"a": 9}})
    assert more.first_start_s.tolist()[3:] == [6100, 6000]


def test_qos_decides_the_order() -> None:
    rows = [
        {"submit_s": 0, "run_s": 100, "gpus": 4}, {"submit_s": 1, "run_s": 100, "gpus": 4},
        {"submit_s": 2, "run_s": 100, "gpus": 4, "qos": "high"},
    ]  # fmt: skip
    outcome = _run("multifactor", rows, "1x4", {"qos": {"high": {"priority": 5}}})
    assert outcome.first_start_s.tolist() == [0, 200, 100]


def test_a_job_beyond_its_users_limit_waits_and_blocks_nobody() -> None:
    rows = [
        {"submit_s": 0, "run_s": 100, "gpus": 2, "user": "a"}, {"submit_s": 1, "run_s": 100, "gpus": 2, "user": "a"},
        {"submit_s": 2, "run_s": 100, "gpus": 1, "user": "b"}, {"submit_s": 3, "run_s": 10, "gpus": 1, "user": "a"},
    ]  # fmt: skip
    for policy in ("multifactor", "fifo", "srsf", "drf"):
        outcome = _run(policy, rows, "1x8", {"qos": {"normal": {"max_gpus_per_user": 3}}})
        assert outcome.first_start_s.tolist() == [0, 100, 2, 3], policy


@pytest.mark.parametrize("policy", ["multifactor", "tiresias-las", "drf"])
def test_nobody_holds_more_than_his_limit(policy: str) -> None:
    workload = generate_workload("philly-month", 3, 300, {"load_ratio": 20.0})
    most = 24
    site = read_site({"qos": {"normal": {"max_gpus_per_user": most}}})
    outcome = simulate(workload, parse_cluster("8x8"), make_policy(policy), site=site)
    assert not np.isnan(outcome.end_s).any()
    held = outcome.segments
    for user in range(len(workload.users)):
        mine = workload.user[held.job] == user
        times = np.concatenate((held.start_s[mine], held.end_s[mine]))
        change = np.concatenate((held.gpus[mine], -held.gpus[mine]))
        order = np.lexsort((change, times))
        assert np.cumsum(change[order]).max(initial=0) <= most


def test_the_limit_matters_there() -> None:
    workload = generate_workload("philly-month", 3, 300, {"load_ratio": 20.0})
    cluster, policy = parse_cluster("8x8"), make_policy("multifactor")
    free = simulate(workload, cluster, policy)
    limited = simulate(workload, cluster, policy, site=read_site({"qos": {"normal": {"max_gpus_per_user": 24}}}))
    assert (free.end_s != limited.end_s).any()
