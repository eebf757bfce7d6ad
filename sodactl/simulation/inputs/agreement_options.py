"""Options of ``simulate``, ``compare`` and ``whatif``: how many jobs can checkpoint, and how many may share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from slurm_soda.simulator.runs.agreeing_users import LEAST_USERS, AgreeingUsers
from slurm_soda.sodactl.simulation.inputs.sharing_options import SharingOptions

_RATIO: Mapping[str, Any] = {"type": click.FloatRange(0.0, 1.0), "metavar": "RATIO"}
OPTIONS: Mapping[str, Any] = {
    "can_checkpoint": click.option(
        "--can-checkpoint", **_RATIO,
        help="Part of the jobs, from 0 to 1, that save their state and may be preempted: those of users drawn by --seed, "
        f"all of a user or none; single jobs where there are fewer than {LEAST_USERS} users. Whoever can at 0.3 can at 0.5. "
        "[default: as the trace says; else all]"),
    "consent": click.option(
        "--consent", **_RATIO,
        help="Part of the jobs whose users let them share GPUs, drawn in the same way, apart from the other."
        "  [default: as the trace says; else all]"),
}  # fmt: skip


def add_agreement_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command these options, as ``can_checkpoint`` and ``consent``."""
    for option in reversed(list(OPTIONS.values())):
        function = option(function)
    return function


def build_agreeing_users(can_checkpoint: float | None, consent: float | None, sharing: SharingOptions) -> AgreeingUsers:
    """Who agrees to what.

    Raises:
        click.UsageError: nobody could share anyway.
        SimulatorError: a number that is no ratio.
    """
    if consent is not None and sharing.pairs is None and sharing.pair_slowdown is None:
        raise click.UsageError("--consent needs --pairs or --pair-slowdown: without them no job shares a GPU")
    return AgreeingUsers(can_checkpoint, consent)
