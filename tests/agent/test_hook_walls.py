"""Whether the hooks of a node can keep others off shared GPUs, by the files that a site installs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_soda.agent.sampling.hook_walls import HookWalls
from slurm_soda.wire.walls import NodeWalls

TOP = Path(__file__).parents[2]
PARTS = ("share-start", "share-records", "share-back", "share-walls", "share-guest", "share-end")


@pytest.fixture
def node(tmp_path: Path) -> HookWalls:
    libexec, shares = tmp_path / "libexec", tmp_path / "run" / "shares"
    libexec.mkdir()
    shares.mkdir(parents=True)
    for source in (TOP / "prolog/prolog", TOP / "epilog/epilog", *TOP.glob("*log/share-*")):
        shutil.copy(source, libexec)
        (libexec / source.name).chmod(0o755)
    return HookWalls(libexec, shares, os.geteuid())


def test_whole_hooks_tell_whose_prologs_wrote_records(node: HookWalls) -> None:
    for name in ("gpus.12", "gpus.7", "guest.9", "env.9", "gpus.x", ".gpus.4"):
        (node.shares / name).touch()
    assert node.read() == NodeWalls("", (7, 12), (9,))


def test_before_the_first_job_there_are_no_records(node: HookWalls) -> None:
    shutil.rmtree(node.shares.parent)
    assert node.read() == NodeWalls(guests=())


def test_every_part_is_looked_at() -> None:
    assert {path.name for path in TOP.glob("*log/share-*")} == set(PARTS)


def _cut(path: Path) -> None:
    text = path.read_text()
    path.write_text(text[: text.rindex("\n}\n") + 3])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "No such file": Path.unlink,
    "not whole": _cut,
    "not root's alone": lambda path: path.chmod(0o775),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_not_as_it_was_installed_is_named(node: HookWalls, part: str, damage: str) -> None:
    DAMAGES[damage](node.libexec / part)
    fault = node.read().fault
    assert part in fault
    assert damage in fault


def test_hooks_that_cannot_run_or_know_no_parts_are_named(node: HookWalls) -> None:
    (node.libexec / "epilog").write_text("#!/bin/sh\n# slurm-soda's epilog: an older one\n")
    assert "epilog" in node.read().fault
    (node.libexec / "prolog").chmod(0o644)
    assert "prolog" in node.read().fault


def test_somebody_elses_files_or_directory_do_not_count(node: HookWalls) -> None:
    assert "share-start" in HookWalls(node.libexec, node.shares, node.owner + 1).read().fault
    node.shares.rmdir()
    node.shares.symlink_to(node.libexec)
    assert "is not root's own directory" in node.read().fault
