"""Users' bounds hold under every policy that shares and is told the truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from slurm_soda.policies.registry.catalog import make_policy, policy_names
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.snapshot import SharingPolicy
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.sharing.simulate_sharing import simulate_sharing
from slurm_soda.simulator.workload import Workload

MODELS = (("A", 16), ("A", 32), ("B", 0), ("Big", 0))
SHARING = [name for name in policy_names() if isinstance(make_policy(name), SharingPolicy)]


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", SHARING)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_bounds_hold_at_every_moment(pairs: Path, name: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(40):
        model, batch = MODELS[int(draw.integers(len(MODELS)))]
        rows.append({
            "submit_s": draw.uniform(0, 300), "run_s": draw.exponential(200) + 1, "gpus": int(draw.integers(1, 4)),
            "model": model, "batch_size": batch, "shares": bool(draw.random() < 0.8),
            "max_slowdown": float(draw.choice([1.0, 1.3, 1.7, 2.5, np.inf])),
        })  # fmt: skip
    workload, policy = Workload.build("bounded", rows), make_policy(name)
    assert isinstance(policy, SharingPolicy)
    outcome = simulate_sharing(
        workload, parse_cluster("2x4"), policy, SharingRules(pairs=pairs), jobs_per_gpu=policy.jobs_per_gpu,
        costs=Costs(restart_s=1.0),
    )  # fmt: skip
    assert np.isfinite(outcome.end_s).all()
    seen = outcome.sharing
    assert seen is not None
    shared = np.flatnonzero(seen.shared_s > 0)
    assert len(shared) or name != "sjf-ffs"
    assert workload.shares[shared].all()
    assert (seen.worst_xi[shared] <= workload.max_slowdown[shared] + 1e-9).all()
    assert not seen.out_of_memory.any()


def test_what_was_seen_of_gangs_does_not_hide_what_is_known_of_single_gpus(pairs: Path) -> None:
    """A bound counts on the truth of jobs of just this size; what was seen of others goes before a guess only."""
    rows = [{"submit_s": 0.0, "run_s": 1.0, "model": "B"}]
    rules = SharingRules(pairs=pairs), SharingRules(pairs=pairs, knowledge="prior")
    single, pair = (JobKind("B", 0, "v100", gpus) for gpus in (1, 2))
    found = [
        [known.xi(slowed, (other,)) for slowed, other in ((pair, pair), (single, pair), (single, single))]
        for known in (one.together(Workload.build("w", rows)).known.with_pair(pair, pair, 1.5) for one in rules)
    ]
    assert [[one and one.value for one in row] for row in found] == [[1.5, 2.5, 2.5], [1.5, 1.5, 1.5]]
