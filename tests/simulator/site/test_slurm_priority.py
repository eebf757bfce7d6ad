"""Priorities of simulated jobs against Slurm's documented formula, computed by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.site.decayed_usage import DecayedUsage, classic_factors, fair_tree_factors
from slurm_soda.simulator.site.description import SiteDescription, read_site
from slurm_soda.simulator.site.slurm_priority import SlurmPriority
from slurm_soda.simulator.workload import Workload
from tests.sampling import examples

DAY_S = 86_400.0
NO_WEIGHTS = {
    "weight_age": 0, "weight_fair_share": 0, "weight_job_size": 0, "weight_partition": 0, "weight_qos": 0,
}  # fmt: skip
SITE = {
    "qos": {"high": {"priority": 100}, "low": {"priority": 25}},
    "partition": {"long": {"job_factor": 1}, "short": {"job_factor": 4}},
}

# Two nodes of 4 GPUs and 32 CPUs each, at noon of day 3: what is waited since midnight is half a day.
# name, [priority], columns of the job, priority
FACTORS: list[tuple[str, dict[str, Any], dict[str, Any], int]] = [
    ("half a day of a week of waiting", {"weight_age": 1400}, {}, 100),
    ("age counts up to its limit", {"weight_age": 700, "max_age_s": 3600}, {}, 700),
    ("half the nodes and an eighth of the CPUs", {"weight_job_size": 160}, {"cpus": 8}, 50),
    ("small jobs where they are favoured", {"weight_job_size": 160, "favor_small": True}, {"cpus": 8}, 110),
    ("more GPUs than a node has are on two", {"weight_job_size": 160}, {"gpus": 5, "cpus": 8}, 90),
    ("the best QOS", {"weight_qos": 1000}, {"qos": "high"}, 1000),
    ("a QOS of a quarter of its priority", {"weight_qos": 1000}, {"qos": "low"}, 250),
    ("a QOS that nobody described", {"weight_qos": 1000}, {"qos": "other"}, 1),
    ("a job without a QOS", {"weight_qos": 1000}, {}, 1),
    ("the best partition", {"weight_partition": 1000}, {"partition": "short"}, 1000),
    ("a partition with a quarter of its factor", {"weight_partition": 1000}, {"partition": "long"}, 250),
    ("nobody has run anything", {"weight_fair_share": 10}, {}, 10),
    ("factors add up", {"weight_age": 1400, "weight_qos": 1000, "weight_fair_share": 10}, {"qos": "low"}, 360),
]  # fmt: skip


def _site(**priority: Any) -> SiteDescription:
    return read_site({**SITE, "priority": {**NO_WEIGHTS, **priority}})


@pytest.mark.parametrize(
    ("weights", "columns", "expected"), [case[1:] for case in FACTORS], ids=[case[0] for case in FACTORS]
)
def test_priority(weights: dict[str, Any], columns: dict[str, Any], expected: int) -> None:
    row = {"submit_s": 3 * DAY_S, "run_s": 1.0, "gpus": 4, "cpus": 1, "partition": "long", **columns}
    workload, cluster = Workload.build("one", [row]), parse_cluster("2x4/32c", ("long", "short"))
    priority = SlurmPriority(_site(**weights), workload, cluster)
    rows, now_s = np.array([0]), 3.5 * DAY_S
    priority.compute(rows, np.array([True]), workload.submit_s, now_s)
    assert priority.priority(rows).tolist() == [expected]


def _two_users() -> Workload:
    """Jobs 1 and 3 of a, 2 and 4 of b; all ask for half of the GPUs."""
    rows = [{"submit_s": 0.0, "run_s": 1.0, "gpus": 4, "user": user} for user in "abab"]
    return Workload.build("two", rows)


def test_usage_of_ended_jobs_counts_on_and_halves() -> None:
    """a's job of half the GPUs ran for an hour a week ago, b's for half an hour just now: both used as much."""
    workload, cluster = _two_users(), parse_cluster("2x4")
    priority = SlurmPriority(_site(weight_fair_share=1000, fair_share="classic"), workload, cluster)
    rows, waits, since_s = np.arange(4), np.array([False, False, True, True]), np.zeros(4)
    priority.start(0, 0.0)
    priority.stop(0, 0.0, 3600.0)
    week_s = 7 * DAY_S + 3600.0
    priority.compute(rows, waits, since_s, 3600.0)
    assert priority.priority(rows).tolist()[2:] == [
        250,
        1000,
    ]  # 2^-2, since a used all of it and has half of the shares
    priority.start(1, week_s - 1800.0)
    priority.stop(1, week_s - 1800.0, week_s)
    priority.compute(rows, waits, since_s, week_s)
    a, b = priority.priority(rows).tolist()[2:]
    assert a == pytest.approx(500, abs=1)
    assert b == pytest.approx(500, abs=1)


def test_priorities_change_once_a_period_and_not_while_a_job_runs() -> None:
    workload, cluster = _two_users(), parse_cluster("2x4")
    priority = SlurmPriority(_site(weight_fair_share=1000, weight_age=7), workload, cluster)
    rows, since_s = np.arange(4), np.zeros(4)
    seen = []
    priority.start(0, 10.0)
    for now_s in (10.0, 299.0, 300.0, 599.0):
        priority.compute(rows, np.array([False, True, True, True]), since_s, now_s)
        seen.append(priority.priority(rows).tolist()[1:])
    assert seen == [[1000, 1000, 1000], [1000, 1000, 1000], [1000, 500, 1000], [1000, 500, 1000]]
    priority.compute(rows, np.array([False, False, True, True]), since_s, 7 * DAY_S)
    assert priority.priority(rows).tolist()[1:] == [1000, 507, 1007]


def test_fair_tree_ranks_users_by_share_over_usage() -> None:
    """Slurm's documentation: the factor is the rank over the number of users; ties get the same rank."""
    usage, shares = np.array([0.0, 0.0, 3.0, 1.0, 4.0]), np.array([1.0, 5.0, 1.0, 1.0, 4.0])
    assert fair_tree_factors(usage, shares).tolist() == [1.0, 1.0, 0.2, 0.6, 0.6]


def test_the_classic_formula() -> None:
    """b used 3/4 with 1/2 of the shares, c 1/4 with 1/4, a none."""
    factors = classic_factors(np.array([0.0, 3.0, 1.0]), np.array([1.0, 2.0, 1.0]))
    assert factors.tolist() == pytest.approx([1.0, 2**-1.5, 0.5])
    assert classic_factors(np.zeros(2), np.ones(2)).tolist() == [1.0, 1.0]


def _slurms_usage(
    runs: list[tuple[int, float, float, float]], until_s: float, period_s: float, half_life_s: float
) -> list[float]:
    """Period by period, as _decay_thread of priority_multifactor.c does it."""
    decay = 1 - 0.693 / half_life_s if half_life_s else 1.0
    used, last_s = [0.0, 0.0], 0.0
    while last_s + period_s <= until_s:
        now_s = last_s + period_s
        used = [one * decay**period_s for one in used]
        for user, billing, start_s, end_s in runs:
            ran_s = min(end_s, now_s) - max(start_s, last_s)
            if ran_s > 0:
                used[user] += billing * ran_s * decay**ran_s
        last_s = now_s
    return used


@settings(max_examples=examples(60), deadline=None)
@given(
    data=st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from([0.25, 1.0]), st.integers(0, 900), st.integers(1, 700)), max_size=6
    ),
    half_life_s=st.sampled_from([0.0, 200.0, 5000.0]),
)
def test_usage_is_what_slurm_counts_period_by_period(
    data: list[tuple[int, float, int, int]], half_life_s: float
) -> None:
    runs = [(user, billing, float(start), float(start + length)) for user, billing, start, length in data]
    usage = DecayedUsage(2, period_s=100.0, half_life_s=half_life_s)
    events = [(run[2], 1, run) for run in runs] + [(run[3], 0, run) for run in runs]
    for at_s, starts, (user, billing, start_s, _) in sorted(events):
        if starts:
            usage.start(user, billing, at_s)
        else:
            usage.stop(user, billing, start_s, at_s)
    for until_s in (1600.0, 2050.0):
        expected = _slurms_usage(runs, until_s, 100.0, half_life_s)
        assert usage.at(until_s).tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_half_life_halves() -> None:
    usage = DecayedUsage(1, period_s=300.0, half_life_s=DAY_S)
    usage.start(0, 2.0, 0.0)
    usage.stop(0, 2.0, 0.0, 300.0)
    first = usage.at(300.0)[0]
    assert first == pytest.approx(600.0, rel=0.003)
    assert usage.at(300.0 + DAY_S)[0] / first == pytest.approx(0.5, rel=1e-3)
    assert math.isclose(usage.at(300.0 + 2 * DAY_S)[0] / first, 0.25, rel_tol=1e-3)
