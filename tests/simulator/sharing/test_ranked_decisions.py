"""A policy whose order single jobs tell, where run times are known, is asked less often, and what happens is the same."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, SLURM, Mechanism
from slurm_soda.policies.sharing.soda.policy import Soda
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.sharing.simulate_sharing import simulate_sharing
from slurm_soda.simulator.workload import Workload
from tests.simulator.engine.worlds import job
from tests.simulator.sharing.test_plain_decisions import SHAPES, same


class AskedAlways:
    """``soda``, which is asked at each event, as it does not say that this need not be."""

    jobs_per_gpu = 2

    def __init__(self, soda: Soda) -> None:
        self._soda, self.name, self.times = soda, soda.name, 0

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        self.times += 1
        return self._soda.decide(snapshot)


class AskedLess(AskedAlways):
    """It counts, and says all that ``soda`` says."""

    cpu_jobs_last = True

    @property
    def prices_preemption(self) -> bool:
        return self._soda.prices_preemption

    def known_order(self) -> Any:
        return self._soda.known_order()

    def may_gain_by_joining(self, *args: Any) -> bool:
        return self._soda.may_gain_by_joining(*args)


def both(change_s: float) -> tuple[AskedAlways, AskedLess]:
    soda = make_policy("soda", {"change_s": change_s})
    assert isinstance(soda, Soda)
    return AskedAlways(soda), AskedLess(soda)


@st.composite
def mixed_workloads(draw: st.DrawFn, *, share: bool) -> Workload:
    """Gangs with a core or two a GPU, some of which may be preempted, and jobs of up to six cores."""
    rows = []
    for shape in draw(st.lists(st.sampled_from((*SHAPES, *SHAPES, {"gpus": 0})), min_size=2, max_size=20)):
        run_s = draw(st.integers(1, 400)) / 4
        rows.append(
            job(
                draw(st.integers(0, 60)) / 4,
                run_s,
                **shape,
                cpus=shape["gpus"] * draw(st.integers(1, 2)) or draw(st.integers(1, 6)),
                preemptible=draw(st.booleans()),
                shares=share and draw(st.booleans()),
                time_limit_s=run_s * draw(st.sampled_from((1, 2, math.inf))),
                user=draw(st.sampled_from("ab")),
                model=draw(st.sampled_from("mn")),
            )
        )
    return Workload.build("drawn", rows)


def run(
    workload: Workload,
    policy: AskedAlways,
    mechanism: Mechanism = SLURM,
    *,
    slowdown: float = 1.3,
    change_s: float = 0.0,
    passing_limit_s: float = math.inf,
    knowledge: str = "truth",
) -> SimulationOutcome:
    rules = SharingRules(slowdown=slowdown, mechanism=mechanism, knowledge=knowledge)
    costs = Costs(start_s=change_s, restart_s=change_s)
    return simulate_sharing(
        workload, parse_cluster("3x4/8c"), policy, rules, jobs_per_gpu=2, costs=costs, passing_limit_s=passing_limit_s
    )


def before_sharing(outcome: SimulationOutcome) -> tuple[float, list[tuple[float, int, list[int]]]]:
    """When two jobs first meet on a GPU, and who started where until then."""
    assert outcome.sharing is not None
    stretches, parts = outcome.sharing.stretches, outcome.segments
    first_s = float(stretches.start_s[stretches.jobs > 1].min(initial=math.inf))
    bounds = parts.node_start.tolist()
    nodes = [parts.node[bounds[at] : bounds[at + 1]].tolist() for at in range(len(parts.job))]
    # When a wait has become too long is told by a sum or by a difference.
    starts = zip(np.round(parts.start_s, 6).tolist(), parts.job.tolist(), nodes, strict=True)
    return round(first_s, 6), sorted(start for start in starts if start[0] < first_s)


@pytest.mark.sample(2)
@pytest.mark.parametrize("passing_limit_s", [math.inf, 30.0])
@pytest.mark.parametrize("change_s", [0.0, 2.0])
@given(workload=mixed_workloads(share=False))
def test_where_nobody_shares_all_is_the_same(change_s: float, passing_limit_s: float, workload: Workload) -> None:
    always, less = both(change_s)
    outcomes = [run(workload, one, change_s=change_s, passing_limit_s=passing_limit_s) for one in (always, less)]
    assert before_sharing(outcomes[0]) == before_sharing(outcomes[1])
    assert less.times <= always.times


@pytest.mark.sample(2)
@given(
    workload=mixed_workloads(share=True),
    change_s=st.sampled_from([0.0, 2.0]),
    saving_s=st.sampled_from([0.0, 1.0]),
    passing_limit_s=st.sampled_from([math.inf, 30.0]),
    most=st.sampled_from([0, 1]),
)
def test_a_scenario_without_sharing_has_the_outcome_of_whole_snapshots(
    workload: Workload, change_s: float, saving_s: float, passing_limit_s: float, most: int
) -> None:
    costs = Costs(start_s=change_s, restart_s=change_s, checkpoint_s=saving_s)
    scenario = Scenario(workload, parse_cluster("3x4/8c"), costs, max_preemptions=most, passing_limit_s=passing_limit_s)
    seldom, always = (replace(scenario, engine=engine).run(make_policy("soda", {})) for engine in ("auto", "snapshot"))
    for name in ("first_start_s", "end_s", "held_s"):
        np.testing.assert_allclose(getattr(seldom, name), getattr(always, name), atol=1e-6)
    np.testing.assert_array_equal(seldom.preemptions, always.preemptions)
    assert seldom.sharing is None
    assert seldom.workload is scenario.workload


@pytest.mark.sample(2)
@pytest.mark.parametrize("mechanism", [IDEAL, SLURM], ids=lambda mechanism: mechanism.name)
@pytest.mark.parametrize("slowdown", [1.0, 1.2])
@given(
    workload=mixed_workloads(share=True),
    knowledge=st.sampled_from(["truth", "prior"]),
    stretch=st.sampled_from([1, 50]),
)
def test_until_somebody_shares_all_is_the_same(
    mechanism: Mechanism, slowdown: float, workload: Workload, knowledge: str, stretch: int
) -> None:
    times = {name: getattr(workload, name) * stretch for name in ("submit_s", "run_s", "expected_s", "time_limit_s")}
    always, less = both(0.0)
    outcomes = [
        run(workload.with_columns(**times), one, mechanism, slowdown=slowdown, knowledge=knowledge)
        for one in (always, less)
    ]
    assert before_sharing(outcomes[0]) == before_sharing(outcomes[1])
    assert not np.isnan(outcomes[1].end_s).any()


def test_it_is_asked_where_a_job_that_starts_makes_a_move_worth_more() -> None:
    """The third node would be whole in 30 s, until the last job starts there; then the third job leaves the second node."""
    fixed = {"preemptible": False}
    rows = [
        job(0, 1000, 2, **fixed),
        job(0, 1, 2, **fixed),
        job(0.25, 1000, preemptible=True),
        job(0.25, 1, 3, **fixed),
    ]
    rows += [job(0.5, 30, cpus=2, **fixed), job(2, 2000, 4, gpus_per_node=4, **fixed)]
    rows += [job(3, 3000, 3, gpus_per_node=3, **fixed)]
    workload = Workload.build("w", [{"cpus": row["gpus"], **row} for row in rows])
    scenario = Scenario(workload, parse_cluster("3x4/8c"), Costs())
    for engine in ("auto", "snapshot"):
        outcome = replace(scenario, engine=engine).run(make_policy("soda", {"change_s": 60.0}))
        assert outcome.first_start_s.tolist() == [0.0, 0.0, 0.25, 0.25, 0.5, 3.0, 3.0]
        assert outcome.preemptions.tolist() == [0, 0, 1, 0, 0, 0, 0]


def test_it_is_asked_where_a_pair_that_nobody_knows_may_be_tried() -> None:
    alike = {"gpus_per_node": 4, "cpus": 4, "model": "m", "user": "a"}
    rows = [job(0, 20_000, 4, **alike, preemptible=False, shares=True) for _ in range(3)]
    workload = Workload.build("w", [*rows, job(2, 15_000, 4, **alike, preemptible=True, shares=True)])
    for one in both(60.0):
        outcome = run(workload, one, slowdown=1.2, change_s=60.0, knowledge="prior")
        assert before_sharing(outcome)[0] == 2.0
        assert outcome.end_s[3] < 20_000, "it stays"
        apart = run(workload, one, slowdown=3.0, change_s=60.0, knowledge="prior")
        assert apart.preemptions.tolist() == [0, 0, 0, 1], "it is seen that they do not get on"


def test_it_is_asked_only_where_somebody_may_be_preempted_or_joined() -> None:
    alike = {"gpus_per_node": 4, "cpus": 4, "preemptible": False, "model": "m"}
    rows = [job(0, 100, 4, **alike, user="a", shares=False) for _ in range(3)]
    rows += [job(1, 10, 4, **alike, user="b", shares=False), job(2, 5, 4, **alike, user="c", shares=True)]
    always, less = both(0.0)
    assert same(run(Workload.build("w", rows), always), run(Workload.build("w", rows), less))
    assert (always.times > 4, less.times) == (True, 0)
    # A host of its own user is of no use to who would outlive it and lose all that it did.
    rows[0] |= {"user": "c", "shares": True}
    rows[4] |= {"run_s": 500}
    run(Workload.build("w", rows), less)
    assert less.times == 0
    # A short job joins it; and a job that might be preempted is one more reason to ask.
    rows[4] |= {"run_s": 5}
    assert before_sharing(run(Workload.build("w", rows), less))[0] == 2.0
    asked, rows[1] = less.times, rows[1] | {"preemptible": True}
    run(Workload.build("w", rows), less)
    assert asked > 0
    assert less.times > 2 * asked
