"""Slurm's mechanism carried out: a host's end ends its guest's run, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.sharing.mechanism.mechanism import SLURM
from slurm_soda.policies.sharing.snapshot import SharingPolicy
from slurm_soda.simulator.cluster import NodeFailure, parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.report.summary import summarise
from slurm_soda.simulator.sharing.sharing_record import SharingRecord
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.sharing.simulate_sharing import simulate_sharing
from slurm_soda.simulator.workload import Workload
from tests.simulator.sharing.players import Scripted
from tests.simulator.sharing.test_bounded_policies import queue
from tests.simulator.sharing.test_properties import check_devices

RULES = SharingRules(slowdown=1.5, mechanism=SLURM)
HOST, GUEST = {"submit_s": 0.0, "run_s": 10.0}, {"submit_s": 1.0, "run_s": 30.0}


def play(*rows: dict[str, Any], script: dict[int, tuple[int, ...]], **costs: float) -> SimulationOutcome:
    workload = Workload.build("made", [{"model": "m", "preemptible": True, **row} for row in rows])
    return simulate_sharing(
        workload, parse_cluster("1x2"), Scripted(script), RULES, jobs_per_gpu=2, costs=Costs(**costs)
    )


def record(outcome: SimulationOutcome) -> SharingRecord:
    assert outcome.sharing is not None
    return outcome.sharing


@pytest.mark.parametrize(("preemptible", "every_s", "kept_s"), [
    (True, np.inf, 0.0), (True, 3.0, 6.0), (True, 8.0, 8.0), (False, 3.0, 0.0),
])  # fmt: skip
def test_a_guest_is_requeued_when_its_host_ends(preemptible: bool, every_s: float, kept_s: float) -> None:
    guest = {**GUEST, "preemptible": preemptible}
    outcome = play(HOST, guest, script={1: (0,), 2: (0,)}, checkpoint_every_s=every_s)
    # The host is slowed from 1 s on; its guest makes progress from 2.3 s until 14.5 s, and holds its GPU until 14.8 s.
    lost_s = 12.2 / 1.5 - kept_s
    assert outcome.end_s.tolist() == pytest.approx([14.5, 14.8 + 1.2 + 30.0 - kept_s])
    assert record(outcome).revoked.tolist() == [0, 1]
    assert record(outcome).lost_s.tolist() == pytest.approx([0.0, lost_s])
    assert outcome.preemptions.tolist() == [0, 0]
    assert summarise(outcome).lost_gpu_s == pytest.approx(lost_s)


def test_a_guest_that_ends_first_costs_its_start_only() -> None:
    outcome = play({**HOST, "run_s": 100.0}, {**GUEST, "run_s": 20.0}, script={1: (0,), 2: (0,)})
    assert outcome.end_s.tolist() == pytest.approx([1.0 + 31.3 + 99.0 - 31.3 / 1.5, 1.0 + 1.3 + 30.0])
    assert record(outcome).revoked.tolist() == [0, 0]


def test_who_has_gpus_of_its_own_stays_when_others_end() -> None:
    outcome = play(HOST, {**GUEST, "submit_s": 0.0}, script={1: (0,), 2: (1,)})
    assert outcome.end_s.tolist() == [10.0, 30.0]


def test_a_host_of_one_of_two_gpus_takes_the_guest_with_it() -> None:
    outcome = play(HOST, {**GUEST, "gpus": 2}, script={1: (0,), 2: (0, 1)})
    assert record(outcome).revoked.tolist() == [0, 1]
    assert record(outcome).lost_s[1] == pytest.approx(12.2 / 1.5)


def test_nobody_joins_a_job_that_starts_in_the_same_decision() -> None:
    with pytest.raises(SimulatorError, match=r"mechanism 'slurm' cannot do that: .* in the same decision"):
        play(HOST, {**GUEST, "submit_s": 0.0}, script={1: (0,), 2: (0,)})


def test_a_job_that_saves_its_state_loses_less_by_a_failure() -> None:
    workload = Workload.build("made", [{"submit_s": 0.0, "run_s": 100.0, "preemptible": True}])
    cluster = replace(parse_cluster("1x1"), failures=(NodeFailure(0, 35.0, 40.0),))
    for every_s, end_s in ((np.inf, 140.0), (10.0, 110.0), (36.0, 140.0)):
        outcome = simulate(workload, cluster, make_policy("fifo", {}), costs=Costs(checkpoint_every_s=every_s))
        assert outcome.end_s.tolist() == [end_s]


def test_a_job_saves_its_state_after_some_time_or_never() -> None:
    with pytest.raises(
        SimulatorError, match=r"checkpoint_every_s = 0\.0 is not allowed; use a number of seconds above 0"
    ):
        Costs(checkpoint_every_s=0.0)


@pytest.mark.parametrize("name", ["sjf-bsbf", "sjf-ffs", "colocation", "ojpp", "ojpap", "srsf-share", "soda"])
@pytest.mark.parametrize("costs", [Costs(), Costs(restart_s=10.0, checkpoint_s=5.0, checkpoint_every_s=60.0)], ids=str)
def test_every_job_ends_whatever_shares(name: str, costs: Costs) -> None:
    policy = make_policy(name, {"interference": 0.5} if name.startswith("ojp") else {})
    assert isinstance(policy, SharingPolicy)
    work = queue(40, 1)
    rules = replace(RULES, slowdown=1.2)
    outcome = simulate_sharing(work, parse_cluster("2x4"), policy, rules, jobs_per_gpu=policy.jobs_per_gpu, costs=costs)
    assert np.isfinite(outcome.end_s).all()
    assert record(outcome).shared_s.any()
    check_devices(outcome, 2)
    seen = record(outcome)
    if np.isfinite(costs.checkpoint_every_s):
        assert (seen.lost_s <= seen.revoked * costs.checkpoint_every_s).all()
    elif name != "sjf-ffs":  # run times are known, so who joins ends first
        assert not seen.revoked.any()


def test_users_do_not_meet() -> None:
    work = queue(40, 1)
    apart = replace(work, user=np.arange(len(work)), users=tuple(map(str, range(len(work)))))
    rules = replace(RULES, slowdown=1.2)
    outcome = simulate_sharing(apart, parse_cluster("2x4"), make_policy("sjf-bsbf", {}), rules, jobs_per_gpu=2)
    assert not record(outcome).shared_s.any()
