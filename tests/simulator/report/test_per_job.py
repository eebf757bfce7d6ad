"""The per-job CSV: every job, exact to a millisecond, the same bytes each time."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

import pytest

from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.report.atomic_files import write_atomically
from slurm_soda.simulator.report.per_job import PER_JOB_COLUMNS, per_job_csv

from .outcomes import outcome

JOBS = [
    {"label": "a", "user": "bob", "submit_s": 0, "run_s": 10, "gpus": 2, "cpus": 4, "runs": [(0.1234567, 10.1234567)]},
    {"label": "b, c", "user": "", "submit_s": 1.5, "run_s": 20.25, "gpus": 1, "runs": [(2, 3), (10, 29.25)]},
    {"label": "z", "user": "eve", "submit_s": 2, "run_s": 1, "gpus": 9, "runs": []},
]


def test_every_cell() -> None:
    assert per_job_csv(outcome(JOBS)).split("\n") == [
        ",".join(PER_JOB_COLUMNS),
        "a,bob,2,4,0,0.123,10.123,10,10.123,0.123,10,0,0",
        '"b, c",,1,0,1.5,2,29.25,20.25,27.75,7.5,20.25,1,0',
        "z,eve,9,0,2,,,1,,,0,0,0",
        "",
    ]


def test_it_reads_back() -> None:
    rows = list(csv.DictReader(io.StringIO(per_job_csv(outcome(JOBS)))))
    assert [row["label"] for row in rows] == ["a", "b, c", "z"]


def test_files_appear_whole_and_leave_no_drafts(tmp_path: Path) -> None:
    target = tmp_path / "new" / "jobs.csv"
    write_atomically(target, b"one")
    write_atomically(target, b"two")
    assert target.read_bytes() == b"two"
    assert [path.name for path in target.parent.iterdir()] == ["jobs.csv"]


def test_a_place_that_cannot_be_written_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SimulatorError, match=r"file/jobs.csv cannot be written: .*; name another place"):
        write_atomically(tmp_path / "file" / "jobs.csv", b"")
    with pytest.raises(SimulatorError, match="Is a directory"):
        write_atomically(tmp_path, b"")
    for nameless in ("/", ".", ""):
        with pytest.raises(SimulatorError, match="Is a directory"):
            write_atomically(Path(nameless), b"")


def test_a_pipe_is_written_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, b"bytes")
    assert os.read(reader, 100) == b"bytes"
    assert pipe.is_fifo()
