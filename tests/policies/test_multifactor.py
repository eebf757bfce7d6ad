"""Priorities by age, fair share and size, and the order that they give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from slurm_soda.policies.baselines.multifactor import CALC_PERIOD_S, Multifactor, compute_fair_shares
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import ClusterSnapshot
from tests.policies.cases import NOW_S, cluster, mixed_nodes, running, waiting
from tests.policies.worlds import on_some_worlds, worlds

NONE = {"weight_age": 0.0, "weight_fairshare": 0.0, "weight_size": 0.0}
WEEK_S = 7 * 86_400.0

# Two nodes of 4 GPUs and 32 CPUs each.
# name, weights, columns of the job, priority
FACTORS: list[tuple[str, dict[str, Any], dict[str, Any], float]] = [
    ("a day of a week of waiting", {"weight_age": 700}, {"waited_s": 86_400.0}, 100),
    ("age counts up to its limit", {"weight_age": 700}, {"waited_s": 9 * WEEK_S}, 700),
    ("the limit of age is a parameter", {"weight_age": 700, "max_age_s": 100}, {"waited_s": 50.0}, 350),
    ("half the nodes and an eighth of the CPUs", {"weight_size": 160}, {"nodes": 1, "cpus": 8}, 50),
    ("small jobs where they are favoured", {"weight_size": 160, "favor_small": True}, {"nodes": 1, "cpus": 8}, 110),
    ("nobody has run anything", {"weight_fairshare": 10}, {}, 10),
    ("factors add up", {"weight_age": 700, "weight_size": 160, "weight_fairshare": 10},
     {"waited_s": 86_400.0, "cpus": 8}, 160),
]  # fmt: skip


@pytest.mark.parametrize(
    ("weights", "columns", "priority"), [case[1:] for case in FACTORS], ids=[case[0] for case in FACTORS]
)
def test_priority(weights: dict[str, Any], columns: dict[str, Any], priority: float) -> None:
    policy = make_policy("multifactor", {**NONE, **weights})
    plan = policy.decide(cluster([waiting(1, 1, **columns)], mixed_nodes(4, 4)))
    assert plan.notes.score_name == "priority"
    assert plan.notes.score.tolist() == pytest.approx([priority])


def test_fair_share_halves_with_each_share_that_was_used() -> None:
    """8 GPUs, 64 CPUs, three users: a used 3/4 of all service, b 1/4, c none, so 9/4, 3/4 and 0 times their share."""
    jobs = [
        running(1, (0, 3), user="a", since_s=1000), running(2, (1, 2), user="b", since_s=500),
        waiting(3, 1, user="a"), waiting(4, 1, user="b"), waiting(5, 1, user="c"),
    ]  # fmt: skip
    factors = compute_fair_shares(cluster(jobs, mixed_nodes(4, 4)))
    assert factors.tolist() == pytest.approx([2**-2.25, 2**-0.75, 2**-2.25, 2**-0.75, 1.0])


def test_the_scarcer_of_gpus_and_cpus_is_billed() -> None:
    jobs = [
        running(1, (0, 1), user="a", since_s=100, cpus=32, alloc=[(0, 1, 32)]),
        running(2, (1, 4), user="b", since_s=100),
    ]  # fmt: skip
    assert compute_fair_shares(cluster(jobs, mixed_nodes(4, 4))).tolist() == pytest.approx([0.5, 0.5])


def test_the_largest_priority_goes_first_and_ties_go_by_submission() -> None:
    jobs = [
        running(1, (0, 2), user="a", preemptible=False), waiting(2, 2, user="a", submit_s=1),
        waiting(3, 2, user="b", submit_s=3), waiting(4, 2, user="b", submit_s=2),
    ]  # fmt: skip
    policy = make_policy("multifactor", {**NONE, "weight_fairshare": 1})
    plan = policy.decide(cluster(jobs, mixed_nodes(4)))
    assert plan.order.tolist() == [4, 3, 2]
    assert plan.starts.tolist() == [4]


def test_jobs_behind_a_blocked_one_are_backfilled() -> None:
    jobs = [
        running(1, (0, 2), since_s=100, time_limit_s=200), waiting(2, 4, waited_s=50.0, time_limit_s=9),
        waiting(3, 2, waited_s=40.0, time_limit_s=101), waiting(4, 2, waited_s=30.0, time_limit_s=100),
    ]  # fmt: skip
    plan = make_policy("multifactor").decide(cluster(jobs, mixed_nodes(4)))
    assert plan.starts.tolist() == [4]
    assert plan.notes.of(2).reserved_in_s == 100


@pytest.mark.parametrize(
    ("weights", "jobs", "in_s"),
    [
        ({}, [running(1, (0, 4)), waiting(2, 4)], CALC_PERIOD_S),
        ({}, [running(1, (0, 4))], np.inf),
        (NONE, [running(1, (0, 4)), waiting(2, 4)], np.inf),
    ],
)
def test_priorities_are_computed_anew_while_somebody_waits(
    weights: dict[str, float], jobs: list[dict[str, Any]], in_s: float
) -> None:
    plan = make_policy("multifactor", weights).decide(cluster(jobs, mixed_nodes(4)))
    assert plan.next_event_s == NOW_S + in_s


@on_some_worlds
@given(snapshot=worlds())
def test_without_weights_it_is_stock_backfill(snapshot: ClusterSnapshot) -> None:
    for reservations in (1, 3):
        by_weight = Multifactor(**NONE, reservations=reservations).decide(snapshot)
        stock = make_policy("backfill", {"reservations": reservations}).decide(snapshot)
        assert by_weight.order.tolist() == stock.order.tolist()
        assert by_weight.places == stock.places
        np.testing.assert_array_equal(by_weight.notes.reserved_in_s, stock.notes.reserved_in_s)


@on_some_worlds
@given(snapshot=worlds())
def test_factors_are_between_none_and_one(snapshot: ClusterSnapshot) -> None:
    for weight in NONE:
        factor = Multifactor(**{**NONE, weight: 1.0}).priorities(snapshot)
        assert ((factor >= 0) & (factor <= 1)).all()
