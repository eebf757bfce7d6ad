"""A figure and the command that gives it are one: what is simulated is written as a ``sodactl simulate`` command."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, fields
from multiprocessing import get_context
from pathlib import Path

import click
import numpy as np

from benchmarks.reproduce.bounds import lower_bound_s
from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.simulator.report.run_results import SimulatedRun, reduce_outcome
from slurm_soda.simulator.runs.batch import end_with_parent
from slurm_soda.sodactl.simulation.inputs.scenario_input import read_scenario_input
from slurm_soda.sodactl.simulation.inputs.scenario_options import ScenarioOptions
from slurm_soda.sodactl.simulation.simulate import choose_policy, simulate

DATA = "$DATA"
"""Stands for the folder of traces in every command."""

SLOW = ("coda", "--system soda", "gandiva", "promote_knob", "--jobs 20000", "tiresias-gittins", "sjf-bsbf")
"""Words of commands that take long: they are begun first, so that no process is left alone with one at the end."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What one command found; columns are in the workload's row order."""

    run: SimulatedRun
    about: str
    """Workload and cluster in one line."""
    total_gpus: int
    gpus: IntColumn
    run_s: FloatColumn
    bound_s: float
    """No policy that neither shares GPUs nor resizes jobs has a smaller average JCT."""

    @property
    def avg_s(self) -> float:
        """Average JCT."""
        return self.run.summary.avg_jct_s


Results = Mapping[str, SimulationResult]
"""By command."""


def command(source: str, policy: str, *settings: str, options: str = "") -> str:
    """A command of one simulation.

    Args:
        source: where jobs come from, and the cluster: ``--trace $DATA/… --cluster …`` or ``--workload … --seed …``.
        policy: its name.
        settings: ``KEY=VALUE`` each, parameters of the policy.
        options: further options, such as costs.
    """
    parts = [f"sodactl simulate {source}", options, f"--policy {policy}", *(f"--set {text}" for text in settings)]
    return " ".join(part for part in parts if part)


def run_command(line: str, data: Path | None) -> SimulationResult:
    """Do what ``sodactl simulate`` would do with this command, and keep more of it than it prints; no wait is bounded.

    Raises:
        click.UsageError: it is no such command.
        SodaError: a trace cannot be read, or the simulation cannot be run.
    """
    words = shlex.split(line.replace(DATA, str(data)))
    with simulate.make_context("simulate", [*words[2:], "--passing-limit-s", "inf"]) as context:
        given = context.params
    asked = ScenarioOptions(**{spec.name: given[spec.name] for spec in fields(ScenarioOptions)})
    system = given["system"]
    choice = choose_policy(asked, given["policy"], system, given["assignments"])
    scenario_input = read_scenario_input(
        asked, [] if given["seed"] is None else [given["seed"]], [] if system is None else [system]
    )
    scenario = scenario_input.first
    outcome = scenario.run(scenario.policy(choice.name, choice.parameters), nodes=choice.nodes, serves=choice.serves)
    workload = scenario.workload
    return SimulationResult(
        run=reduce_outcome(outcome, choice.label, scenario.seed, charts=False),
        about=scenario_input.about,
        total_gpus=scenario.cluster.total_gpus,
        gpus=workload.gpus,
        run_s=workload.run_s,
        bound_s=lower_bound_s(workload, scenario.cluster.total_gpus),
    )


def run_commands(
    lines: Iterable[str], data: Path | None, workers: int | None, progress: Callable[[int, int], None]
) -> dict[str, SimulationResult]:
    """Run each command once, over processes; by default one a CPU.

    Raises:
        click.UsageError: one is no such command.
        SodaError: one cannot be run.
    """
    distinct = sorted(dict.fromkeys(lines), key=lambda line: not any(word in line for word in SLOW))
    found: dict[str, SimulationResult] = {}
    with ProcessPoolExecutor(
        workers or len(os.sched_getaffinity(0)), get_context("spawn"), end_with_parent
    ) as executor:
        waiting = {executor.submit(run_command, line, data): line for line in distinct}
        try:
            for finished in as_completed(waiting):
                found[waiting[finished]] = finished.result()
                progress(len(found), len(distinct))
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def percentile_s(values_s: FloatColumn, percent: float) -> float:
    """A percentile, linear between two jobs."""
    return float(np.percentile(values_s, percent))


def pooled_jct_s(found: Iterable[SimulationResult]) -> FloatColumn:
    """JCTs of the jobs of several seeds together."""
    return np.concatenate([each.run.jct_s for each in found])


def data_files(lines: Iterable[str]) -> list[str]:
    """Paths below the folder of traces that commands read, ascending."""
    words = {word for line in lines for word in shlex.split(line) if word.startswith(f"{DATA}/")}
    return sorted(word.removeprefix(f"{DATA}/") for word in words)


def check_data(lines: Iterable[str], data: Path) -> None:
    """All files that commands read are there.

    Raises:
        click.ClickException: one is missing.
    """
    for name in data_files(lines):
        if not (data / name).exists():
            raise click.ClickException(
                f"{data / name} is not there; say where the traces are (make reproduce DATA=DIR; docs/reproduction.md lists"
                " them), or run the generated workloads alone: python -m benchmarks.reproduce --generated"
            )
