"""The same run gives the same bytes, in this process and in another one with another hash seed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from slurm_soda.policies.registry.catalog import make_policy, policy_names
from slurm_soda.policies.sharing.snapshot import SharingPolicy
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.report.per_job import per_job_csv
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.sharing.simulate_sharing import simulate_sharing
from slurm_soda.simulator.workload import Workload
from tests.sampling import some

MODELS = (("A", 16), ("A", 32), ("B", 0), ("Big", 0))


def digests(pairs: Path, names: Sequence[str]) -> list[str]:
    """One line for each of these policies, and for what it knows."""
    draw = np.random.default_rng(5)
    rows = []
    for _ in range(40):
        model, batch = MODELS[int(draw.integers(len(MODELS)))]
        gpus = int(draw.integers(1, 4))
        times = {"submit_s": draw.uniform(0, 300), "run_s": draw.exponential(200) + 1}
        rows.append({**times, "gpus": gpus, "cpus": 2 * gpus, "model": model, "batch_size": batch})
    workload = Workload.build("mix", rows)
    found = []
    for name in names:
        policy = make_policy(name)
        assert isinstance(policy, SharingPolicy)
        for knowledge in ("truth", "prior"):
            outcome = simulate_sharing(
                workload, parse_cluster("3x4/16c"), policy, SharingRules(pairs=pairs, knowledge=knowledge),
                jobs_per_gpu=policy.jobs_per_gpu, costs=Costs(restart_s=2.0),
            )  # fmt: skip
            assert np.isfinite(outcome.end_s).all()
            found.append(f"{name}:{knowledge}:{hashlib.sha256(per_job_csv(outcome).encode()).hexdigest()}")
    return found


def test_the_same_run_gives_the_same_bytes(pairs: Path) -> None:
    names = some([name for name in policy_names() if isinstance(make_policy(name), SharingPolicy)], 1)
    ours = digests(pairs, names)
    assert ours
    here = str(Path(__file__).parent)
    program = (
        f"import sys; sys.path.insert(0, {here!r}); from pathlib import Path; import test_same_bytes as t;"
        f" print(*t.digests(Path({str(pairs)!r}), {names}))"
    )
    theirs = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "4711"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert theirs.stdout.split() == ours
