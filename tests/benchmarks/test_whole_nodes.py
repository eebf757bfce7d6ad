"""The comparison of soda whose jobs move and soda whose jobs do not."""

from __future__ import annotations

import numpy as np

from benchmarks.evaluate.cells import balanced_cells
from benchmarks.whole_nodes import compare_moves, on_fewest_nodes, whole_nodes_scenario
from slurm_soda.simulator.workload import Workload


def test_gangs_want_the_same_of_each_of_the_fewest_nodes() -> None:
    workload = Workload.build("w", [{"submit_s": 0, "run_s": 1, "gpus": gpus} for gpus in (0, 1, 4, 5, 8, 13)])
    changed = on_fewest_nodes(workload, 4)
    assert changed.nodes.tolist() == [1, 1, 1, 2, 2, 4]
    assert changed.gpus_per_node.tolist() == [0, 1, 4, 3, 4, 4]
    assert changed.gpus.tolist() == [0, 1, 4, 6, 8, 16]


def test_a_small_one_runs_to_its_end() -> None:
    cell = next(cell for cell in balanced_cells() if cell.family == "lab" and cell.can_checkpoint == 1.0)
    ratio, moving, staying = compare_moves(whole_nodes_scenario(cell, 1, 12, None))
    assert 0.5 < ratio < 2.0
    assert min(moving, staying) >= 0
    assert np.isfinite(ratio)
