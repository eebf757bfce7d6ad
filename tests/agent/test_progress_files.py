"""Progress files: what is taken, what is not, and that no name in a user's directory can harm the agent."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.agent.sampling.progress_cleaning import MAX_REMOVED
from slurm_soda.agent.sampling.progress_files import MAX_BYTES, ProgressFiles, ProgressLine, parse_progress
from slurm_soda.agent.sampling.run_progress import RunProgress
from slurm_soda.wire.records import JobOpened, ReportedProgress
from slurm_soda.wire.run_fields import MAX_ITERATIONS

OPENED = JobOpened(7, 1, "n1", os.getuid(), "alice", "gpu", 1000.0, (0,), 4)
LINE = b"iteration=120 seconds=51.25 of=5000 saved=100 batch=64\n"
SAYS = ProgressLine(120.0, 51.25, 5000.0, 100.0, 64)


@pytest.fixture
def files(tmp_path: Path) -> ProgressFiles:
    files = ProgressFiles(str(tmp_path))
    assert files.prepare(OPENED) == ""
    return files


@pytest.fixture
def place(tmp_path: Path, files: ProgressFiles) -> Path:
    del files
    return tmp_path / str(OPENED.uid) / "7.1"


def test_the_line_of_this_run_is_read_and_goes_with_it(files: ProgressFiles, place: Path) -> None:
    assert files.read(OPENED) is None
    place.write_bytes(LINE)
    place.with_name("7.1.new").write_bytes(b"half")
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert files.read(OPENED) == SAYS
    assert files.read(replace(OPENED, restart=0)) is None
    files.remove(OPENED)
    assert list(place.parent.iterdir()) == []
    files.remove(OPENED)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\n", LINE[:-1], b"\xff\xfe\x00\n", b"seconds=1\n", b"iteration=1\n", b"iteration=-1 seconds=1\n",
        b"iteration=1e9 seconds=1\n", b"iteration=nan seconds=1\n", b"iteration=inf seconds=1\n",
        b"iteration=1 seconds=1 of=x\n", b"iteration=1 seconds=1 saved=-3\n", b"iteration=9999999999999 seconds=1\n",
        b"iteration=1 seconds=1 batch=999999999999999\n", b"iteration=" + b"9" * 400 + b" seconds=1\n",
        b"iteration=\xd9\xa3 seconds=1\n", b"0" * MAX_BYTES + LINE,
    ],
)  # fmt: skip
def test_junk_says_nothing(files: ProgressFiles, place: Path, content: bytes) -> None:
    place.write_bytes(content)
    assert files.read(OPENED) is None


def link_to_ones_own(place: Path) -> None:
    place.with_name("other").write_bytes(LINE)
    place.symlink_to("other")


def sparse(place: Path) -> None:
    place.write_bytes(LINE)
    os.truncate(place, 1 << 40)


def listening(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))


@pytest.mark.parametrize("make", [link_to_ones_own, sparse, os.mkfifo, listening, Path.mkdir])
def test_nothing_but_a_short_regular_file_is_read(
    files: ProgressFiles, place: Path, make: Callable[[Path], object]
) -> None:
    make(place)
    assert files.read(OPENED) is None
    files.remove(OPENED)


def test_a_file_of_another_owner_is_not_read(files: ProgressFiles, place: Path) -> None:
    if os.getuid():
        pytest.skip("needs root: it gives a file away")
    place.write_bytes(LINE)
    os.chown(place, 12345, -1)
    assert files.read(OPENED) is None


def test_the_directory_becomes_its_owners_and_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("needs root: it gives a directory away")
    files, others = ProgressFiles(str(tmp_path / "p")), replace(OPENED, uid=12345)
    assert files.prepare(others) == files.prepare(others) == ""
    assert (tmp_path / "p/12345").stat().st_uid == 12345
    (tmp_path / "p/12346").symlink_to(tmp_path)
    assert "cannot be made" in files.prepare(replace(OPENED, uid=12346))
    assert tmp_path.stat().st_uid == 0


def test_a_directory_that_cannot_be_made_is_a_fault_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("")
    assert "cannot be made" in ProgressFiles(str(tmp_path / "p")).prepare(OPENED)


@given(st.binary(max_size=600))
def test_any_bytes_give_a_bounded_line_or_none(content: bytes) -> None:
    told = parse_progress(content)
    if told is not None:
        assert 0 <= max(told.iteration, told.total, told.saved, told.batch) <= MAX_ITERATIONS


@given(st.text("0123456789. -e=+", max_size=40), st.text("0123456789.", max_size=20))
def test_any_numbers_make_a_record_that_the_controller_takes(number: str, seconds: str) -> None:
    told = parse_progress(f"iteration={number} seconds={seconds}\n".encode())
    if told is not None:
        record = RunProgress.begun(told, 1000.0, 50.0).record(OPENED)
        assert ReportedProgress.from_dict(asdict(record)) == record


def test_the_time_between_two_lines_is_what_they_say() -> None:
    run = RunProgress.begun(ProgressLine(10, 7.0), 1000.0, 50.0)
    run.take(ProgressLine(10, 7.0), 1001.0, 51.0, 6.0)
    assert run.record(OPENED).idle_s == 1.0
    run.take(ProgressLine(20, 9.5), 1003.0, 53.0, 6.0)
    assert (run.clock_s, run.at_s, run.record(OPENED).idle_s) == (52.5, 1003.0, 0.0)


@pytest.mark.parametrize("seconds", [0.0, 7.0, 6.0, 1e12])
def test_a_time_that_cannot_be_is_replaced_by_what_the_agent_saw(seconds: float) -> None:
    run = RunProgress.begun(ProgressLine(10, 7.0), 1000.0, 50.0)
    run.take(ProgressLine(20, seconds), 1020.0, 70.0, 6.0)
    assert run.clock_s == 70.0


@pytest.mark.parametrize("step_s", [0.001, 1.0, 2.5, 8.0])
def test_steps_that_are_each_a_little_wrong_do_not_add_up(step_s: float) -> None:
    run, before_s = RunProgress.begun(ProgressLine(0, 7.0), 1000.0, 50.0), 50.0
    for reading in range(1, 101):
        run.take(ProgressLine(reading, 7.0 + reading * step_s), 1000.0 + 2 * reading, 50.0 + 2 * reading, 6.0)
        assert run.clock_s > before_s
        before_s = run.clock_s
    assert abs(run.clock_s - 250.0) <= 6.0, "200 s on the agent's clock"


def fill(directory: Path) -> None:
    """What a user could leave there."""
    directory.joinpath("7.1").write_bytes(LINE)
    directory.joinpath("7.1.new").write_bytes(b"half")
    directory.joinpath("6.0").write_bytes(LINE)
    directory.joinpath("7.0").symlink_to("7.1")
    os.mkfifo(directory / "fifo")
    listening(directory / "socket")
    deep = directory.joinpath(*"abcdefgh")
    deep.mkdir(parents=True)
    for number in range(50):
        deep.joinpath(str(number)).write_bytes(b"x" * 5000)
    for number in range(2 * MAX_REMOVED):
        directory.joinpath(f"file.{number}").touch()


def test_nothing_stays_but_progress_files_of_runs_under_way(files: ProgressFiles, place: Path) -> None:
    fill(place.parent)
    before = len(list(place.parent.iterdir()))
    files.clean([OPENED])
    assert before - len(list(place.parent.iterdir())) == pytest.approx(MAX_REMOVED, abs=10)
    for _ in range(12):
        files.clean([OPENED])
    assert sorted(path.name for path in place.parent.iterdir()) == ["7.1", "7.1.new"]
    assert files.read(OPENED) == SAYS
    files.clean([])
    assert list(place.parent.iterdir()) == []


@pytest.mark.parametrize("size", [1 << 20, 1 << 40])
def test_a_progress_file_that_is_long_goes_and_what_it_holds_though_it_is_open(
    files: ProgressFiles, place: Path, size: int
) -> None:
    with place.open("wb") as file:
        file.write(b"x" * (1 << 20))
        file.truncate(size)
        file.flush()
        files.clean([OPENED])
        assert os.fstat(file.fileno()).st_blocks == 0
    assert not place.exists()


def test_a_second_name_of_anothers_file_goes_and_the_file_stays(files: ProgressFiles, place: Path) -> None:
    if os.getuid():
        pytest.skip("needs root: it gives a file away")
    precious = place.parents[1] / "precious"
    precious.write_bytes(b"x" * 5000)
    os.chown(precious, 12345, -1)
    place.with_name("link").symlink_to(precious)
    place.with_name("name").hardlink_to(precious)
    files.clean([])
    assert list(place.parent.iterdir()) == []
    assert precious.stat().st_size == 5000


def test_a_sticky_directory_is_emptied_with_the_rights_that_the_service_has(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("needs root: it gives files away")
    place = tmp_path / "12345"
    (place / "inner").mkdir(parents=True)
    (place / "inner/file").touch()
    for path in (place / "inner/file", place / "inner", place):
        path.chmod(0o1777)
        os.chown(path, 12345, -1)
    code = f"from slurm_soda.agent.sampling.progress_files import ProgressFiles; ProgressFiles({str(tmp_path)!r}).clean([])"
    unit = Path(__file__).parents[2] / "agent/soda-agent.service"
    rights = next(line for line in unit.read_text().splitlines() if line.startswith("CapabilityBoundingSet="))
    bounds = ",".join(["-all", *(f"+{name[4:].lower()}" for name in rights.partition("=")[2].split())])
    subprocess.run(["setpriv", f"--bounding-set={bounds}", sys.executable, "-c", code], check=True)
    assert list(place.iterdir()) == []
    assert place.stat().st_uid == 12345
