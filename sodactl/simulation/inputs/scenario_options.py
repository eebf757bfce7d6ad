"""Options that ``simulate`` and ``compare`` have in common: what policies shall run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from slurm_soda.policies.waiting.overdue import DEFAULT_PASSING_LIMIT_S
from slurm_soda.simulator.engine.deciders.choice import ENGINES, PLACEMENTS
from slurm_soda.simulator.node.node_rules import CORE_ALLOCATIONS, ELIMINATED_CONTENTION, NodeRules
from slurm_soda.simulator.runs.estimates import ESTIMATES
from slurm_soda.simulator.runs.spread_knowledge import NONE, SPREAD_KNOWLEDGE
from slurm_soda.sodactl.simulation.inputs.agreement_options import OPTIONS as AGREEMENT
from slurm_soda.sodactl.simulation.inputs.parameter_types import NumberRange, OneOf
from slurm_soda.sodactl.simulation.inputs.service_options import OPTIONS as SERVICES
from slurm_soda.sodactl.simulation.inputs.sharing_options import OPTIONS as SHARING
from slurm_soda.sodactl.simulation.inputs.site_options import OPTIONS as SITE
from slurm_soda.sodactl.simulation.inputs.site_options import PRINT_SITE

CORES_AS_TRACED = "trace"
"""Jobs run as their trace says, whatever cores they have."""

DEFAULT_WORKLOAD = "small"
"""The workload of a command without arguments."""


@dataclass(frozen=True, slots=True)
class ScenarioOptions:
    """The options in common, as typed."""

    trace: Path | None
    format_name: str | None
    workload: str | None
    jobs: int | None
    load: float | None
    cluster: str | None
    start_cost_s: float
    restart_cost_s: float
    checkpoint_cost_s: float
    round_s: float
    checkpoint_every_s: float
    cost_spread: float | None
    learn_costs: bool
    max_preemptions: int
    passing_limit_s: float
    profiles: Path | None
    spread_knowledge: str
    can_checkpoint: float | None
    consent: float | None
    site: Path | None
    bands: str | None
    max_gpus_per_user: int | None
    pairs: Path | None
    pair_slowdown: float | None
    model_map: Path | None
    knowledge: str
    predictor: Path | None
    observe: bool
    pair_guess: float | None
    max_slowdown: float | None
    parting: bool
    mechanism: str | None
    failures: Path | None
    history: Path | None
    learn_days: float | None
    estimates: str
    engine: str
    placement: str
    cores: str
    eliminate: str | None
    core_curves: Path | None
    services: str | None
    serve: str | None
    lenient: bool


def build_node_rules(asked: ScenarioOptions, systems: Sequence[str]) -> NodeRules | None:
    """What happens on nodes where no system says it.

    Policies beside systems run on the same kind of nodes: with the cores they ask for.

    Raises:
        click.UsageError: options that do not go together.
    """
    if asked.cores == CORES_AS_TRACED and not systems:
        for option, value in (("--eliminate", asked.eliminate), ("--core-curves", asked.core_curves)):
            if value is not None:
                raise click.UsageError(
                    f"{option} needs --cores asked or --cores adaptive: otherwise cores play no part"
                )
        return None
    cores = CORE_ALLOCATIONS[0] if asked.cores == CORES_AS_TRACED else asked.cores
    return NodeRules(cores, asked.eliminate or ELIMINATED_CONTENTION[0], asked.core_curves)


def _formats() -> Sequence[str]:
    from slurm_soda.simulator.traces.registry import format_names  # noqa: PLC0415 - readers of all formats

    return format_names()


def _workloads() -> Sequence[str]:
    from slurm_soda.simulator.generators.registry import workload_names  # noqa: PLC0415 - all generators

    return workload_names()


_FILE = click.Path(path_type=Path)
_SECONDS: dict[str, Any] = {"type": click.FloatRange(min=0.0), "default": 0.0, "metavar": "SECONDS"}
_OPTIONS: Mapping[str, Any] = {
    "trace": click.option("--trace", type=_FILE, help="File of jobs: one of the formats, or a dump of sacct --parsable2."),
    "format_name": click.option(
        "--format", "format_name", type=OneOf("format", _formats), metavar="NAME",
        help="Format of --trace.  [default: detected]"),
    "workload": click.option(
        "--workload", type=OneOf("workload", _workloads), metavar="NAME",
        help=f"Instead of --trace: generated jobs.  [default: {DEFAULT_WORKLOAD}]"),
    "jobs": click.option(
        "--jobs", type=click.IntRange(min=1), metavar="N",
        help="The first N jobs of the trace; of generated jobs, how many."),
    "load": click.option(
        "--load", type=click.FloatRange(1e-3, 1e3), metavar="X",
        help="Generated jobs arrive this many times as fast.  [default: 1]  Of like-philly and the workloads after it: GPU "
        "time of the jobs over that of their cluster while they arrive.  [default: 0.9]"),
    "cluster": click.option(
        "--cluster", metavar="NxG[:TYPE]", help="Nodes x GPUs on each, such as 16x4 or 8x8:a100/128c/1024g+20x0/64c.  "
        "[default: the workload's own]"),
    "start_cost_s": click.option(
        "--start-cost-s", **_SECONDS, help="Time for which a job's first start holds its GPUs without progress."),
    "restart_cost_s": click.option(
        "--restart-cost-s", **_SECONDS, help="The same for each later start."),
    "checkpoint_cost_s": click.option(
        "--checkpoint-cost-s", **_SECONDS, help="Time by which a preempted job leaves later."),
    "cost_spread": click.option(
        "--cost-spread", type=NumberRange(min=1.0, max=1000.0), metavar="X",
        help="Kinds of jobs (models, else users), drawn by --seed, differ in what a preemption costs them: --restart-cost-s "
        "times 1/X to X, and half of them do not save their state when they are preempted, but each --checkpoint-every-s "
        "times 1/X to X, if that is given.  [default: all are alike]"),
    "learn_costs": click.option(
        "--learn-costs/--no-learn-costs", default=True, show_default=True,
        help="Whether soda learns, while it runs, what preempting each kind costs, where kinds differ."),
    "round_s": click.option(
        "--round-s", **_SECONDS, help="Decide only at multiples of this time; 0: at every event."),
    "max_preemptions": click.option(
        "--max-preemptions", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
        help="A job that was preempted so often is not preempted any more; 0: no bound."),
    "passing_limit_s": click.option(
        "--passing-limit-s", type=NumberRange(min=0.0, min_open=True), default=DEFAULT_PASSING_LIMIT_S,
        show_default=True, metavar="SECONDS",
        help="A job that waited so long is passed and delayed by no later one, as with sodad's cycle.passing_limit_s; inf: "
        "no bound, as in the papers."),
    "profiles": click.option(
        "--profiles", type=_FILE, help="Folder of measured step times: run times and speed by placement. Or a JSON of "
        "speeds in Gavel's format: speed of gangs that are spread over more nodes than they need."),
    "spread_knowledge": click.option(
        "--spread-knowledge", type=click.Choice(SPREAD_KNOWLEDGE), default=NONE, show_default=True,
        help="With --profiles: what soda knows of how much slower jobs run on more nodes than they need: nothing; what jobs "
        "that ended have shown; or the truth."),
    **AGREEMENT,
    **SITE,
    **SHARING,
    "failures": click.option("--failures", type=_FILE, help="CSV of node failures: node,down_s,up_s."),
    "history": click.option(
        "--history", type=_FILE, help="Trace of past jobs, for policies and predictions that learn.  [default: the jobs "
        "themselves; predictions: none]"),
    "learn_days": click.option(
        "--learn-days", type=click.FloatRange(min=0.0, min_open=True), metavar="DAYS",
        help="Instead of --history: the first DAYS days of --trace are the history; the rest is run."),
    "estimates": click.option(
        "--estimates", type=click.Choice(ESTIMATES), default="trace", show_default=True,
        help="What policies know about run times."),
    "engine": click.option("--engine", type=click.Choice(ENGINES), default="auto", show_default=True,
                           help="auto: the fastest that can run it."),
    "placement": click.option(
        "--placement", type=click.Choice(PLACEMENTS), default="policy", show_default=True,
        help="Where the policy decides, or on the nodes with the most free GPUs, as in Pollux' simulator."),
    "cores": click.option(
        "--cores", type=click.Choice((CORES_AS_TRACED, *CORE_ALLOCATIONS)), default=CORES_AS_TRACED, show_default=True,
        help="CPU cores of training jobs: without effect on their speed; as many as asked for; or as many as SODA's "
        "allocator finds; the speed follows the model's curve."),
    "eliminate": click.option(
        "--eliminate", type=click.Choice(ELIMINATED_CONTENTION),
        help="With --cores asked or adaptive: contention on nodes that agents remove.  [default: nothing]"),
    "core_curves": click.option(
        "--core-curves", type=_FILE, help="CSV of GPU utilisation by cores per GPU: model,cores,ratio.  [default: those of "
        "SODA's models]"),
    **SERVICES,
    "lenient": click.option(
        "--lenient", is_flag=True, help="Skip and list what cannot be used, instead of stopping."),
}  # fmt: skip


def add_scenario_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options in common, as one :class:`ScenarioOptions` named ``asked``."""

    @wraps(function)
    def wrapped(**options: Any) -> Any:
        asked = ScenarioOptions(**{spec.name: options.pop(spec.name) for spec in fields(ScenarioOptions)})
        return function(asked=asked, **options)

    for spec in reversed(fields(ScenarioOptions)):
        wrapped = _OPTIONS[spec.name](wrapped)
    return PRINT_SITE(wrapped)
