"""The one list of generators, and how a workload is drawn by name.

A new generator is one more :class:`WorkloadGenerator` in :data:`GENERATORS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from slurm_soda.policies.registry.named import find_named, names_of, read_values
from slurm_soda.policies.registry.parameters import Parameter
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.generators import philly, soda, tiresias_mix
from slurm_soda.simulator.generators.families import sites
from slurm_soda.simulator.generators.families.family import WorkloadFamily
from slurm_soda.simulator.workload import Workload

MOST_JOBS = 10_000_000


class DrawWorkload(Protocol):
    """Draws a workload; the same state of ``rng`` gives the same one, to the bit."""

    def __call__(self, rng: np.random.Generator, jobs: int, load_ratio: float, name: str) -> Workload:
        """Return so many jobs; ``load_ratio`` means what the generator's parameter of that name says."""
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
    family: WorkloadFamily | None = None
    """Whose users run scripts over and over; None: of a generator without scripts."""


def _load(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-3 <= value <= 1e3:
        raise ValueError(value)
    return float(value)


LOAD_RATIO = Parameter(
    "load_ratio", 1.0, "ratio", "jobs arrive this many times as fast", "a number from 0.001 to 1000", _load
)
FAMILY_LOAD = Parameter(
    "load_ratio", 0.9, "ratio", "GPU time of the jobs over that of the family's cluster while they arrive",
    "a number from 0.001 to 1000", _load,
)  # fmt: skip


def _family(name: str, summary: str, source: str, jobs: int, family: WorkloadFamily) -> WorkloadGenerator:
    return WorkloadGenerator(name, summary, source, family.cluster, jobs, family.draw, (FAMILY_LOAD,), family)


GENERATORS: tuple[WorkloadGenerator, ...] = (
    WorkloadGenerator(
        "small",
        "400 jobs of Tiresias' testbed mix, for a first look",
        "Tiresias, Section 5.1 and Tables 3 and 6",
        "16x4",
        400,
        tiresias_mix.draw_mix,
        (LOAD_RATIO,),
    ),
    WorkloadGenerator(
        "tiresias480",
        "Tiresias' testbed mix of 480 jobs",
        "Tiresias, Section 5.1 and Tables 3 and 6",
        "15x4",
        480,
        tiresias_mix.draw_mix,
        (LOAD_RATIO,),
    ),
    WorkloadGenerator(
        "philly-month",
        "a month like Microsoft's Philly cluster: sweeps, and a heavy tail of run times",
        "msr-fiddle/philly-traces (CC-BY-4.0); Tiresias, Appendix A",
        "32x8",
        philly.JOBS,
        philly.draw_month,
        (LOAD_RATIO,),
    ),
    WorkloadGenerator(
        "soda-month",
        "SODA's month: CPU, training and inference jobs with their CPU cores",
        "SODA, Sections III, IV-E and VI",
        "80x5/28c",
        soda.CPU_JOBS + soda.TRAINING_JOBS + soda.INFERENCE_JOBS,
        soda.draw_month,
        (LOAD_RATIO,),
    ),
    _family(
        "like-philly",
        "after Philly: sweeps and a heavy tail, with users and time limits",
        "msr-fiddle/philly-traces (CC-BY-4.0)",
        900,
        sites.PHILLY,
    ),
    _family(
        "like-pollux",
        "after Pollux' mix: six models, each with its sizes",
        "petuum/adaptdl, osdi21-artifact (Apache-2.0)",
        400,
        sites.POLLUX,
    ),
    _family(
        "like-gavel",
        "after Gavel: its kinds of jobs, half an hour to a week",
        "stanford-futuredata/gavel (MIT); Gavel, OSDI 2020",
        300,
        sites.GAVEL,
    ),
    _family(
        "like-soda",
        "after SODA's month, on 8 nodes: CPU, training and inference jobs",
        "SODA, Sections III, IV-E and VI",
        800,
        sites.SODA,
    ),
    _family("lab", "a small lab: trials by the minute, trainings by the day", "our choice", 500, sites.LAB),
    _family("day-night", "a site that is full by day and drains by night", "our choice", 600, sites.DAY_AND_NIGHT),
)


def workload_names() -> tuple[str, ...]:
    """All names, in the order of :data:`GENERATORS`."""
    return names_of(GENERATORS)


def find_generator(name: str) -> WorkloadGenerator:
    """The entry of a name.

    Raises:
        SimulatorError: no such generator.
    """
    return find_named(GENERATORS, name, "generated workload", SimulatorError)


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
    values |= read_values(f"workload {name}", entry.parameters, parameters, SimulatorError)
    return entry.draw(np.random.default_rng(seed), count, values["load_ratio"], name)
