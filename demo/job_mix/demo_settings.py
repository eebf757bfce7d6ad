"""What a demo run is asked to do, and the daemon's configuration that follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurm_soda.containers.cluster_spec import DEFAULT_SLURM
from slurm_soda.demo.job_mix.mix_jobs import JobMix
from slurm_soda.policies.policy import DEFAULT_POLICY

NODES, GPUS_PER_NODE = 2, 4
CLUSTER_GPUS = NODES * GPUS_PER_NODE
MIN_RUN_S = 4.0
"""Slurm reports times in whole seconds and a preemption takes about two: shorter turns would mostly save and load."""
RESTART_S = 0.3
"""What a preemption adds to a job's run time on the demo's cluster, saved and loaded again (measured: 0.30 s, standard error
0.04 s, over 94 preemptions)."""
CHANGE_S = 1.0
"""What the policy takes a preemption to cost on each GPU: that, until the GPUs have changed hands twice."""


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """One invocation of the demo."""

    seed: int = 1
    jobs: int = 30
    time_scale: float = 150.0
    """Nominal seconds (those of the paper's testbed) in one real second."""
    policy: str = DEFAULT_POLICY
    out: Path = Path("build/demo")
    keep: bool = False
    """Leave the cluster up afterwards."""
    cluster: str = "demo"
    slurm: str = DEFAULT_SLURM
    """Release of Slurm."""


def policy_parameters(settings: DemoSettings, mix: JobMix) -> dict[str, float | list[float]]:
    """What the demo sets of its policy: the paper's thresholds and the least run time, compressed like the jobs."""
    found: dict[str, float | list[float]] = {}
    if settings.policy.startswith("tiresias"):
        found["thresholds_gpu_s"] = [round(mix.threshold_gpu_s, 2)]
    if settings.policy.startswith(("tiresias", "srtf", "srsf")):
        found["min_run_s"] = MIN_RUN_S
    if settings.policy in ("soda", "srsf-share"):
        found["change_s"] = CHANGE_S
    return found


def daemon_configuration(settings: DemoSettings, mix: JobMix) -> str:
    """The configuration file of sodad: the policy's parameters, and the daemon's own times compressed like the jobs."""
    lines = [f"{name} = {value}" for name, value in policy_parameters(settings, mix).items()]
    return "\n".join(
        [
            "# The demo's hours pass in seconds, so the daemon's own intervals are shorter than a site's.",
            'mode = "observe"',
            "[policy]",
            f'name = "{settings.policy}"',
            "[policy.parameters]",
            *lines,
            "[cycle]",
            "interval_s = 1.0",
            "[change_limits]",
            "min_change_interval_s = 0.2",
            "# Its jobs ask for the cores that they need, and what is compared is their order.",
            "[cpu_fit]",
            'rewrite = "off"',
            "# Nothing is known of these jobs when they come.",
            "[slurm]",
            "accounting_past_days = 0",
            "",
        ]
    )
