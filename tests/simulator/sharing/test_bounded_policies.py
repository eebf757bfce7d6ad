"""OJPP, OJPAP and co-location in the engine, which refuses plans that cannot be carried out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.sharing.job_kinds import Estimate, Source
from slurm_soda.policies.sharing.job_kinds import JobKind as Kind
from slurm_soda.policies.sharing.snapshot import SharingPolicy
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.sharing.simulate_sharing import simulate_sharing
from slurm_soda.simulator.workload import Workload
from tests.sampling import some


class Optimist:
    """Predicts that nobody disturbs anybody."""

    def xi(self, slowed: Kind, others: Sequence[Kind]) -> Estimate | None:
        return Estimate(1.0, 0.0, Source.PREDICTED)

    def fits(self, together: Sequence[Kind]) -> bool | None:
        return True


def run(
    work: Workload, cluster: str, name: str, rules: SharingRules, costs: Costs | None = None, **sets: object
) -> SimulationOutcome:
    policy = make_policy(name, sets)
    assert isinstance(policy, SharingPolicy)
    return simulate_sharing(work, parse_cluster(cluster), policy, rules, jobs_per_gpu=policy.jobs_per_gpu, costs=costs)


def queue(jobs: int, seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    return Workload.build("made", [
        {"submit_s": float(at * 50), "run_s": float(rng.uniform(50, 1500)), "model": f"m{rng.integers(3)}",
         "gpus": int(rng.choice([1, 1, 2, 4])), "preemptible": True}
        for at in range(jobs)
    ])  # fmt: skip


def test_a_worker_moves_once_interference_was_seen_to_last() -> None:
    work = Workload.build("two", [{"submit_s": 0.0, "run_s": 10_000.0, "model": "m", "preemptible": True}] * 2)
    rules = SharingRules(slowdown=1.5, knowledge="predicted", predictor=Optimist())
    stays, moves = run(work, "1x2", "ojpp", rules), run(work, "1x2", "ojpap", rules, Costs(restart_s=30.0))
    assert stays.end_s.tolist() == [15_000.0] * 2
    assert moves.preemptions.tolist() == [1, 0]
    # It moves when it may, after 600 s, of which it made 400 s of progress.
    assert moves.end_s.tolist() == pytest.approx([600.0 + 30.0 + 9_600.0, 600.0 + 9_600.0])


@pytest.mark.parametrize("name", ["ojpp", "ojpap", "colocation"])
@pytest.mark.parametrize("knowledge", ["truth", "predicted"])
def test_plans_can_be_carried_out(name: str, knowledge: str) -> None:
    predictor = Optimist() if knowledge == "predicted" else None
    for seed, slowdown in some(((1, 1.08), (2, 1.6)), 1, seed=name + knowledge):
        rules = SharingRules(slowdown=slowdown, knowledge=knowledge, predictor=predictor)
        outcome = run(queue(25, seed), "2x4", name, rules, Costs(restart_s=10.0))
        assert np.isfinite(outcome.end_s).all()


def test_fewer_gpus_are_in_use_within_the_bound() -> None:
    work, rules = queue(25, 3), SharingRules(slowdown=1.05)
    packed, alone = run(work, "8x4", "ojpp", rules), run(work, "8x4", "ojpp", rules, interference=0.0)
    assert packed.sharing is not None
    assert packed.sharing.worst_xi.max() <= 1.1 + 1e-9  # three on a GPU
    assert packed.sharing.shared_s.sum() > 0
    assert alone.sharing is not None
    assert alone.sharing.shared_s.sum() == 0


@pytest.mark.parametrize(("bound", "shared_s"), [(1.2, 60.0), (2.0, 150.0)])
def test_who_is_slowed_more_than_its_owner_bears_is_parted_as_soon_as_that_is_seen(
    bound: float, shared_s: float
) -> None:
    """Nothing else happens meanwhile that would make the policy look."""
    work = Workload.build("two", [
        {"submit_s": 0.0, "run_s": 100.0, "model": "m", "preemptible": True, "max_slowdown": bound},
        {"submit_s": 0.0, "run_s": 10_000.0, "model": "m", "preemptible": True},
    ])  # fmt: skip
    rules = SharingRules(slowdown=1.5, knowledge="predicted", predictor=Optimist())
    outcome = run(work, "1x1", "srsf-share", rules, min_run_s=0.0)
    assert outcome.sharing is not None
    assert outcome.sharing.shared_s.tolist() == pytest.approx([shared_s] * 2)
