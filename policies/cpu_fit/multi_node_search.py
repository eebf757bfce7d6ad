"""One search for a job on several nodes, from what each node measured (SODA, Section V-B: every node alike)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_soda.policies.cpu_fit.core_search import CoreSearch, SearchRules, SettleCores, TryCores
from slurm_soda.policies.cpu_fit.measurement import Measurement, combine_nodes

CUT_SHORT = "cut_short"
"""Reason of a search that was given up: a node fell silent, or did not set what the others did."""


@dataclass(frozen=True, slots=True)
class NodeMeasurement:
    """What one node measured in one step."""

    node: str
    search: int
    """0 for the run's first search, one more for each later phase."""
    step: int
    """0 with the cores that the job had when the search began."""
    limit: int
    """The most cores that may be set on this node."""
    gpus: int
    measurement: Measurement


@dataclass(frozen=True, slots=True)
class GangOrder:
    """What every node of the job shall do now."""

    search: int
    step: int
    """The measurement that is wanted; of a settled search its last one."""
    cores: int
    settled: bool = False
    reason: str = ""
    """Of a settled search: :class:`.core_search.SettleReason`'s name in small letters, or :data:`CUT_SHORT`."""


def decide_gang_order(parts: Sequence[NodeMeasurement], nodes: int, rules: SearchRules) -> GangOrder | None:
    """The order that follows from all measurements so far; the same for the same measurements.

    Args:
        parts: of one run, in the order of time: a step that was repeated counts as measured last.
        nodes: how many nodes the job has; a step is over once all of them have measured it.
        rules: of the search.

    Returns:
        ``None`` while the nodes measure what the job has anyway, for which they need no order.
    """
    if not parts:
        return None
    newest = max(part.search for part in parts)
    steps = _steps(parts, newest)
    first = steps.get(0, {})
    if len(first) < nodes:
        return _begin(first, newest)
    if not _alike(first):
        return give_up_search(parts)
    search = CoreSearch(_cores(first), min(part.limit for part in first.values()), rules)
    for step in range(len(steps) + 1):
        measured = steps.get(step, {})
        if len(measured) < nodes or not _alike(measured):
            break
        search = search.after(combine_nodes([(part.measurement, part.gpus) for part in measured.values()]))
        match search.advice():
            case SettleCores(cores, reason):
                return GangOrder(newest, step, cores, settled=True, reason=reason.name.lower())
            case TryCores(cores):
                order = GangOrder(newest, step + 1, cores)
    # Nodes that measured the same step with different cores could not all set what was ordered.
    return give_up_search(parts) if len(measured) == nodes else order


def give_up_search(parts: Sequence[NodeMeasurement]) -> GangOrder:
    """Back to the cores that the job had when its newest search began, the most of its nodes where they differ."""
    newest = max(part.search for part in parts)
    steps = _steps(parts, newest)
    first = steps[min(steps)]
    cores = max(part.measurement.cores for part in first.values())
    return GangOrder(newest, max(steps), cores, settled=True, reason=CUT_SHORT)


def _begin(first: Mapping[str, NodeMeasurement], search: int) -> GangOrder | None:
    """A node that saw another phase has begun a new search: the others join it with what they have."""
    return GangOrder(search, 0, _cores(first)) if search and first else None


def _steps(parts: Sequence[NodeMeasurement], search: int) -> dict[int, dict[str, NodeMeasurement]]:
    steps: dict[int, dict[str, NodeMeasurement]] = {}
    for part in parts:
        if part.search == search:
            steps.setdefault(part.step, {})[part.node] = part
    return steps


def _alike(parts: Mapping[str, NodeMeasurement]) -> bool:
    return len({part.measurement.cores for part in parts.values()}) == 1


def _cores(parts: Mapping[str, NodeMeasurement]) -> int:
    return next(iter(parts.values())).measurement.cores
