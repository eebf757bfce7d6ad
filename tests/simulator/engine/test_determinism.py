"""The same run gives the same bytes, in this process and in another one with another hash seed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from slurm_soda.policies.registry.catalog import find_entry, make_policy, policy_names
from slurm_soda.simulator.cluster import NodeFailure, SimulatedCluster, parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.report.per_job import per_job_csv
from slurm_soda.simulator.workload import Workload
from tests.sampling import some

JOBS = 24
PARAMETERS = {"min_run_s": 5.0, "quantum_s": 20.0, "thresholds_gpu_s": [50, 400], "samples_gpu_s": [30, 90, 300, 900]}


def mix(seed: int) -> Workload:
    """Jobs of all kinds, with names of which hashes differ from process to process."""
    draw = np.random.default_rng(seed)
    rows = [
        {
            "submit_s": draw.uniform(0, 120), "run_s": draw.exponential(60) + 1, "gpus": (gpus := int(draw.integers(0, 7))),
            "cpus": max(gpus, 1) * int(draw.integers(1, 3)), "nodes": 2 if gpus == 6 else 1,
            "gpu_type": str(draw.choice(["", "a100", "v100"])) if gpus in (1, 2) else "",
            "user": str(draw.choice(["ada", "bob", "cleo"])), "partition": str(draw.choice(["long", "short"])),
            "preemptible": bool(draw.random() < 0.8), "restart_s": draw.uniform(0, 3),
        }
        for _ in range(JOBS)
    ]  # fmt: skip
    return Workload.build("mix", rows)


def fixed_runs(names: Sequence[str], worlds: int = 3) -> list[SimulationOutcome]:
    """These policies, as fast as may be and by whole snapshots, with all that can happen."""
    nodes = parse_cluster("2x4:a100/16c+2x4:v100/16c", ("long", "short"))
    unsteady = replace(nodes, failures=(NodeFailure(0, 30, 60), NodeFailure(3, 200, 230)))
    one_pool = mix(3).with_columns(**{key: np.zeros(JOBS, dtype=np.int64) for key in ("cpus", "partition")})
    one_pool = one_pool.with_columns(
        gpus=np.maximum(one_pool.gpus, 1), nodes=np.ones(JOBS, dtype=np.int64), gpu_type=np.full(JOBS, -1)
    )

    def run(name: str, workload: Workload, cluster: SimulatedCluster, costs: Costs) -> SimulationOutcome:
        known = {parameter.name for parameter in find_entry(name).parameters}
        policy = make_policy(name, {key: value for key, value in PARAMETERS.items() if key in known})
        return simulate(workload, cluster, policy, costs=costs)

    return [
        run(name, *world)
        for name in names
        for world in (
            (mix(1), nodes, Costs(restart_s=2)),
            (mix(2), unsteady, Costs(start_s=1, checkpoint_s=1, round_s=7)),
            (one_pool, parse_cluster("3x4", ("long",)), Costs()),
        )[:worlds]
    ]


def digests(names: Sequence[str]) -> list[str]:
    """One line a run: its columns and its CSV file, hashed."""
    found = []
    for outcome in fixed_runs(names):
        content = hashlib.sha256(per_job_csv(outcome).encode())
        for part in (outcome, outcome.segments):
            for spec in fields(part):
                value = getattr(part, spec.name)
                if isinstance(value, np.ndarray):
                    content.update(value.tobytes())
        content.update(str(outcome.decisions).encode())
        found.append(f"{outcome.policy}:{content.hexdigest()}")
    return found


def test_the_same_run_gives_the_same_bytes() -> None:
    names = some(policy_names(), 2)
    ours = digests(names)
    assert digests(names) == ours
    here = str(Path(__file__).parent)
    program = f"import sys; sys.path.insert(0, {here!r}); import test_determinism as t; print(*t.digests({names}))"
    theirs = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "4711"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert theirs.stdout.split() == ours
    assert len(set(ours)) > 2 * len(names)  # policies and worlds do differ


def test_columns_of_a_run_agree_with_its_segments() -> None:
    for outcome in fixed_runs(some(policy_names(), 8), worlds=1):
        segments = outcome.segments
        first_s, last_s = np.full(len(outcome.workload), np.inf), np.zeros(len(outcome.workload))
        np.minimum.at(first_s, segments.job, segments.start_s)
        np.maximum.at(last_s, segments.job, segments.end_s)
        ran = np.isfinite(first_s)
        np.testing.assert_array_equal(outcome.first_start_s[ran], first_s[ran])
        np.testing.assert_array_equal(outcome.end_s[ran], last_s[ran])
        assert np.isnan(outcome.end_s[~ran]).all()
        assert np.isnan(outcome.first_start_s[~ran]).all()
        np.testing.assert_array_equal(segments.gpus, outcome.workload.gpus[segments.job])
        np.testing.assert_array_equal(segments.cpus, outcome.workload.cpus[segments.job])
