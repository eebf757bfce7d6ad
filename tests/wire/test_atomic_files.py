"""Files that are replaced whole: what readers see, what stays behind, and that no link is followed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_soda.wire.atomic_files import write_at


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_an_open_reader_keeps_the_old_content(tmp_path: Path, directory: int) -> None:
    write_at(directory, "f", b"old", temporary=".f")
    with (tmp_path / "f").open("rb") as reader:
        write_at(directory, "f", b"new", temporary=".f", mode=0o644)
        assert reader.read() == b"old"
    assert (tmp_path / "f").read_bytes() == b"new"
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


def test_what_a_dead_writer_left_is_in_nobodys_way(tmp_path: Path, directory: int) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / ".f").symlink_to(precious)
    (tmp_path / "f").symlink_to(precious)
    write_at(directory, "f", b"new", temporary=".f")
    assert precious.read_text() == "precious"
    assert not (tmp_path / "f").is_symlink()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["f", "precious"]


def test_a_refusal_leaves_all_as_it_was(tmp_path: Path, directory: int) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(IsADirectoryError):
        write_at(directory, "f", b"new", temporary=".f")
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]
