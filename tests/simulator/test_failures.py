"""Tables of node failures."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from slurm_soda.simulator.cluster import NodeFailure, parse_cluster
from slurm_soda.simulator.errors import TraceError
from slurm_soda.simulator.traces.node_failures import load_node_failures

CLUSTER = parse_cluster("3x4")


def write(folder: Path, *lines: str) -> Path:
    path = folder / "failures.csv"
    path.write_text("\n".join(["node,down_s,up_s", *lines, ""]))
    return path


def test_failures_come_by_time(tmp_path: Path) -> None:
    path = write(tmp_path, "n3,50,70.5", "n1,10,", "n3,5,50")
    assert load_node_failures(path, CLUSTER) == (
        (NodeFailure(2, 5, 50), NodeFailure(0, 10, math.inf), NodeFailure(2, 50, 70.5)),
        (),
    )


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["n4,1,2"], ":2: node must be one of 3x4, n1 to n3, not 'n4'"),
        (["n1,1,2", "n2,5,5"], ":3: up_s must be later than down_s = 5, not '5'"),
        (["n1,5,9", "n1,1,6"], ":2: n1 is down until 6 already: down_s must be later, not '5'"),
        (["n1,1,", "n1,2,3"], ":3: n1 is down until inf already"),
        (["n1,-1,2"], ":2: down_s must be a number of seconds from 0, not '-1'"),
        (["n1,1,soon"], ":2: up_s must be a number"),
        (["n1,1"], ":2: a line must have 3 cells"),
    ],
)
def test_what_cannot_be_is_an_error_of_its_line_or_left_out(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(TraceError) as caught:
        load_node_failures(write(tmp_path, *lines), CLUSTER)
    assert said in str(caught.value)
    found, skipped = load_node_failures(write(tmp_path, *lines, "n3,7,8"), CLUSTER, lenient=True)
    assert found[-1] == NodeFailure(2, 7, 8)
    assert len(found) + len(skipped) == len(lines) + 1
