"""Which jobs must be packed on few nodes and which may fill holes, judged by the skew of their models.

A model whose largest tensor is most of it suffers from being spread, since that tensor travels in one message (Section
3.3). Skew is the size of the largest tensor over the size of the model.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurm_soda.policies.engine.demand import Demand, RequestShape, group_equal_rows
from slurm_soda.policies.engine.placement import FreeNodes, NodeGroups
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn, JobTable, NodeTable

PAPER_PACKLIMIT = 0.378
"""What :func:`learn_packlimit` makes of Table 6: half way between GoogleNet and AlexNet."""
SENSITIVE_SLOWDOWN = 1.1
"""Run time when spread over run time when packed from which on a job counts as sensitive."""

_CONSOLIDATE, _ANY, _FILL = 0, 1, 2


def learn_packlimit(skew: FloatColumn, slowdown: FloatColumn, *, slowdown_limit: float = SENSITIVE_SLOWDOWN) -> float:
    """PACKLIMIT from history: the limit of skew that tells jobs that suffer when spread from those that do not.

    The linear classifier of one feature with the fewest errors (Section 3.3.2): a job is taken to suffer if its skew is
    above the limit. Half way between two neighbouring skews of the history; of equally good limits the one with the
    widest gap, then the lowest. 0 if all jobs suffer or there is no history, 1 if none does. O(n log n).

    Args:
        skew: one value a job that ran on more nodes than it had to.
        slowdown: its run time there / its run time on few nodes.
        slowdown_limit: a job suffers from this slowdown on.
    """
    order = np.argsort(skew, kind="stable")
    skew, suffers = skew[order], (slowdown >= slowdown_limit)[order]
    # With the limit before the i-th job, those from i on are taken to suffer.
    errors = np.concatenate(([0], np.cumsum(suffers))) + np.concatenate((np.cumsum(~suffers[::-1])[::-1], [0]))
    edges = np.concatenate(([0.0], skew, [np.inf]))
    gap = np.diff(edges)
    possible = gap > 0
    possible[[0, -1]] = True
    fewest = int(errors[possible].min())
    best = np.flatnonzero(possible & (errors == fewest))
    inner = best[(best > 0) & (best < len(skew))]
    if not len(inner):
        return 0.0 if best[0] == 0 else 1.0
    at = int(inner[np.argmax(gap[inner])])
    return float((edges[at] + edges[at + 1]) / 2)


def place_by_skew(demand: Demand, jobs: JobTable, nodes: NodeTable, packlimit: float) -> Demand:
    """Bind requests that may be split in any way: above PACKLIMIT to the fewest nodes, below it to the smallest holes.

    Above: as few nodes as the request would take if all usable nodes were idle; the job waits for so compact a place.
    At or below: whatever is free, holes first, so that whole nodes stay whole. Jobs of unknown skew, and requests whose
    nodes Slurm was told, are left as they are. One search for each distinct request.
    """
    if not len(jobs.skew) or not np.isfinite(jobs.skew).any():
        return demand
    known = np.isfinite(jobs.skew)
    split = np.array([shape.units > 0 and shape.wants_gpus for shape in demand.shapes], dtype=np.bool_)[demand.code]
    above: BoolColumn = jobs.skew > packlimit
    rule: IntColumn = np.where(known & split, np.where(above, _CONSOLIDATE, _FILL), _ANY).astype(np.int64)
    first, code = group_equal_rows((demand.code, rule))
    whole = FreeNodes(NodeGroups(nodes), nodes.gpus, nodes.cpus, nodes.memory_mib)
    shapes = tuple(_bind_shape(demand.shapes[int(demand.code[row])], int(rule[row]), whole) for row in first.tolist())
    return replace(demand, code=code, shapes=shapes)


def _bind_shape(shape: RequestShape, rule: int, whole: FreeNodes) -> RequestShape:
    if rule == _FILL:
        return shape._replace(fills_holes=True)
    if rule == _CONSOLIDATE:
        return shape._replace(most_nodes=len(whole.find(shape) or ()))
    return shape
