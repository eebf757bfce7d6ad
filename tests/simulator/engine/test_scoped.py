"""A policy within a scope, beside Slurm: who gains, who is left as he was."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.scope.scope import Scope
from slurm_soda.simulator.cluster import SimulatedCluster, parse_cluster
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.workload import Workload
from tests.sampling import examples

STOCK = make_policy("multifactor", {"reservations": 10})
SRSF = make_policy("srsf", {"min_run_s": 0.0})


def run(workload: Workload, cluster: SimulatedCluster, scope: Scope | None, policy: Any = SRSF) -> SimulationOutcome:
    return simulate(workload, cluster, policy, scope=scope)


def two_partitions(jobs: list[dict[str, Any]]) -> tuple[Workload, SimulatedCluster]:
    """Partition a has the first two of four nodes, b the others."""
    workload = Workload.build("test", [{"time_limit_s": 4000.0, **job} for job in jobs])
    cluster = parse_cluster("4x2", ("a", "b"))
    member = np.array([[True, False], [True, False], [False, True], [False, True]])
    return workload, SimulatedCluster(**{  # type: ignore[arg-type]
        **{name: getattr(cluster, name) for name in cluster.__slots__}, "in_partition": member,
    })  # fmt: skip


@st.composite
def loads(draw: st.DrawFn) -> list[dict[str, Any]]:
    count = draw(st.integers(2, 14))
    return [
        {
            "submit_s": float(draw(st.integers(0, 300))),
            "run_s": float(draw(st.sampled_from([20, 60, 200, 1500]))),
            "gpus": draw(st.sampled_from([1, 2, 4])),
            "partition": "a" if at == 0 else "b" if at == 1 else draw(st.sampled_from("ab")),
            "user": draw(st.sampled_from(["alice", "bob"])),
            "preemptible": draw(st.booleans()),
        }
        for at in range(count)
    ]


@given(jobs=loads())
@settings(max_examples=examples(30), deadline=None)
def test_a_partition_that_shares_no_node_with_the_scope_is_left_as_it_was(jobs: list[dict[str, Any]]) -> None:
    workload, cluster = two_partitions(jobs)
    stock = run(workload, cluster, None, STOCK)
    scoped = run(workload, cluster, Scope(partitions=frozenset("a")))
    others = workload.partition == workload.partitions.index("b")
    np.testing.assert_array_equal(stock.end_s[others], scoped.end_s[others])
    np.testing.assert_array_equal(stock.preemptions[others], 0)


@given(jobs=loads())
@settings(max_examples=examples(20), deadline=None)
def test_a_scope_without_jobs_is_stock_slurm(jobs: list[dict[str, Any]]) -> None:
    workload, cluster = two_partitions(jobs)
    stock = run(workload, cluster, None, STOCK)
    nobody = run(workload, cluster, Scope(users=frozenset({"nobody"})))
    np.testing.assert_array_equal(stock.end_s, nobody.end_s)


def test_jobs_in_scope_gain() -> None:
    long = [{"submit_s": 0.0, "run_s": 1500.0, "gpus": 2, "partition": name, "preemptible": True} for name in "aabb"]
    short = [{"submit_s": 100.0 + at, "run_s": 20.0, "gpus": 2, "partition": "ab"[at % 2]} for at in range(8)]
    workload, cluster = two_partitions(long + short)
    stock, scoped = run(workload, cluster, None, STOCK), run(workload, cluster, Scope(partitions=frozenset("a")))
    inside = (workload.partition == 0) & (workload.run_s < 100)
    assert scoped.end_s[inside].mean() < stock.end_s[inside].mean() - 1000
    assert scoped.preemptions[workload.partition == 0].sum() > 0
    whole = run(workload, cluster, Scope())
    assert whole.end_s[workload.run_s < 100].mean() < scoped.end_s[workload.run_s < 100].mean()


def test_accounts_are_in_no_trace() -> None:
    workload, cluster = two_partitions([{"submit_s": 0.0, "run_s": 1.0, "partition": "a"}])
    with pytest.raises(SimulatorError, match="jobs of a trace have none"):
        run(workload, cluster, Scope(accounts=frozenset({"ml"})))
    assert math.isfinite(run(workload, cluster, Scope(users=frozenset({"user"}))).end_s[0])
