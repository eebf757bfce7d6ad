"""Whole runs whose outcome is known on paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.sharing.job_kinds import Source
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.simulator.cluster import NodeFailure, parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.report.charts.curves import UsageCurve
from slurm_soda.simulator.report.charts.sharing_gantt import make_gantt
from slurm_soda.simulator.report.per_job import per_job_csv
from slurm_soda.simulator.report.sharing_summary import gpu_usage_curve
from slurm_soda.simulator.report.summary import summarise
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.sharing.simulate_sharing import simulate_sharing
from slurm_soda.simulator.workload import Workload
from tests.simulator.sharing.players import Scripted, plan_of, seen, work


def play(
    workload: Workload, script: Mapping[int, Sequence[int]], pairs: Path, cluster: str = "1x2", *,
    costs: Costs | None = None, **more: Any,
) -> SimulationOutcome:  # fmt: skip
    """Run a script under full knowledge, unless ``more`` says otherwise (of the rules, or of the player)."""
    rules = {key: more.pop(key) for key in ("knowledge", "predictor", "observes") if key in more}
    player = Scripted(script, **more)
    return simulate_sharing(
        workload, parse_cluster(cluster), player, SharingRules(pairs=pairs, **rules), jobs_per_gpu=player.jobs_per_gpu,
        costs=costs,
    )  # fmt: skip


def test_two_jobs_slow_each_other_until_one_ends(pairs: Path) -> None:
    # A's 16 beside B runs as alone, B at 1/1.25: after 100 s it has done 80 s, and the rest alone.
    outcome = play(work({"model": "A", "batch_size": 16}, {}), {1: [0], 2: [0]}, pairs)
    assert outcome.end_s.tolist() == pytest.approx([100.0, 120.0])
    record = seen(outcome)
    assert record.shared_s.tolist() == pytest.approx([100.0, 100.0])
    assert record.xi.tolist() == pytest.approx([1.0, 1.25])
    assert record.worst_xi.tolist() == pytest.approx([1.0, 1.25])
    assert record.partners.tolist() == [1, 1]
    assert (record.busy_gpu_s, record.shared_gpu_s) == pytest.approx((120.0, 100.0))


def test_a_late_comer_slows_who_is_there_from_then_on(pairs: Path) -> None:
    # B alone until 40, then two B at 1/2.5: the first needs 60 x 2.5 more; the second has done 60 by then.
    outcome = play(work({}, {"submit_s": 40.0}), {1: [0], 2: [0]}, pairs)
    assert outcome.end_s.tolist() == pytest.approx([190.0, 230.0])


def test_a_gang_is_as_slow_as_its_worst_gpu(pairs: Path) -> None:
    # On GPU 0 beside A's 32 (xi 2), on GPU 1 beside A's 16 (1.25), on GPU 2 alone.
    rows = work({"model": "A", "batch_size": 32}, {"model": "A", "batch_size": 16}, {"gpus": 3, "run_s": 10.0})
    outcome = play(rows, {1: [0], 2: [1], 3: [0, 1, 2]}, pairs, "1x3")
    assert outcome.end_s[2] == pytest.approx(20.0)
    assert seen(outcome).partners.tolist() == [1, 1, 2]


def test_three_on_a_gpu_add_up(pairs: Path) -> None:
    rows = work({"model": "A", "batch_size": 16}, {"model": "A", "batch_size": 32}, {"run_s": 10.0})
    outcome = play(rows, {1: [0], 2: [0], 3: [0]}, pairs, jobs_per_gpu=3)
    assert outcome.end_s[2] == pytest.approx(10.0 * (1.25 + 2.0 - 1.0))


def test_accumulation_costs_time_but_may_make_room(pairs: Path) -> None:
    # A with 32 does not fit beside Big, in two passes of 16 it does: 1.6 x 2.5 times as long.
    rows = work({"model": "Big", "run_s": 1000.0}, {"model": "A", "batch_size": 32, "run_s": 10.0})
    outcome = play(rows, {1: [0], 2: [0]}, pairs, sub_batches={2: 16})
    assert outcome.end_s[1] == pytest.approx(10.0 * 1.6 * 2.5)
    assert seen(outcome).sub_batch.tolist() == [0, 16]
    with pytest.raises(SimulatorError, match="starts job 2 where it cannot: it is known not to fit into GPU 0"):
        play(rows, {1: [0], 2: [0]}, pairs)


def test_starting_takes_its_time_beside_others_too(pairs: Path) -> None:
    outcome = play(work({"model": "A", "batch_size": 16}, {}), {1: [0], 2: [0]}, pairs, costs=Costs(start_s=20.0))
    assert outcome.end_s.tolist() == pytest.approx([120.0, 140.0])  # 100 s of B at 1/1.25, then 20 s


def test_places_have_their_own_part_in_speed(pairs: Path) -> None:
    class Halves:
        """A gang on two nodes runs at half speed."""

        def ratio(self, row: int, pieces: Sequence[NodeAllocation]) -> float:
            del row
            return 1.0 / len(pieces)

    rows, rules = work({"gpus": 2, "run_s": 10.0}, {"model": "A", "batch_size": 32}), SharingRules(pairs=pairs)
    player = Scripted({1: [0, 1], 2: [1]})
    outcome = simulate_sharing(rows, parse_cluster("2x1"), player, rules, jobs_per_gpu=2, speed=Halves())
    assert outcome.end_s[0] == pytest.approx(10.0 * 2.0 * 2.0)
    assert outcome.end_s[1] == pytest.approx(40.0 + 100.0 - 40.0 / 1.6)


def test_a_job_that_saves_its_state_still_slows_its_partner(pairs: Path) -> None:
    class Stopper(Scripted):
        def decide(self, snapshot: ClusterSnapshot) -> Plan:
            if snapshot.now_s == 20.0 and not snapshot.jobs.preemptions.any():
                return plan_of(snapshot, {}, [2])
            return (
                super().decide(snapshot) if snapshot.now_s < 20.0 or snapshot.now_s > 100.0 else plan_of(snapshot, {})
            )

    rows = work({}, {}, {"submit_s": 20.0, "run_s": 1.0}, {"submit_s": 200.0, "run_s": 1.0})
    player, costs = Stopper({1: [0], 2: [0], 3: [1], 4: [1]}), Costs(checkpoint_s=5.0)
    outcome = simulate_sharing(
        rows, parse_cluster("1x2"), player, SharingRules(pairs=pairs), jobs_per_gpu=2, costs=costs
    )
    # Two B at 1/2.5 until 25, where job 2 leaves with the 8 s that it had at 20.
    assert outcome.end_s[0] == pytest.approx(25.0 + 90.0)
    assert outcome.held_s[1] == pytest.approx(25.0 + 92.0)
    assert outcome.preemptions.tolist() == [0, 1, 0, 0]


def test_who_does_not_fit_is_requeued_and_the_pair_is_remembered(pairs: Path) -> None:
    told: list[bool | None] = []

    class Hopeful(Scripted):
        """Tries GPU 0 once more only if nobody says that it is in vain."""

        def decide(self, snapshot: ClusterSnapshot) -> Plan:
            assert isinstance(snapshot, SharingSnapshot)
            kinds = snapshot.sharing.kinds
            fits = snapshot.known.fits((kinds[0], kinds[0]))
            told.append(fits)
            self.script = {1: [0], 2: [1]} if fits is False else {1: [0], 2: [0]}
            return super().decide(snapshot)

    rows = work({"model": "Big"}, {"model": "Big", "submit_s": 10.0})
    rules = SharingRules(pairs=pairs, knowledge="prior")
    costs = Costs(start_s=5.0, restart_s=2.0)
    outcome = simulate_sharing(rows, parse_cluster("1x2"), Hopeful({}), rules, jobs_per_gpu=2, costs=costs)
    assert told[:2] == [None, None]
    assert told[2] is False
    assert outcome.end_s.tolist() == pytest.approx([105.0, 117.0])  # fails at 15, starts again there
    assert seen(outcome).out_of_memory.tolist() == [0, 1]
    assert outcome.preemptions.tolist() == outcome.failures.tolist() == [0, 0]
    assert not seen(outcome).shared_s.any()


def test_what_was_seen_for_a_minute_is_known(pairs: Path) -> None:
    def xi_seen(**more: Any) -> list[tuple[float, float, Source]]:
        found = []

        def look(snapshot: SharingSnapshot) -> None:
            kind = snapshot.sharing.kinds[0]
            xi = snapshot.known.xi(kind, (kind,))
            assert xi is not None
            found.append((snapshot.now_s, xi.value, xi.source))

        late = [{"submit_s": at, "run_s": 1.0, "gpus": 1} for at in (69.0, 70.0)]
        rows = work({}, {"submit_s": 10.0}, *late)
        play(rows, {1: [0], 2: [0]} | {3: [1], 4: [1]}, pairs, look=look, knowledge="prior", **more)
        return [entry for entry in found if entry[0] in (69.0, 70.0)]

    assert [entry[1:] for entry in xi_seen()] == [(2.0, Source.PRIOR), (2.5, Source.MEASURED)]
    assert [entry[1:] for entry in xi_seen(observes=False)] == [(2.0, Source.PRIOR)] * 2


def test_a_failing_node_frees_the_partners_on_others(pairs: Path) -> None:
    # The gang of job 2 is on both nodes; node 2 fails at 50, so job 1 runs alone from then on, and job 2 starts anew.
    rows = work(
        {"model": "A", "batch_size": 32}, {"gpus": 2, "run_s": 10.0}, {"gpus": 1, "run_s": 1.0, "submit_s": 500.0}
    )
    cluster = replace(parse_cluster("2x1"), failures=(NodeFailure(1, 5.0, 300.0),))

    class Patient(Scripted):
        def decide(self, snapshot: ClusterSnapshot) -> Plan:
            self.script = {1: [0], 2: [0, 1], 3: [0]} if snapshot.nodes.usable.all() else {1: [0]}
            return super().decide(snapshot)

    outcome = simulate_sharing(rows, cluster, Patient({}), SharingRules(pairs=pairs), jobs_per_gpu=2)
    # A's 32 beside B: 1.6; 5 s of it, then alone.
    assert outcome.end_s[0] == pytest.approx(5.0 + 100.0 - 5.0 / 1.6)
    assert outcome.end_s[1] == pytest.approx(300.0 + 10.0)
    assert outcome.failures.tolist() == [0, 1, 0]


class Mover:
    """At 20 s moves job 2 from beside job 1 to a GPU of its own."""

    name = "mover"
    jobs_per_gpu = 2

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        starting = {one: [0] for one in snapshot.jobs.job_id[snapshot.jobs.state == 0].tolist()}
        if snapshot.now_s == 20.0 and not snapshot.jobs.preemptions.any():
            return plan_of(snapshot, {**starting, 2: [1], 3: [1]}, [2])
        return plan_of(snapshot, starting)


def test_a_job_is_moved_by_one_plan(pairs: Path) -> None:
    rows = work({}, {}, {"submit_s": 20.0, "model": "A", "batch_size": 16, "run_s": 10.0})
    outcome = simulate_sharing(
        rows, parse_cluster("1x2"), Mover(), SharingRules(pairs=pairs), jobs_per_gpu=2, costs=Costs(restart_s=4.0)
    )
    # Until 20 both B run at 1/2.5. Then job 1 is alone; job 2 restarts beside A, which ends at 30: 6 s at 1/1.25.
    assert outcome.end_s.tolist() == pytest.approx([20.0 + 92.0, 30.0 + 92.0 - 6.0 / 1.25, 30.0])
    assert outcome.preemptions.tolist() == [0, 1, 0]


class AccumulatingMover:
    """At 2 s moves job 2 beside job 1, where it accumulates gradients; notes its sub-batch at each decision."""

    name = "accumulating mover"
    jobs_per_gpu = 2

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        assert isinstance(snapshot, SharingSnapshot)
        if 2 in snapshot.jobs.job_id:
            self.seen.append((snapshot.now_s, int(snapshot.sharing.sub_batch[snapshot.jobs.row(2)])))
        starting = {one: [one - 1] for one in snapshot.jobs.job_id[snapshot.jobs.state == 0].tolist()}
        if snapshot.now_s == 2.0 and not snapshot.jobs.preemptions.any():
            return plan_of(snapshot, {**starting, 2: [0]}, [2], {2: 16})
        return plan_of(snapshot, starting)


def test_a_job_that_moves_is_shown_with_the_sub_batch_that_it_then_has(pairs: Path) -> None:
    rows = work(
        {"model": "Big", "run_s": 1000.0}, {"model": "A", "batch_size": 32}, {"submit_s": 2.0}, {"submit_s": 5.0}
    )
    mover = AccumulatingMover()
    outcome = simulate_sharing(rows, parse_cluster("1x4"), mover, SharingRules(pairs=pairs), jobs_per_gpu=2)
    assert outcome.preemptions.tolist() == [0, 1, 0, 0]
    assert not seen(outcome).out_of_memory.any()
    assert {sub_batch for now_s, sub_batch in mover.seen if now_s < 2.0} == {32}
    assert {sub_batch for now_s, sub_batch in mover.seen if now_s >= 5.0} == {16}


class Strict:
    """Plays one plan at 0."""

    name = "strict"

    def __init__(
        self, plan: Mapping[int, Sequence[int]], jobs_per_gpu: int = 2, nodes: Sequence[NodeAllocation] = ()
    ) -> None:
        self.jobs_per_gpu, self._plan, self._nodes = jobs_per_gpu, plan, nodes

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        plan = plan_of(snapshot, self._plan)
        assert isinstance(plan, SharingPlan)
        return replace(plan, places={one: tuple(self._nodes) or places for one, places in plan.places.items()})


BAD: Mapping[str, tuple[Policy, Workload, str]] = {
    "too many": (Strict({1: [0], 2: [0]}, 1), work({}, {}), "GPU 0 would have 2 jobs, and at most 1 are allowed"),
    "twice": (Strict({1: [0, 0]}), work({"gpus": 2}), r"GPUs \[0, 0\] are not different ones of the 3"),
    "no such": (Strict({1: [7]}, nodes=[NodeAllocation(0, 1, 0, 0)]), work({}), r"GPUs \[7\] are not different ones"),
    "elsewhere": (Strict({1: [0]}, nodes=[NodeAllocation(0, 2, 0, 0)]), work({}), "its places are"),
    "down": (Strict({1: [2]}), work({}), "node row 1 is down"),
    "cpus": (Strict({1: [0], 2: [1]}), work({"cpus": 5}, {"cpus": 4}), "1 CPUs of node row 0 would be given twice"),
    "unwilling": (Strict({1: [0], 2: [0]}), work({}, {"shares": False}), "job 2 does not allow sharing"),
    "unknown": (Strict({1: [0], 2: [0]}), work({}, {"model": "?"}), "nobody knows the model of job 2"),
    "memory": (
        Strict({1: [0], 2: [0]}),
        work({"model": "Big"}, {"model": "Big"}),
        "known not to fit into GPU 0 beside",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_plans_that_cannot_be_are_told(pairs: Path, case: str) -> None:
    policy, workload, problem = BAD[case]
    cluster = replace(parse_cluster("1x2/8c+1x1/8c"), failures=(NodeFailure(1, 0.0, 1.0),))
    with pytest.raises(SimulatorError, match=rf"policy strict at 0 s starts job \d where it cannot: .*{problem}"):
        simulate_sharing(
            workload, cluster, policy, SharingRules(pairs=pairs), jobs_per_gpu=getattr(policy, "jobs_per_gpu", 1)
        )


def test_utilisation_counts_a_shared_gpu_once(pairs: Path) -> None:
    outcome = play(work({"model": "A", "batch_size": 16}, {}), {1: [0], 2: [0]}, pairs)
    found = summarise(outcome)
    assert found.gpu_util_ratio == pytest.approx(0.5)
    assert found.gpu_shared_ratio == pytest.approx(100 / 120)
    assert found.gpu_shared_s == pytest.approx(100.0)
    assert found.shared_slowdown == pytest.approx(1.125)
    used: UsageCurve = gpu_usage_curve(outcome)
    assert used.mean.max() == pytest.approx(1.0)
    lines = per_job_csv(outcome).splitlines()
    assert lines[0].endswith(",failures,shared_s,xi,partners,sub_batch,out_of_memory")
    assert lines[2].endswith(",0,100,1.25,1,0,0")


def test_a_chart_has_as_many_lanes_a_gpu_as_it_had_jobs_at_once(pairs: Path) -> None:
    rows = work({"model": "A", "batch_size": 16}, {}, {"gpus": 2, "submit_s": 300.0, "run_s": 10.0})
    lanes = make_gantt(play(rows, {1: [0], 2: [0], 3: [0, 1]}, pairs))
    assert lanes is not None
    assert lanes.names == ("n1:0", "n1:0", "n1:1", "n1:1")
    assert lanes.each == 2
    assert [(bar.label, bar.lane, bar.lanes) for bar in lanes.bars] == [
        ("1", 0, 1), ("2", 1, 1), ("3", 0, 1), ("3", 2, 1),
    ]  # fmt: skip
    assert lanes.bars[1].end_s == pytest.approx(120.0)
    apart = make_gantt(play(work({}), {1: [0]}, pairs))
    assert apart is not None
    assert apart.names == ("n1:0", "n1:1")
