"""Where run times come from if a trace has none: measured tables, of the GPUs that the cluster has."""

from __future__ import annotations

from pathlib import Path

from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.traces.formats.measured_times import MeasuredTimes
from slurm_soda.sodactl.simulation.inputs.scenario_options import ScenarioOptions

_FORMAT_WITH_PAIRS = "gavel"
"""The format whose run times a pair table gives."""


def load_measured_run_times(
    format_name: str, asked: ScenarioOptions, cluster: SimulatedCluster
) -> tuple[MeasuredTimes | None, tuple[str, ...]]:
    """The tables for a trace of this format, and what was taken for granted.

    Raises:
        SimulatorError: a table cannot be used, or knows none of the cluster's GPUs.
    """
    if asked.pairs is not None and format_name == _FORMAT_WITH_PAIRS:
        return _load_step_times(asked.pairs, cluster)
    if asked.profiles is None or asked.profiles.is_file():  # a file says how speeds differ by placement, and no more
        return None, ()
    from slurm_soda.simulator.speed.training_profiles import load_profiles  # noqa: PLC0415 - few runs have measured tables

    return load_profiles(asked.profiles), ()


def _load_step_times(path: Path, cluster: SimulatedCluster) -> tuple[MeasuredTimes, tuple[str, ...]]:
    """Times of steps on the cluster's GPUs; on the fastest that was measured, where the cluster names none."""
    from slurm_soda.simulator.speed.pair_table import load_pairs  # noqa: PLC0415 - few runs have measured tables

    pairs = load_pairs(path)
    here = [name for name in cluster.gpu_types if name in pairs.gpus]
    if cluster.gpu_types and not here:
        types, known = ", ".join(cluster.gpu_types), ", ".join(pairs.kinds)
        raise SimulatorError(f"{path} has no GPU of --cluster {cluster.name} ({types}); it has: {known}")
    gpu = here[0] if here else pairs.fastest()
    others = ", ".join(name for name in pairs.kinds if name != gpu)
    if (here and len(cluster.gpu_types) == 1) or not others:
        return pairs.on(gpu), ()
    why = (
        "on all nodes: jobs have one run time" if here else f"the fastest GPU of the table; name one, such as 8x1:{gpu}"
    )
    return pairs.on(gpu), (f"run times are those on {gpu}, {why} (it also has: {others})",)
