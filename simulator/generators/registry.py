"""The one list of generators, and how a workload is drawn by name.

A new generator is one more :class:`WorkloadGenerator` in :data:`GENERATORS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from slurm_soda.policies.errors import no_such
from slurm_soda.policies.registry.parameters import Parameter
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.generators import philly, soda, tiresias_mix
from slurm_soda.simulator.workload import Workload

MOST_JOBS = 10_000_000


class DrawWorkload(Protocol):
    """Draws a workload; the same state of ``rng`` gives the same one, to the bit."""

    def __call__(self, rng: np.random.Generator, jobs: int, load_ratio: float, name: str) -> Workload:
        """Return so many jobs that arrive ``load_ratio`` times as fast as they do by default."""
        ...


@dataclass(frozen=True, slots=True)
class WorkloadGenerator:
    """One generator that users can name."""

    name: str
    summary: str
    source: str
    """Paper and section, or data."""
    cluster: str
    """The cluster it is meant for, in the words of ``--cluster``."""
    jobs: int
    """Jobs by default."""
    draw: DrawWorkload
    parameters: tuple[Parameter, ...]


def _load(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-3 <= value <= 1e3:
        raise ValueError(value)
    return float(value)


LOAD_RATIO = Parameter(
    "load_ratio", 1.0, "ratio", "jobs arrive this many times as fast", "a number from 0.001 to 1000", _load
)

GENERATORS: tuple[WorkloadGenerator, ...] = (
    WorkloadGenerator("small", "400 jobs of Tiresias' testbed mix, for a first look", "Tiresias, Section 5.1 and Tables 3 and 6",
          "16x4", 400, tiresias_mix.draw_mix, (LOAD_RATIO,)),
    WorkloadGenerator("tiresias480", "Tiresias' testbed mix of 480 jobs", "Tiresias, Section 5.1 and Tables 3 and 6", "15x4", 480,
          tiresias_mix.draw_mix, (LOAD_RATIO,)),
    WorkloadGenerator("philly-month", "a month like Microsoft's Philly cluster: sweeps, and a heavy tail of run times",
          "msr-fiddle/philly-traces (CC-BY-4.0); Tiresias, Appendix A", "32x8", philly.JOBS, philly.draw_month,
          (LOAD_RATIO,)),
    WorkloadGenerator("soda-month", "SODA's month: CPU, training and inference jobs with their CPU cores",
          "SODA, Sections III, IV-E and VI", "80x5/28c",
          soda.CPU_JOBS + soda.TRAINING_JOBS + soda.INFERENCE_JOBS, soda.draw_month, (LOAD_RATIO,)),
)  # fmt: skip


def workload_names() -> tuple[str, ...]:
    """All names, in the order of :data:`GENERATORS`."""
    return tuple(entry.name for entry in GENERATORS)


def find_generator(name: str) -> WorkloadGenerator:
    """The entry of a name.

    Raises:
        SimulatorError: no such generator.
    """
    for entry in GENERATORS:
        if entry.name == name:
            return entry
    raise SimulatorError(no_such("generated workload", name, workload_names()))


def generate_workload(
    name: str, seed: int, jobs: int | None = None, parameters: Mapping[str, Any] = MappingProxyType({})
) -> Workload:
    """Draw a workload; the cluster it is meant for is in its :class:`WorkloadGenerator`.

    The same arguments give the same workload, to the bit.

    Args:
        name: of :data:`GENERATORS`.
        seed: a whole number from 0.
        jobs: how many; by default as many as the generator's source has.
        parameters: values by name, see :attr:`WorkloadGenerator.parameters`.

    Raises:
        SimulatorError: no such generator or parameter, or a value that is not allowed.
    """
    entry = find_generator(name)
    count = entry.jobs if jobs is None else jobs
    if not 1 <= count <= MOST_JOBS:
        raise SimulatorError(
            f"workload {name}: jobs = {count} is not allowed; use a whole number from 1 to {MOST_JOBS}"
        )
    if seed < 0:
        raise SimulatorError(f"workload {name}: seed = {seed} is not allowed; use a whole number from 0")
    values = {parameter.name: parameter.default for parameter in entry.parameters}
    for key, value in parameters.items():
        parameter = next((known for known in entry.parameters if known.name == key), None)
        if parameter is None:
            raise SimulatorError(f"workload {name} has no parameter {key!r}; its parameters are: {', '.join(values)}")
        try:
            values[key] = parameter.read(value)
        except (TypeError, ValueError):
            raise SimulatorError(
                f"workload {name}: {key} = {value!r} is not allowed; use {parameter.allowed}"
            ) from None
    return entry.draw(np.random.default_rng(seed), count, values["load_ratio"], name)
