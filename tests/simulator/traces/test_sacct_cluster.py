"""The cluster that odd records show."""

from __future__ import annotations

from pathlib import Path

from slurm_soda.simulator.traces.sacct.cluster_from_dump import cluster_from
from slurm_soda.simulator.traces.sacct.dump import SacctDump, read_sacct_dump

TWO = "cpu=4,gres/gpu=2,mem=8G,node=1"
HEADER = "JobID|State|Submit|Start|End|AllocTRES|NodeList"
FIRST = f"1|COMPLETED|100|110|120|{TWO}|n1"


def read(tmp_path: Path, *lines: str) -> SacctDump:
    path = tmp_path / "dump.txt"
    path.write_text("\n".join((HEADER, *lines)) + "\n")
    return read_sacct_dump(path, lenient=False)


def test_a_run_of_no_second_shows_what_its_node_holds(tmp_path: Path) -> None:
    cluster, _ = cluster_from(read(tmp_path, FIRST, "2|FAILED|100|115|115|cpu=8,gres/gpu=8,node=1|n2"))
    assert (cluster.node_names, cluster.gpus.tolist()) == (("n1", "n2"), [2, 8])


def test_a_run_of_no_second_was_beside_nobody_as_far_as_seconds_tell(tmp_path: Path) -> None:
    cluster, _ = cluster_from(read(tmp_path, FIRST, f"2|FAILED|100|110|110|{TWO}|n1", f"3|FAILED|100|115|115|{TWO}|n1"))
    assert cluster.gpus.tolist() == [2]


def test_records_without_types_leave_a_node_its_type(tmp_path: Path) -> None:
    """AccountingStorageTRES named the type from the second job on."""
    cluster, _ = cluster_from(read(tmp_path, FIRST, f"2|COMPLETED|200|210|220|{TWO},gres/gpu:a100=2|n1"))
    assert [cluster.gpu_types[code] for code in cluster.gpu_type] == ["a100"]


def test_node_lists_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    lines = (
        FIRST,
        f"2|COMPLETED|200|210|220|{TWO}|n[1-",
        f"3|COMPLETED|200|210|220|{TWO}|n[1-",
        "4|CANCELLED|1|2|3||None assigned",
    )
    notes = read(tmp_path, *lines).notes
    assert [note for note in notes if "NodeList" in note] == [
        "2 runs have a NodeList that cannot be read, such as 'n[1-': they show no node"
    ]
