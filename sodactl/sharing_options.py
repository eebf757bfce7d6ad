"""Options of ``simulate``, ``compare`` and ``whatif``: what jobs do to each other on a GPU, and what policies know of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import click
from slurm_soda.simulator.cluster import Cluster
from slurm_soda.simulator.sharing.rules import KNOWLEDGE, SharingRules
from slurm_soda.sodactl.predictors import read_predictor

_FILE = click.Path(path_type=Path)
OPTIONS: Mapping[str, Any] = {
    "pairs": click.option(
        "--pairs", type=_FILE, help="JSON of measured speeds alone and in pairs, as Gavel has them: what jobs that share a "
        "GPU do to each other, and run times of Gavel's traces."),
    "pair_slowdown": click.option(
        "--pair-slowdown", type=click.FloatRange(min=1.0), metavar="X",
        help="Instead of --pairs: any two jobs fit onto a GPU, and each takes X times as long there."),
    "model_map": click.option(
        "--model-map", type=_FILE, help="CSV of models of the table that stand for the trace's: model,table_model,"
        "batch_size.  [default: for Pollux' models]"),
    "knowledge": click.option(
        "--knowledge", type=click.Choice(KNOWLEDGE), default=KNOWLEDGE[0], show_default=True,
        help="What policies know of pairs before they meet: all, what a model predicts, or that jobs take turns."),
    "predictor": click.option(
        "--predictor", type=_FILE, help="With --knowledge predicted: the model."),
    "observe": click.option(
        "--observe/--no-observe", default=True, show_default=True,
        help="Whether policies learn of slowdowns that were seen for a minute."),
}  # fmt: skip


class AskedSharing(Protocol):
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


def sharing_rules(asked: AskedSharing, cluster: Cluster) -> SharingRules | None:
    """What jobs do to each other on this cluster's GPUs; None: nobody says.

    Raises:
        click.UsageError: options that do not go together.
        SimulatorError: a file cannot be used.
    """
    if asked.pairs is not None and asked.pair_slowdown is not None:
        raise click.UsageError("give either --pairs or --pair-slowdown")
    if (asked.knowledge == "predicted") != (asked.predictor is not None):
        raise click.UsageError("--knowledge predicted and --predictor FILE go together")
    if asked.pairs is None and asked.pair_slowdown is None:
        if asked.predictor is not None or asked.model_map is not None or asked.knowledge != KNOWLEDGE[0]:
            raise click.UsageError(
                "--knowledge, --predictor and --model-map need --pairs: without it no job shares a GPU"
            )
        return None
    return SharingRules(
        pairs=asked.pairs,
        gpu="" if asked.pairs is None else _gpu(asked.pairs, cluster),
        slowdown=asked.pair_slowdown,
        model_map=asked.model_map,
        knowledge=asked.knowledge,
        predictor=None if asked.predictor is None else read_predictor(asked.predictor),
        observes=asked.observe,
    )


def _gpu(path: Path, cluster: Cluster) -> str:
    """The cluster's first kind of GPU that was measured; else the table's fastest."""
    from slurm_soda.simulator.speed.pairs import load_pairs  # noqa: PLC0415 - few runs have measured tables

    known = load_pairs(path).gpus
    return next((name for name in cluster.gpu_types if name in known), "")
