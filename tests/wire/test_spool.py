"""The spool: whole records or none, nothing followed out of the directory, bounded, usage dropped first."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.wire.errors import SpoolError
from slurm_soda.wire.spool import MAX_FILE_BYTES, Spool, record_name, split_record_name


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def test_records_are_written_replaced_read_and_removed(directory: Path) -> None:
    spool = Spool(str(directory))
    spool.write("7.100.usage", b"one\n")
    spool.write("7.100.usage", b"two\n", durable=True)
    assert spool.read("7.100.usage") == b"two\n"
    assert spool.names() == ["7.100.usage"]
    assert [p.name for p in directory.iterdir()] == ["7.100.usage"]
    assert (directory / "7.100.usage").stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700
    spool.remove("7.100.usage")
    spool.remove("7.100.usage")
    with pytest.raises(FileNotFoundError):
        spool.read("7.100.usage")


@pytest.mark.parametrize(
    "name", ["", "..", "../7.1.open", "7.1.open/x", "7.1.evil", "07.1.open", "7.1.open\n", "-1.1.open", "٣.1.open"]
)
def test_other_names_are_never_touched(directory: Path, name: str) -> None:
    spool = Spool(str(directory))
    with pytest.raises(SpoolError):
        spool.write(name, b"x")
    with pytest.raises(SpoolError):
        split_record_name(name)


@given(st.integers(1, 4294967295), st.integers(0, 10**11 - 1), st.sampled_from(["open", "close", "usage"]))
def test_names_can_be_taken_apart_again(job_id: int, start_s: int, kind: str) -> None:
    assert split_record_name(record_name(job_id, start_s, kind)) == (job_id, start_s, kind)


def test_a_record_that_cannot_be_read_is_an_error_and_not_an_empty_one(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(str(directory))
    spool.write("7.100.usage", b"one\n")

    def fails(_fd: int, _most: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("slurm_soda.wire.spool.os.read", fails)
        with pytest.raises(SpoolError, match=r"7\.100\.usage cannot be read"):
            spool.read("7.100.usage")


def test_a_directory_that_others_may_enter_is_refused(directory: Path) -> None:
    directory.mkdir(mode=0o755)
    with pytest.raises(SpoolError, match=r"mode 0755; it must belong to uid \d+ with mode 0700"):
        Spool(str(directory))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_is_refused(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    os.chown(directory, 1234, 1234)
    with pytest.raises(SpoolError, match="belongs to uid 1234"):
        Spool(str(directory))


def test_a_link_in_place_of_the_directory_is_refused(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    directory.symlink_to(tmp_path / "target")
    with pytest.raises(SpoolError, match="no directory that can be opened"):
        Spool(str(directory))


def test_a_file_in_place_of_the_directory_and_a_missing_parent_are_refused(directory: Path) -> None:
    directory.write_text("x")
    with pytest.raises(SpoolError, match="no directory"):
        Spool(str(directory))
    with pytest.raises(SpoolError, match="make its parent directory"):
        Spool(str(directory.parent / "no" / "where"))


def test_links_inside_are_replaced_and_not_followed(directory: Path, tmp_path: Path) -> None:
    spool = Spool(str(directory))
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (directory / "7.1.usage").symlink_to(victim)
    (directory / f".new-{os.getpid()}-7.1.usage").symlink_to(victim)
    with pytest.raises(SpoolError, match="cannot be opened"):
        spool.read("7.1.usage")
    spool.write("7.1.usage", b"new\n")
    assert victim.read_text() == "precious"
    assert spool.read("7.1.usage") == b"new\n"


def test_pipes_directories_and_huge_files_are_no_records(directory: Path) -> None:
    spool = Spool(str(directory))
    os.mkfifo(directory / "1.1.open")
    (directory / "2.1.open").mkdir()
    (directory / "3.1.open").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    for name in sorted(spool.names()):
        with pytest.raises(SpoolError):
            spool.read(name)
    with pytest.raises(SpoolError, match="no record"):
        spool.write("4.1.open", b"x" * (MAX_FILE_BYTES + 1))


def test_usage_of_the_oldest_runs_goes_first_and_events_last(directory: Path) -> None:
    spool = Spool(str(directory))
    for start_s in range(10):
        for kind in ("open", "close", "usage"):
            spool.write(record_name(50 - start_s, start_s, kind), b"x")
    assert spool.trim(30) == 0
    assert spool.trim(29) == 4
    left = {split_record_name(name) for name in spool.names()}
    assert {start_s for _, start_s, kind in left if kind == "usage"} == set(range(4, 10))
    assert sum(kind != "usage" for _, _, kind in left) == 20
    assert spool.trim(10) == 17
    assert {kind for _, _, kind in map(split_record_name, spool.names())} == {"open", "close"}
    assert min(start_s for _, start_s, _ in map(split_record_name, spool.names())) == 5


def test_leftovers_of_dead_writers_are_cleared_and_those_of_living_ones_kept(directory: Path) -> None:
    spool = Spool(str(directory))
    (directory / ".new-99999999-7.1.open").write_text("half")
    (directory / f".new-{os.getpid()}-8.1.open").write_text("half")
    spool.clear_leftovers()
    assert [p.name for p in directory.iterdir()] == [f".new-{os.getpid()}-8.1.open"]
    assert spool.names() == []


def test_a_disk_that_refuses_is_said_in_one_line(directory: Path) -> None:
    spool = Spool(str(directory))
    directory.rmdir()
    with pytest.raises(SpoolError, match=r"7\.1\.open cannot be written \(No such file or directory\)"):
        spool.write("7.1.open", b"x")
