"""Options of ``simulate``, ``compare`` and ``whatif``: what jobs do to each other on a GPU, and what policies know of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Protocol

import click

from slurm_soda.policies.sharing.job_kinds import InterferenceEstimator
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, MECHANISMS, SLURM, Mechanism, find_mechanism
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.sharing.sharing_rules import PAIR_KNOWLEDGE, PREDICTED, SharingRules
from slurm_soda.simulator.sharing.true_slowdowns import PerfectKnowledge, UniformSlowdown
from slurm_soda.simulator.workload import Workload
from slurm_soda.sodactl.simulation.inputs.parameter_types import NumberRange
from slurm_soda.sodactl.simulation.inputs.slowdown_predictors import fit_leave_one_out, load_predictor

_MAX_LISTED = 5
_FILE = click.Path(path_type=Path)


def _mechanism_option(default: Mechanism) -> Any:
    """None if it was not given, so that ``build_sharing_rules`` can refuse it where nobody shares."""
    return click.option(
        "--mechanism", type=click.Choice(tuple(MECHANISMS)),
        help="What carries sharing out. ideal: jobs join each other wherever a policy wants, and either may end first. "
        "slurm: a job joins one of its user that runs already, and is requeued when that one ends; its work since it last "
        "saved its state is lost (--checkpoint-every-s), and each step takes the seconds that Slurm needs."
        f"  [default: {default.name}]")  # fmt: skip


OPTIONS: Mapping[str, Any] = {
    "pairs": click.option(
        "--pairs", type=_FILE, help="JSON of measured speeds alone and in pairs, in Gavel's format: how far jobs that "
        "share a GPU slow each other down, and run times of Gavel's traces."),
    "pair_slowdown": click.option(
        "--pair-slowdown", type=click.FloatRange(min=1.0), metavar="X",
        help="Instead of --pairs: any two jobs fit onto a GPU, and each takes X times as long."),
    "model_map": click.option(
        "--model-map", type=_FILE, help="CSV of models of the table that stand for the trace's: model,table_model,"
        "batch_size.  [default: for Pollux' models]"),
    "knowledge": click.option(
        "--knowledge", type=click.Choice(PAIR_KNOWLEDGE), default=PAIR_KNOWLEDGE[0], show_default=True,
        help="What policies know about a pair before it shares a GPU: all of --pairs; a prediction from the other pairs; or "
        "only that jobs take turns."),
    "predictor": click.option(
        "--predictor", type=_FILE, help="With --knowledge predicted: a stored model, instead of one that is fitted now for "
        "each pair from all others."),
    "observe": click.option(
        "--observe/--no-observe", default=True, show_default=True,
        help="Whether policies learn slowdowns that lasted for a minute."),
    "pair_guess": click.option(
        "--pair-guess", type=click.FloatRange(min=1.0), metavar="X",
        help="With --knowledge predicted: instead of a prediction, policies take every pair to fit, and each of two to take "
        "X times as long, until they have seen it."),
    "max_slowdown": click.option(
        "--max-slowdown", type=NumberRange(min=1.0), metavar="X",
        help="Jobs that name no bound of their own may be slowed X times by sharing.  [default: any number of times]"),
    "parting": click.option(
        "--parting/--no-parting", default=True, show_default=True,
        help="Whether a guest is preempted once a bound was seen to be broken for a minute."),
    "mechanism": _mechanism_option(IDEAL),
    "checkpoint_every_s": click.option(
        "--checkpoint-every-s", type=click.FloatRange(min=0.0, min_open=True), default=math.inf, show_default=True,
        metavar="SECONDS",
        help="Jobs that can save their state do so each time that they worked for so long; inf: only when preempted. The "
        "rest is lost when a node fails, or when a guest's host ends (--mechanism)."),
}  # fmt: skip


class SharingOptions(Protocol):
    """These options, as typed."""

    @property
    def pairs(self) -> Path | None: ...
    @property
    def pair_slowdown(self) -> float | None: ...
    @property
    def model_map(self) -> Path | None: ...
    @property
    def knowledge(self) -> str: ...
    @property
    def predictor(self) -> Path | None: ...
    @property
    def observe(self) -> bool: ...
    @property
    def pair_guess(self) -> float | None: ...
    @property
    def max_slowdown(self) -> float | None: ...
    @property
    def parting(self) -> bool: ...
    @property
    def mechanism(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class SharingOptionValues:
    """These options alone."""

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
    checkpoint_every_s: float


def add_sharing_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that asks about a real site these options, as one :class:`SharingOptionValues` named ``sharing``;
    the mechanism is Slurm's unless another is asked for.
    """
    offered = {**OPTIONS, "mechanism": _mechanism_option(SLURM)}

    @wraps(function)
    def wrapped(**options: Any) -> Any:
        return function(sharing=SharingOptionValues(**{name: options.pop(name) for name in offered}), **options)

    for option in reversed(list(offered.values())):
        wrapped = option(wrapped)
    return wrapped


def build_sharing_rules(
    asked: SharingOptions, cluster: SimulatedCluster, mechanism: Mechanism = IDEAL
) -> SharingRules | None:
    """What jobs do to each other on this cluster's GPUs; None: nobody says. ``mechanism``: unless another is asked for.

    Raises:
        click.UsageError: options that do not go together.
        SimulatorError: a file cannot be used.
    """
    if asked.pairs is not None and asked.pair_slowdown is not None:
        raise click.UsageError("give either --pairs or --pair-slowdown")
    if asked.predictor is not None and asked.knowledge != PREDICTED:
        raise click.UsageError("--predictor needs --knowledge predicted")
    if asked.pair_guess is not None and (asked.knowledge != PREDICTED or asked.predictor is not None):
        raise click.UsageError("--pair-guess needs --knowledge predicted, and no --predictor")
    if asked.pairs is None and asked.pair_slowdown is None:
        if asked.model_map is not None or asked.knowledge != PAIR_KNOWLEDGE[0]:
            raise click.UsageError("--knowledge and --model-map need --pairs: without it no job shares a GPU")
        if asked.max_slowdown is not None:
            raise click.UsageError("--max-slowdown needs --pairs or --pair-slowdown: without them no job shares a GPU")
        if asked.mechanism is not None:
            raise click.UsageError(
                f"--mechanism {asked.mechanism} needs --pairs or --pair-slowdown: without them no job shares a GPU"
            )
        return None
    if asked.knowledge == PREDICTED and asked.pairs is None and asked.pair_guess is None:
        raise click.UsageError("--knowledge predicted needs --pairs or --pair-guess")
    gpu = "" if asked.pairs is None else _gpu(asked.pairs, cluster)
    return SharingRules(
        pairs=asked.pairs,
        gpu=gpu,
        slowdown=asked.pair_slowdown,
        model_map=asked.model_map,
        knowledge=asked.knowledge,
        predictor=_predictor(asked, gpu) if asked.knowledge == PREDICTED else None,
        observes=asked.observe,
        max_slowdown=math.inf if asked.max_slowdown is None else asked.max_slowdown,
        parts=asked.parting,
        mechanism=mechanism if asked.mechanism is None else find_mechanism(asked.mechanism),
    )


def _predictor(asked: SharingOptions, gpu: str) -> InterferenceEstimator | None:
    if asked.predictor is not None:
        return load_predictor(asked.predictor)
    if asked.pair_guess is not None:
        return PerfectKnowledge(UniformSlowdown(asked.pair_guess))
    return None if asked.pairs is None else fit_leave_one_out(asked.pairs, gpu)


def sharing_notes(rules: SharingRules | None, workload: Workload, cluster: SimulatedCluster) -> Iterator[str]:
    """What keeps jobs from sharing, and what was taken for granted of those that do."""
    if rules is not None and rules.gpu and cluster.gpu_types and rules.gpu not in cluster.gpu_types:
        yield f"on all GPUs ({', '.join(cluster.gpu_types)}) jobs do to each other what they do on {rules.gpu} by --pairs"
    unknown = () if rules is None else rules.together(workload).kinds.unknown
    if unknown:
        models = ", ".join(model or "none" for model in unknown[:_MAX_LISTED]) + (
            ", …" if len(unknown) > _MAX_LISTED else ""
        )
        yield f"jobs of models that were not measured never share ({models}); --model-map says what stands for them"


def _gpu(path: Path, cluster: SimulatedCluster) -> str:
    """The cluster's first kind of GPU that was measured; else the table's fastest."""
    from slurm_soda.simulator.speed.pair_table import load_pairs  # noqa: PLC0415 - few runs have measured tables

    table = load_pairs(path)
    return next((name for name in cluster.gpu_types if name in table.gpus), table.fastest())
