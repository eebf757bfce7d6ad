"""Single cases of bounded waiting that random workloads seldom meet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.policies.waiting.overdue import find_sure_run_s
from slurm_soda.simulator.cluster import NodeFailure, parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.site.description import Qos, SiteDescription
from slurm_soda.simulator.workload import Workload


def job(submit_s: float, run_s: float, gpus: int, **columns: Any) -> dict[str, Any]:
    return {"submit_s": submit_s, "run_s": run_s, "gpus": gpus, "time_limit_s": run_s, "preemptible": False, **columns}


def test_a_job_for_which_too_few_nodes_are_up_keeps_none_of_them_idle() -> None:
    """Nobody can say when the other node comes back; until then others have the one that is there."""
    cluster = replace(parse_cluster("2x2"), failures=(NodeFailure(1, 5.0, 1000.0),))
    gang = job(1.0, 20.0, 4, gpus_per_node=2)
    rows = [job(0.0, 10.0, 2), gang, *(job(100.0 + 10 * at, 10.0, 2) for at in range(20))]
    outcome = simulate(Workload.build("w", rows), cluster, make_policy("srsf", {}), passing_limit_s=50.0)
    assert outcome.first_start_s[2:].tolist() == [100.0 + 10 * at for at in range(20)]
    assert outcome.first_start_s[1] == 1000.0


@pytest.mark.parametrize("policy", ["fifo", "srsf", "tiresias-las", "gandiva"])
@pytest.mark.parametrize("limit_s", [1e-6, 0.5, 30.0])
def test_however_short_the_limit_is_jobs_end(policy: str, limit_s: float) -> None:
    """Whoever started overdue works for longer than a start costs before others have his place."""
    rows = [job(7.0 * at, 300.0 + 10 * (at % 7), 1 + at % 2, preemptible=True) for at in range(30)]
    outcome = simulate(
        Workload.build("w", rows),
        parse_cluster("2x2"),
        make_policy(policy, {}),
        costs=Costs(start_s=30.0, restart_s=30.0),
        passing_limit_s=limit_s,
    )
    assert np.isfinite(outcome.end_s).all()


class AsksAgain:
    """First come, first served on all nodes; where it starts somebody it wants to be asked again at the same instant."""

    name = "asks-again"

    def __init__(self) -> None:
        self._policy = make_policy("fifo-skip", {})

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        anywhere = snapshot.jobs.with_columns(node_set=np.zeros(0, dtype=np.int64))
        plan = self._policy.decide(replace(snapshot, jobs=anywhere))
        return replace(plan, next_event_s=snapshot.now_s) if len(plan.starts) else plan


def test_who_would_delay_an_overdue_job_is_no_reason_to_ask_again_at_once() -> None:
    """The last job fits beside the first one, but would keep the second one, which is overdue, waiting for longer."""
    rows = [job(0.0, 60.0, 1), job(1.0, 10.0, 4), job(10.0, 100.0, 1)]
    outcome = simulate(Workload.build("w", rows), parse_cluster("1x4"), AsksAgain(), passing_limit_s=5.0)
    assert outcome.first_start_s.tolist() == [0.0, 60.0, 70.0]


@pytest.mark.parametrize("policy", ["srsf", "tiresias-las", "soda"])
def test_a_sure_run_is_kept_among_equals_while_a_better_band_waits(policy: str) -> None:
    """Nobody of the better band wants these GPUs, and the others would have each other's places at once, for ever."""
    first = {"gpu_type": "a", "qos": "high"}
    rows = [job(0.0, 9000.0, 1, **first), job(0.0, 9000.0, 1, **first)]
    rows += [job(0.0, run_s, 1, gpu_type="b", preemptible=True) for run_s in (3000.0, 2900.0, 2800.0)]
    rows += [job(150.0, 50.0, 1, gpu_type="b")]  # preempts somebody under any of these policies
    scenario = Scenario(
        Workload.build("w", rows),
        parse_cluster("1x1:a+1x1:b"),
        passing_limit_s=100.0,
        site=SiteDescription(bands="qos", qos={"high": Qos(priority=100)}),
    )
    outcome = scenario.run(scenario.policy(policy, {}))
    assert np.isfinite(outcome.end_s).all()
    parts, since_s = outcome.segments, outcome.workload.submit_s.tolist()
    for row, start_s, end_s in zip(parts.job.tolist(), parts.start_s.tolist(), parts.end_s.tolist(), strict=True):
        if start_s - since_s[row] >= 100.0:
            assert end_s - start_s >= find_sure_run_s(100.0) or end_s == outcome.end_s[row]
        since_s[row] = end_s


@pytest.mark.parametrize("policy", ["srsf", "soda"])
def test_a_job_of_a_better_band_that_is_too_wide_takes_nobodys_turn(policy: str) -> None:
    """Short jobs that are overdue themselves would pass the gang for ever, as the policy likes them better."""
    rows = [job(0.5, 100.0, 8), *(job(max(4.0 * at - 400.0, 0.0), 40.0, 1) for at in range(250))]
    scenario = Scenario(
        Workload.build("w", [*rows, job(0.0, 40.0, 16, qos="high")]),
        parse_cluster("1x8"),
        passing_limit_s=100.0,
        site=SiteDescription(bands="qos", qos={"high": Qos(priority=100)}),
    )
    outcome = scenario.run(scenario.policy(policy, {}))
    gang = outcome.workload.label.index("1")
    assert outcome.first_start_s[gang] <= 560.0, "after those that wait already: 101 of 40 s on 8 GPUs"
