"""Pairs that part in a simulation: who, when, what it costs, and that they do not meet again."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.policy import Policy
from slurm_soda.policies.registry.catalog import make_policy, policy_names
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, SLURM, Mechanism
from slurm_soda.policies.sharing.parting.part_pairs import TRIGGER
from slurm_soda.policies.sharing.snapshot import SharingPolicy, SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.report.summary import summarise
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.sharing.simulate_sharing import simulate_sharing
from slurm_soda.simulator.sharing.true_slowdowns import PerfectKnowledge, UniformSlowdown
from slurm_soda.simulator.workload import Workload
from tests.sampling import examples
from tests.simulator.sharing.players import Restless, Scripted
from tests.simulator.sharing.replay import devices_of

HOPED = PerfectKnowledge(UniformSlowdown(1.2))
RULES = SharingRules(slowdown=2.0, knowledge="predicted", predictor=HOPED)
SHARING = [name for name in policy_names() if isinstance(make_policy(name), SharingPolicy)]
EASY = {"ojpp": {"interference": 0.6, "balance": 0.6}, "ojpap": {"interference": 0.6, "balance": 0.6}}
HOST, GUEST = {"submit_s": 0.0, "run_s": 1000.0}, {"submit_s": 10.0, "run_s": 300.0}


def play(
    *rows: dict[str, Any], script: dict[int, tuple[int, ...]], rules: SharingRules = RULES, **costs: float
) -> SimulationOutcome:
    workload = Workload.build("made", [{"model": "m", "preemptible": True, **row} for row in rows])
    return simulate_sharing(workload, parse_cluster("1x2"), Once(script), rules, jobs_per_gpu=3, costs=Costs(**costs))


class Once(Scripted):
    """As scripted; who was parted starts again on GPU 1."""

    def decide(self, snapshot: ClusterSnapshot) -> Any:
        assert isinstance(snapshot, SharingSnapshot)
        apart = {one for pair in snapshot.sharing.apart for one in pair}
        self.script = {one: (1,) if one in apart else held for one, held in self.script.items()}
        return super().decide(snapshot)


@pytest.mark.parametrize("mechanism", [IDEAL, SLURM], ids=lambda mechanism: mechanism.name)
@pytest.mark.parametrize("bounded", [0, 1])
def test_a_guest_leaves_once_its_bound_or_its_hosts_has_been_broken_for_a_minute(
    mechanism: Mechanism, bounded: int
) -> None:
    rows = [dict(HOST), dict(GUEST)]
    rows[bounded]["max_slowdown"] = 1.3
    outcome = play(
        *rows, script={1: (0,), 2: (0,)}, rules=replace(RULES, mechanism=mechanism), checkpoint_s=4.0, restart_s=5.0
    )  # fmt: skip
    seen = outcome.sharing
    assert seen is not None
    assert seen.parted.tolist() == outcome.preemptions.tolist() == [0, 1]
    assert summarise(outcome).parted == 1
    # The guest makes progress for 60 s at half the speed, holds its GPU for 4 s more, and needs 5 s to start again.
    left_s = 10.0 + mechanism.start_s + 60.0 + 4.0
    assert outcome.end_s.tolist() == pytest.approx([1000.0 + (left_s - 10.0) / 2, left_s + 5.0 + 270.0])
    assert seen.lost_s.tolist() == [0.0, 0.0]


def test_nobody_is_parted_without_a_bound_within_it_or_where_nobody_looks() -> None:
    bounded = {**GUEST, "max_slowdown": 1.3}
    for guest, rules in (
        (GUEST, RULES), ({**GUEST, "max_slowdown": 2.0}, RULES), (bounded, replace(RULES, observes=False)),
        (bounded, replace(RULES, parts=False)), ({**bounded, "preemptible": False}, RULES),
        ({**bounded, "run_s": 29.0}, RULES),
    ):  # fmt: skip
        outcome = play(HOST, guest, script={1: (0,), 2: (0,)}, rules=rules)
        assert outcome.sharing is not None
        assert not outcome.sharing.parted.any()
        assert outcome.end_s[1] == 10.0 + 2.0 * guest["run_s"]


def test_of_several_guests_the_last_one_leaves_and_time_is_counted_from_when_it_came() -> None:
    rules = replace(RULES, slowdown=1.4)
    outcome = play(
        {**HOST, "max_slowdown": 1.5}, GUEST, {**GUEST, "submit_s": 40.0}, script={1: (0,), 2: (0,), 3: (0,)}, rules=rules
    )  # fmt: skip
    assert outcome.sharing is not None
    assert outcome.sharing.parted.tolist() == [0, 0, 1]
    assert outcome.segments.end_s[np.flatnonzero(outcome.segments.job == 2)[0]] == 100.0


@pytest.mark.parametrize("name", ["sjf-ffs", "sjf-bsbf", "srsf-share"])
@pytest.mark.parametrize("mechanism", [IDEAL, SLURM], ids=lambda mechanism: mechanism.name)
def test_short_guests_one_after_the_other_do_not_keep_their_host_beyond_its_bound(
    name: str, mechanism: Mechanism
) -> None:
    """Each would be gone before its minute is over."""
    host = {"submit_s": 0.0, "run_s": 1000.0, "model": "m", "max_slowdown": 1.5}
    guests = [{"submit_s": 10.0 + at, "run_s": 25.0, "model": "m"} for at in range(15)]
    rules = replace(RULES, mechanism=mechanism)
    policy = make_policy(name, EASY.get(name, {}))
    work = Workload.build("made", [{**row, "preemptible": at > 0} for at, row in enumerate([host, *guests])])
    outcome = simulate_sharing(work, parse_cluster("1x1"), policy, rules, jobs_per_gpu=2, costs=Costs())
    parts, mine = outcome.segments, meetings(outcome)
    beside = sorted(span for pair, spans in mine.items() if 1 in pair for span in spans)
    assert len(beside) > 1
    for (begun_s, end_s), (next_s, _) in itertools.pairwise(beside):
        # At half the speed, with a bound of 1.5: 0.25 s behind for each second beside another; alone, it makes up for 0.5 s.
        assert next_s >= end_s + (end_s - begun_s) / 2 - 0.7
    assert outcome.end_s[0] <= 1000.0 * 1.5
    assert len(parts.job) >= 16


@pytest.mark.parametrize("name", ["sjf-ffs", "srsf-share"])
def test_policies_are_asked_when_a_minute_is_over_though_nothing_else_happens(name: str) -> None:
    rows = [{"submit_s": 0.0, "run_s": 1000.0, "model": "m"}, {"submit_s": 0.0, "run_s": 900.0, "model": "m"}]
    workload = Workload.build("made", [{**row, "max_slowdown": 1.3} for row in rows])
    outcome = simulate_sharing(workload, parse_cluster("1x1"), make_policy(name, {}), RULES, jobs_per_gpu=2)
    assert outcome.segments.end_s[0] == 60.0
    assert outcome.preemptions.sum() == 1


def test_a_slowdown_is_seen_while_jobs_make_progress_beside_each_other_and_only_then() -> None:
    seen: list[tuple[float, list[float], list[float]]] = []

    def look(snapshot: SharingSnapshot) -> None:
        sharing = snapshot.sharing
        seen.append((snapshot.now_s, sharing.observed_slowdown.tolist(), sharing.together_s.tolist()))

    policy = Once({1: (0,), 2: (0,), 3: (1,), 4: (1,), 5: (0,)}, look=look)
    rows = [HOST, {**GUEST, "max_slowdown": 1.3}, {"submit_s": 12.0, "run_s": 1.0}, {"submit_s": 30.0, "run_s": 1.0}]
    rows.append({"submit_s": 200.0, "run_s": 1.0})
    workload = Workload.build("made", [{"model": "m", "preemptible": True, **row} for row in rows])
    simulate_sharing(workload, parse_cluster("1x2"), policy, RULES, jobs_per_gpu=2, costs=Costs(start_s=15.0))
    nobody = float("nan")
    at: dict[float, tuple[list[float], list[float]]] = {}
    for now_s, slowdown, lasted_s in seen:
        at.setdefault(now_s, (slowdown[:2], lasted_s[:2]))
    assert at[10.0][0] == pytest.approx([nobody, nobody], nan_ok=True)
    assert at[12.0] == (pytest.approx([nobody, nobody], nan_ok=True), pytest.approx([nobody, nobody], nan_ok=True))
    assert at[30.0] == ([2.0, 2.0], [5.0, 5.0])
    assert at[85.0] == ([2.0, 2.0], [60.0, 60.0])
    assert np.isnan(at[200.0]).all(), "both run again, each alone"


@dataclass
class Watching:
    """A policy, and what its snapshots showed of pairs: of each that met, since when; and those that were apart."""

    policy: Policy
    apart: dict[tuple[int, int], float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def jobs_per_gpu(self) -> int:
        assert isinstance(self.policy, SharingPolicy)
        return self.policy.jobs_per_gpu

    def decide(self, snapshot: ClusterSnapshot) -> Any:
        assert isinstance(snapshot, SharingSnapshot)
        for pair in snapshot.sharing.apart:
            self.apart.setdefault(pair, snapshot.now_s)
        return self.policy.decide(snapshot)


def draw_work(seed: int, jobs: int = 40) -> Workload:
    draw = np.random.default_rng(seed)
    rows = [{
        "submit_s": draw.uniform(0, 600), "run_s": draw.exponential(400) + 1, "gpus": int(draw.integers(1, 4)),
        "model": "abc"[int(draw.integers(3))], "shares": bool(draw.random() < 0.9),
        "preemptible": bool(draw.random() < 0.9),
        "max_slowdown": float(draw.choice([1.25, 1.3, 2.5, np.inf])),
    } for _ in range(jobs)]  # fmt: skip
    return Workload.build("bounded", rows)


def meetings(outcome: SimulationOutcome) -> dict[tuple[int, int], list[tuple[float, float]]]:
    """When any two jobs, by id, were on one GPU."""
    parts, on = outcome.segments, devices_of(outcome)
    found: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for one in range(len(on)):
        for other in range(len(on)):
            pair = int(parts.job[one]) + 1, int(parts.job[other]) + 1
            begun_s = max(float(parts.start_s[one]), float(parts.start_s[other]))
            end_s = min(float(parts.end_s[one]), float(parts.end_s[other]))
            if pair[0] < pair[1] and begun_s < end_s and set(on[one]) & set(on[other]):
                found.setdefault(pair, []).append((begun_s, end_s))
    return found


@pytest.mark.parametrize("name", [*SHARING, "restless"])
@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 10**6), mechanism=st.sampled_from((IDEAL, SLURM)), truth=st.sampled_from((1.22, 1.28, 2.0)),
    costs=st.sampled_from((Costs(), Costs(checkpoint_s=5.0, restart_s=10.0), Costs(round_s=30.0))),
)  # fmt: skip
def test_pairs_part_after_their_grace_only_beyond_a_bound_and_for_ever(
    name: str, seed: int, mechanism: Mechanism, truth: float, costs: Costs
) -> None:
    if name == "restless":
        mechanism = IDEAL
    work = draw_work(seed)
    policy = Watching(Restless(seed, 3) if name == "restless" else make_policy(name, EASY.get(name, {})))
    rules = replace(RULES, slowdown=truth, mechanism=mechanism)
    outcome = simulate_sharing(work, parse_cluster("2x4"), policy, rules, jobs_per_gpu=policy.jobs_per_gpu, costs=costs)
    seen = outcome.sharing
    assert seen is not None
    assert np.isfinite(outcome.end_s).all()
    met = meetings(outcome)
    for pair, since_s in policy.apart.items():
        assert pair in met
        last_s = max(end_s for _, end_s in met[pair])
        assert last_s <= since_s + costs.checkpoint_s, f"{pair} met again"
        assert max(begun_s for begun_s, _ in met[pair]) + TRIGGER.interval_s <= last_s + 1e-6
    parted = np.flatnonzero(seen.parted)
    assert work.preemptible[parted].all()
    if (work.max_slowdown >= seen.worst_xi)[np.isfinite(seen.worst_xi)].all():
        assert not len(parted)
