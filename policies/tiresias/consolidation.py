"""Which jobs must be packed on few nodes and which may fill holes, judged by the skew of their models.

A model whose largest tensor is most of it suffers from being spread, since that tensor travels in one message (Section
3.3). Skew is the size of the largest tensor over the size of the model.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurm_soda.policies.engine.demand import Demand, RequestShape, group_equal_rows
from slurm_soda.policies.engine.placement import FreeNodes, NodeGroups
from slurm_soda.policies.snapshot import BoolColumn, IntColumn, JobTable, NodeTable

_CONSOLIDATE, _ANY, _FILL = 0, 1, 2


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
