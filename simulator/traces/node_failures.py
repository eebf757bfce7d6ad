"""Node failures as a table: when which node is down."""

from __future__ import annotations

import math
from pathlib import Path

from slurm_soda.simulator.cluster import NodeFailure, SimulatedCluster
from slurm_soda.simulator.traces.parsing import number_columns as n
from slurm_soda.simulator.traces.parsing.csv_table import read_csv_table
from slurm_soda.simulator.traces.parsing.trace_faults import TraceFaults
from slurm_soda.simulator.traces.trace import SkippedEntry

FAILURE_COLUMNS = ("node", "down_s", "up_s")


def load_node_failures(
    path: Path, cluster: SimulatedCluster, *, lenient: bool = False
) -> tuple[tuple[NodeFailure, ...], tuple[SkippedEntry, ...]]:
    """Read a CSV file with the columns ``node`` (its name), ``down_s`` and ``up_s`` (empty: it stays down).

    Times are on the clock of the workload. Failures come by ``down_s``, ties in the file's order; then what was left out.

    Raises:
        TraceError: a malformed line, a node that the cluster lacks, or a node that fails while it is down; only the
            first of them if ``lenient`` is not set.
    """
    faults = TraceFaults(str(path), lenient=lenient)
    table = read_csv_table(path, FAILURE_COLUMNS, (), faults)
    down_s = table.numbers("down_s", n.SECONDS).tolist()
    up_s = table.numbers("up_s", n.SECONDS, blank=math.inf).tolist()
    faults.settle()
    names, nodes = table.texts("node"), {name: row for row, name in enumerate(cluster.node_names)}
    known = f"{cluster.node_names[0]} to {cluster.node_names[-1]}"
    found: list[NodeFailure] = []
    until_s: dict[int, float] = {}
    for row in sorted(range(len(table)), key=lambda row: down_s[row]):
        node, line = nodes.get(names[row], -1), table.line[row]
        if math.isnan(down_s[row]) or math.isnan(up_s[row]):
            continue  # a fault already
        if node < 0:
            faults.row(line, f"node must be one of {cluster.name}, {known}", names[row])
        elif up_s[row] <= down_s[row]:
            faults.row(line, f"up_s must be later than down_s = {down_s[row]:g}", table.columns["up_s"][row])
        elif down_s[row] < until_s.get(node, -math.inf):
            faults.row(
                line, f"{names[row]} is down until {until_s[node]:g} already: down_s must be later", f"{down_s[row]:g}"
            )
        else:
            until_s[node] = up_s[row]
            found.append(NodeFailure(node, down_s[row], up_s[row]))
    faults.settle()
    return tuple(found), faults.skipped()
