"""What engines make of small cases that can be followed by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from slurm_soda.policies.baselines.fifo import Fifo
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.registry.catalog import policy_names
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.simulator.cluster import NodeFailure, SimulatedCluster, parse_cluster
from slurm_soda.simulator.engine import event_loop
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.workload import Workload
from tests.simulator.engine.worlds import ends, history, job, policy, starts

ONE = parse_cluster("1x1")
TWO = parse_cluster("2x1")
LONG_THEN_SHORT = Workload.build("two", [job(0, 10), job(4, 2)])
"""Under srtf the second one takes the only GPU from 4 to 6."""
NAN = math.nan


@dataclass(frozen=True)
class Speeds:
    """The speed of each row, or of a job on each number of nodes."""

    of: Callable[[int, int], float]

    def ratio(self, row: int, pieces: Sequence[NodeAllocation]) -> float:
        return self.of(row, len(pieces))


def failing(cluster: SimulatedCluster, *failures: tuple[int, float, float]) -> SimulatedCluster:
    return replace(cluster, failures=tuple(NodeFailure(*failure) for failure in failures))


def nodes_of(outcome: SimulationOutcome) -> list[list[tuple[int, int]]]:
    """(node, GPUs) of each segment, in the order of the segments."""
    segments = outcome.segments
    pairs = list(zip(segments.node.tolist(), segments.node_gpus.tolist(), strict=True))
    return [
        pairs[a:b] for a, b in zip(segments.node_start[:-1].tolist(), segments.node_start[1:].tolist(), strict=True)
    ]


@pytest.mark.parametrize(
    ("costs", "told_restart_s", "expected"),
    [
        (Costs(), 0, [(0, 0, 4), (0, 6, 12), (1, 4, 6)]),
        (Costs(start_s=3), 0, [(0, 0, 4), (0, 9, 18), (1, 4, 9)]),
        (Costs(restart_s=1), 0, [(0, 0, 4), (0, 6, 13), (1, 4, 6)]),
        (Costs(restart_s=1), 2, [(0, 0, 4), (0, 6, 15), (1, 4, 6)]),
        (Costs(checkpoint_s=1), 0, [(0, 0, 5), (0, 7, 13), (1, 5, 7)]),
        (Costs(start_s=1, restart_s=2, checkpoint_s=3), 1, [(0, 0, 7), (0, 10, 20), (1, 7, 10)]),
        (Costs(start_s=5), 0, [(0, 0, 4), (0, 11, 21), (1, 4, 11)]),
    ],
    ids=["none", "start", "restart", "own restart", "checkpoint", "all", "preempted before it made progress"],
)
def test_costs(costs: Costs, told_restart_s: float, expected: list[tuple[int, float, float]]) -> None:
    workload = LONG_THEN_SHORT.with_columns(restart_s=np.array([told_restart_s, 0.0]))
    outcome = simulate(workload, ONE, policy("srtf"), costs=costs)
    assert history(outcome) == expected
    assert outcome.preemptions.tolist() == [1, 0]
    assert outcome.held_s.tolist() == [sum(b - a for row, a, b in expected if row == at) for at in (0, 1)]
    assert outcome.segments.end_s.tolist() == sorted(outcome.segments.end_s.tolist())


@pytest.mark.parametrize("engine", ["gpu-count", "nodes", "snapshot"])
def test_a_minimum_run_time_is_over_when_it_is_over(engine: str) -> None:
    assert 0.3 + 0.4 - 0.3 < 0.4  # a sum that is not exact
    workload = Workload.build("two", [job(0.3, 10), job(0.5, 1)])
    assert starts(simulate(workload, ONE, policy("srtf", min_run_s=0.4), engine=engine)) == [0.3, 0.3 + 0.4]


def test_a_cost_is_a_time() -> None:
    assert Costs(restart_s=1e11).restart_s == 1e11
    for wrong in (-1.0, NAN, math.inf, 1.1e11, 1e300):
        with pytest.raises(SimulatorError, match=r"restart_s = .* is not allowed; use a number of seconds from 0"):
            Costs(restart_s=wrong)


def test_rounds_start_jobs_but_do_not_end_them() -> None:
    workload = Workload.build("rounds", [job(1, 5), job(2, 5), job(20, 3), job(30, 1)])
    outcome = simulate(workload, ONE, policy("fifo"), costs=Costs(round_s=10))
    assert history(outcome) == [(0, 10, 15), (1, 20, 25), (2, 30, 33), (3, 40, 41)]


def test_rounds_are_kept_by_preemption_too() -> None:
    outcome = simulate(LONG_THEN_SHORT, ONE, policy("srtf"), costs=Costs(round_s=5))
    assert history(outcome) == [(0, 0, 5), (0, 10, 15), (1, 5, 7)]


def test_what_happens_at_a_round_is_decided_on_then() -> None:
    """Also where the quotient of two such numbers is a bit more than whole."""
    at_s = next(n * 0.2 for n in range(1, 100) if n * 0.2 / 0.2 > n)
    workload = Workload.build("two", [job(0, at_s), job(0, 1)])
    assert starts(simulate(workload, ONE, policy("fifo"), costs=Costs(round_s=0.2))) == [0.0, at_s]


@pytest.mark.parametrize("round_s", [0.1, 0.7, 1.3])
def test_a_round_is_missed_by_no_more_than_rounding(round_s: float) -> None:
    """A threshold that lies one unit of the last place behind a round, which a division does not see."""
    rounds = (n * round_s for n in range(1, 10_000))
    threshold = next(
        at for at in (math.nextafter(s, math.inf) for s in rounds) if math.ceil(at / round_s) * round_s < at
    )
    workload = Workload.build("two", [job(0, threshold + 100), job(0, 1)])
    las = policy("tiresias-las", thresholds_gpu_s=[threshold])
    outcome = simulate(workload, ONE, las, costs=Costs(round_s=round_s))
    assert starts(outcome) == [0, pytest.approx(threshold)]


def test_a_failure_takes_progress_and_nobody_else() -> None:
    workload = Workload.build("two", [job(0, 10), job(0, 10)])
    outcome = simulate(workload, failing(TWO, (0, 4, 6)), policy("fifo"), costs=Costs(restart_s=1))
    assert history(outcome) == [(0, 0, 4), (0, 6, 17), (1, 0, 10)]
    assert (outcome.failures.tolist(), outcome.preemptions.tolist()) == ([1, 0], [0, 0])
    assert nodes_of(outcome) == [[(0, 1)], [(1, 1)], [(0, 1)]]


def test_only_the_progress_of_the_present_run_is_lost() -> None:
    outcome = simulate(LONG_THEN_SHORT, failing(ONE, (0, 8, 9)), policy("srtf"))
    assert history(outcome) == [(0, 0, 4), (0, 6, 8), (0, 9, 15), (1, 4, 6)]


def test_a_gang_fails_with_any_of_its_nodes_and_starts_elsewhere() -> None:
    workload = Workload.build("gang", [job(0, 10, 2, nodes=2, gpus_per_node=1)])
    outcome = simulate(workload, failing(parse_cluster("3x1"), (1, 4, math.inf)), policy("fifo"))
    assert history(outcome) == [(0, 0, 4), (0, 4, 14)]
    assert nodes_of(outcome) == [[(0, 1), (1, 1)], [(0, 1), (2, 1)]]


def test_a_job_that_saves_its_state_loses_it_with_its_node() -> None:
    outcome = simulate(LONG_THEN_SHORT, failing(ONE, (0, 5, 7)), policy("srtf"), costs=Costs(checkpoint_s=3))
    assert history(outcome) == [(0, 0, 5), (0, 9, 19), (1, 7, 9)]
    assert (outcome.failures.tolist(), outcome.preemptions.tolist()) == ([1, 0], [1, 0])


@pytest.mark.parametrize(
    ("failures", "start_s"),
    [
        ([(0, 0, 10), (0, 10, 20)], 20),
        ([(0, 10, 20), (0, 0, 10)], 20),
        ([(0, 0, 20), (0, 3, 6)], 20),
        ([(0, 0, 12), (0, 3, 15)], 15),
        ([(0, 5, 5)], 5),
        ([(0, 6, 9)], 5),
    ],
)
def test_failures_may_follow_each_other_or_overlap(failures: list[tuple[int, float, float]], start_s: float) -> None:
    outcome = simulate(Workload.build("one", [job(5, 1)]), failing(ONE, *failures), policy("fifo"))
    assert starts(outcome) == [start_s]


@pytest.mark.parametrize("failure", [(1, 0, 1), (-1, 0, 1), (0, 2, 1)])
def test_a_failure_that_cannot_be(failure: tuple[int, float, float]) -> None:
    with pytest.raises(SimulatorError, match=r"Failure\(node=.* cannot be: node is a row from 0 to 0"):
        simulate(Workload.build("one", [job(0, 1)]), failing(ONE, failure), policy("fifo"))


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", policy_names())
def test_what_can_never_run_again_stays_unfinished(name: str) -> None:
    """Also where the policy wants to look again and again, as time slices and priorities that grow with age do."""
    rows = [{**row, "preemptible": False} for row in (job(0, 10), job(1, 10), job(2, 30, user="other"))]
    workload = Workload.build("three", rows)
    outcome = simulate(workload, failing(TWO, (0, 4, math.inf), (1, 5, math.inf)), policy(name))
    assert ends(outcome) == [pytest.approx(NAN, nan_ok=True)] * 3
    assert outcome.failures.sum() == len(outcome.segments.job)


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", policy_names())
@pytest.mark.parametrize("asked", [{"gpus": 3}, {"gpus": 1, "cpus": 9}, {"gpus": 1, "gpu_type": "h100"},
                                   {"gpus": 2, "gpus_per_node": 2}, {"gpus": 0, "cpus": 9}], ids=str)  # fmt: skip
def test_a_job_larger_than_the_cluster_holds_up_nobody(name: str, asked: dict[str, int]) -> None:
    workload = Workload.build("three", [job(0, 5), {**job(0, 5), **asked}, job(1, 5), job(2, 5)])
    outcome = simulate(workload, parse_cluster("2x1:a100/4c"), policy(name))
    assert np.isnan(outcome.end_s).tolist() == [False, True, False, False]
    assert starts(outcome)[2] == 1


@pytest.mark.parametrize("engine", ["gpu-count", "nodes", "snapshot"])
def test_speed(engine: str) -> None:
    if engine == "gpu-count":
        with pytest.raises(SimulatorError, match="nodes matter here"):
            simulate(LONG_THEN_SHORT, ONE, policy("srtf"), speed=Speeds(lambda *_: 1.0), engine=engine)
        return
    halved = Speeds(lambda row, _: 0.5 if row == 0 else 2.0)
    outcome = simulate(LONG_THEN_SHORT, ONE, policy("srtf"), speed=halved, costs=Costs(restart_s=1), engine=engine)
    assert history(outcome) == [(0, 0, 4), (0, 5, 22), (1, 4, 5)]


@pytest.mark.parametrize("ratio", [0.0, -1.0, NAN])
def test_a_speed_is_positive(ratio: float) -> None:
    with pytest.raises(SimulatorError, match=r"job 2 would run at speed .*; use a ratio above 0"):
        simulate(LONG_THEN_SHORT, TWO, policy("fifo"), speed=Speeds(lambda row, _: ratio if row else 1.0))


@pytest.mark.parametrize("engine", ["gpu-count", "nodes", "snapshot"])
@pytest.mark.parametrize(
    ("name", "told_s", "expected"),
    [
        ("sjf", [3, 1, NAN], [(0, 0, 10), (1, 10, 15), (2, 15, 16)]),
        ("sjf", [1, 1, 0.5], [(0, 0, 10), (1, 11, 16), (2, 10, 11)]),
        ("srtf", [100, 4, NAN], [(0, 0, 2), (0, 7, 15), (1, 2, 7), (2, 15, 16)]),
        ("srtf", [1, 4, 3], [(0, 0, 2), (0, 8, 16), (1, 2, 7), (2, 7, 8)]),
        ("srsf", [NAN, 4, 3], [(0, 0, 2), (0, 8, 16), (1, 2, 7), (2, 7, 8)]),
        ("srsf", [NAN, NAN, NAN], [(0, 0, 10), (1, 10, 15), (2, 15, 16)]),
    ],
)
def test_policies_believe_what_they_are_told_and_the_clock_does_not(
    engine: str, name: str, told_s: list[float], expected: list[tuple[int, float, float]]
) -> None:
    rows = [job(0, 10), job(2, 5), job(3, 1)]
    workload = Workload.build("told", [{**row, "expected_s": told} for row, told in zip(rows, told_s, strict=True)])
    if name != "sjf" and engine != "snapshot":  # their order by events holds for the truth only
        with pytest.raises(SimulatorError, match="needs whole snapshots"):
            simulate(workload, ONE, policy(name), engine=engine)
        return
    outcome = simulate(workload, ONE, policy(name), engine=engine)
    assert history(outcome) == expected


def test_spread_takes_from_the_node_that_has_the_most() -> None:
    workload = Workload.build("spread", [job(0, 10, 2), job(0, 10, 2), job(0, 10, 4), job(11, 3, 5)])
    halved = Speeds(lambda _, nodes: 1 / nodes)
    outcome = simulate(workload, parse_cluster("2x4"), policy("fifo"), placement="spread", speed=halved)
    assert ends(outcome) == [10, 10, 20, 26]
    assert nodes_of(outcome) == [[(0, 2)], [(1, 2)], [(0, 2), (1, 2)], [(0, 4), (1, 1)]]


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", policy_names())
def test_no_jobs(name: str) -> None:
    outcome = simulate(Workload.build("none", []), failing(TWO, (0, 1, 2)), policy(name))
    assert len(outcome.end_s) == len(outcome.held_s) == len(outcome.segments.job) == 0


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", policy_names())
def test_equal_jobs_run_by_submission(name: str) -> None:
    workload = Workload.build("array", [job(0, 10, user="a") for _ in range(60)])
    outcome = simulate(workload, parse_cluster("2x5"), policy(name))
    assert starts(outcome) == [row // 10 * 10 for row in range(60)]
    assert outcome.preemptions.sum() == 0


def test_promotion_gives_turns() -> None:
    workload = Workload.build("two", [job(0, 20), job(0, 20)])
    parameters = {"thresholds_gpu_s": [5], "within_queue": "start"}
    never, turns = (
        simulate(workload, ONE, policy("tiresias-las", promote_knob=knob, **parameters)) for knob in (math.inf, 1)
    )
    assert history(never) == [(0, 0, 5), (0, 10, 25), (1, 5, 10), (1, 25, 40)]
    assert history(turns) == [(row, at, at + 5) for row in (0, 1) for at in range(5 * row, 40, 10)]
    assert turns.held_s.tolist() == [20, 20]


@pytest.mark.parametrize("name", ["fifo", "fifo-skip", "backfill", "srtf", "tiresias-las"])
def test_partitions_do_not_wait_for_each_other(name: str) -> None:
    cluster = replace(parse_cluster("2x1", ("a", "b")), in_partition=np.eye(2, dtype=np.bool_))
    rows = [job(0, 10, partition="b"), job(0, 10, partition="b"), job(1, 10, partition="a"), job(2, 1, partition="c")]
    outcome = simulate(Workload.build("parts", rows), cluster, policy(name))
    assert ends(outcome) == [10, 20, 11, pytest.approx(NAN, nan_ok=True)]
    assert nodes_of(outcome) == [[(1, 1)], [(0, 1)], [(1, 1)]]


@pytest.mark.parametrize("name", ["fifo-skip", "srsf", "tiresias-las", "gandiva"])
def test_gpu_types(name: str) -> None:
    rows = [job(0, 10, 2, gpu_type="v100"), job(0, 10, gpu_type="v100"), job(0, 10), job(0, 10, gpu_type="a100")]
    cluster = parse_cluster("1x2:a100+1x2:v100")
    outcome = simulate(Workload.build("types", [{**row, "preemptible": False} for row in rows]), cluster, policy(name))
    at = {row: node for row, ((node, _),) in zip(outcome.segments.job.tolist(), nodes_of(outcome), strict=True)}
    assert {row: at[row] for row in (0, 1, 3)} == {0: 1, 1: 1, 3: 0}
    assert sorted(starts(outcome)) in ([0, 0, 0, 10], [0, 0, 10, 10])


@dataclass(frozen=True)
class Fickle:
    """Wants to be asked again a little later, whatever it decides."""

    pause_s: float
    name: str = "fickle"

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        return replace(Fifo().decide(snapshot), next_event_s=snapshot.now_s + self.pause_s)


def at_most(monkeypatch: pytest.MonkeyPatch, decisions: int) -> None:
    """So many decisions without news, and the policy is taken never to come to rest."""
    monkeypatch.setattr(event_loop, "_DECISIONS_PER_REST_CHECK", decisions)


@pytest.mark.parametrize("decisions", [100, pytest.param(1000, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("pause_s", [0.0, 1e-9])
def test_a_policy_that_never_comes_to_rest_is_named(
    monkeypatch: pytest.MonkeyPatch, pause_s: float, decisions: int
) -> None:
    at_most(monkeypatch, decisions)
    with pytest.raises(SimulatorError, match="policy fickle does not come to rest at 3 s"):
        simulate(Workload.build("one", [job(3, 1)]), ONE, Fickle(pause_s))


@pytest.mark.parametrize(
    ("decisions", "run_s", "rounds"), [(100, 30, 128), pytest.param(1000, 300, 1166, marks=pytest.mark.thorough)]
)
def test_a_policy_may_look_as_often_as_it_likes_while_time_passes(
    monkeypatch: pytest.MonkeyPatch, decisions: int, run_s: float, rounds: int
) -> None:
    """So many decisions without news are no reason to stop, as long as a job runs or news may wait for its round."""
    at_most(monkeypatch, decisions)
    workload = Workload.build("two", [job(3, run_s), job(4, 1)])
    outcome = simulate(workload, ONE, Fickle(0.1), costs=Costs(round_s=0.26))
    assert outcome.decisions > 2 * decisions
    assert starts(outcome) == [pytest.approx(12 * 0.26), pytest.approx(rounds * 0.26)]


@pytest.mark.thorough  # a thousand preemptions; the same with a hundred in tests/sodactl/test_compare.py
def test_jobs_that_are_preempted_before_they_can_do_anything_are_an_error() -> None:
    workload = Workload.build("w", [job(0, 100, 4), job(1, 100, 4), job(2, 100, 4)])
    with pytest.raises(SimulatorError, match=r"preempted 1031 times on end .* a longer min_run_s or quantum_s"):
        simulate(workload, parse_cluster("1x4"), policy("gandiva", quantum_s=1), costs=Costs(start_s=2, restart_s=2))
    slow = simulate(workload, parse_cluster("1x4"), policy("gandiva", quantum_s=3), costs=Costs(start_s=2, restart_s=2))
    assert not np.isnan(slow.end_s).any()
