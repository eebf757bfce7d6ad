"""What the simulator foretells of the runs: the same jobs, speeds and policies, with what Slurm can do."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from slurm_soda.demo.cluster_runs import DemoPhase
from slurm_soda.demo.job_mix.demo_settings import GPUS_PER_NODE, NODES
from slurm_soda.demo.sharing_mix.sharing_jobs import SharingJob
from slurm_soda.demo.sharing_mix.sharing_runs import CHANGE_S, CORES_PER_NODE, PARAMETERS, POLICIES
from slurm_soda.demo.sharing_mix.speed_table import GPU_TYPE, ModelSpeed
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.sharing.mechanism.mechanism import SLURM
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.sharing.simulate_sharing import simulate_sharing
from slurm_soda.simulator.workload import Workload

START_S = 1.0
"""From the moment that a job fits to its first iteration on the demo's cluster, Slurm's whole seconds included."""


def forecast_sharing(
    mix: tuple[SharingJob, ...], speeds: Mapping[str, ModelSpeed], table: str, phases: tuple[DemoPhase, ...]
) -> dict[str, float]:
    """Average completion time of each phase, in seconds."""
    workload = make_workload(mix, speeds)
    cluster = parse_cluster(f"{NODES}x{GPUS_PER_NODE}/{CORES_PER_NODE}c")
    costs = Costs(start_s=START_S)
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        pairs = Path(folder) / "speeds.json"
        pairs.write_text(table)
        rules = SharingRules(pairs=pairs, gpu=GPU_TYPE, mechanism=SLURM)
        for phase in phases:
            policy = make_policy(POLICIES[phase], PARAMETERS[phase])
            if phase == "sharing":
                outcome = simulate_sharing(workload, cluster, policy, rules, jobs_per_gpu=2, costs=costs)
            else:
                outcome = simulate(workload, cluster, policy, costs=costs)
            found[phase] = float(np.mean(outcome.end_s - workload.submit_s))
    return found


def make_workload(mix: tuple[SharingJob, ...], speeds: Mapping[str, ModelSpeed]) -> Workload:
    """The mix as the simulator takes it."""
    return Workload.build(
        "sharing demo",
        [
            {
                "label": job.name,
                "submit_s": job.arrival_s,
                "run_s": job.run_s,
                "gpus": job.gpus,
                "gpus_per_node": job.gpus,
                "cpus": job.cores,
                "model": job.model,
                "batch_size": speeds[job.model].batch,
                "iterations": float(job.iterations),
                "preemptible": job.checkpoints,
                "restart_s": CHANGE_S if job.checkpoints else 0.0,
                "user": job.user,
            }
            for job in mix
        ],
    )
