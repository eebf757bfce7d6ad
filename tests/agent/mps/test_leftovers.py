"""What users left in directories of MPS is removed, some at a time, whatever it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_soda.agent.mps.leftovers import remove_leftovers
from slurm_soda.agent.mps.mps_news import MpsNews
from slurm_soda.agent.mps.mps_watch import INTERVAL_S, LEFTOVERS, MpsWatch
from slurm_soda.agent.resource_controller import NodeSample
from slurm_soda.agent.sampling.gpus import Gpus


def leave(directory: Path, files: int) -> Path:
    """As the hooks put it there."""
    log = directory / "65534.Ab3" / "log"
    log.mkdir(parents=True)
    (log.parent / "pipe").mkdir()
    os.mkfifo(log.parent / "pipe" / "control")
    for number in range(files):
        (log / str(number)).touch()
    return log


def test_any_number_of_names_goes_some_at_a_time(tmp_path: Path) -> None:
    log = leave(tmp_path, 1500)
    passes = 1
    while remove_leftovers(tmp_path, 0.0):
        passes += 1
        assert passes < 20
    assert passes > 5
    assert list(tmp_path.iterdir()) == []
    assert not log.exists()


def test_links_are_not_followed_and_deep_places_are_reached(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "kept").write_text("kept")
    left = tmp_path / "left"
    log = leave(left, 3)
    (log / "link").symlink_to(precious)
    deep = log
    for _ in range(60):
        deep = deep / "d"
        deep.mkdir()
    (deep / "file").write_text("x")
    deep.chmod(0o1000)
    (left / "all.Ab3").mkdir()
    (left / "odd").symlink_to(precious)
    for _ in range(200):
        assert remove_leftovers(left, 0.0)  # root alone puts anything else there: it stays
    assert [path.name for path in left.iterdir()] == ["odd"]
    assert (precious / "kept").read_text() == "kept"


@pytest.mark.parametrize("place", ["absent", "a file"])
def test_where_nobody_left_anything_nothing_happens(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").touch()
    assert not remove_leftovers(tmp_path / place, 0.1)


def test_the_agent_looks_for_them_until_they_are_gone(tmp_path: Path) -> None:
    watch = MpsWatch(Gpus(), MpsNews(), tmp_path / "mps", tmp_path)
    left = tmp_path / LEFTOVERS
    log = leave(left, 10)
    watch.turn(NodeSample(1.0, (), unix_s=5e8))
    assert list(left.iterdir()) == []
    assert watch.interval_s == float("inf")
    log = leave(left, 50_000)
    watch.turn(NodeSample(2.0, (), unix_s=5e8))
    assert 0 < len(list(log.iterdir())) < 50_000
    assert watch.interval_s == INTERVAL_S
