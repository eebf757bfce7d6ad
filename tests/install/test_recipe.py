"""``make install`` as a newcomer runs it: in which order, with which umask, from which path, and what it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
NO_NETWORK = "PIP_FLAGS=--no-index"


def make(top: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    argv = ["make", "-s", "-C", top, *words, f"PYTHON={sys.executable}"]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


def test_missing_headers_are_told_before_anything_is_installed(tmp_path: Path) -> None:
    done = make(TOP, "install", "ROLE=login", f"PREFIX={tmp_path}/prefix", NO_NETWORK, "SLURM_CFLAGS=-nostdinc")
    assert done.returncode != 0
    assert "install libslurm-dev" in done.stderr
    assert not (tmp_path / "prefix").exists()


def install_python(top: Path, folder: Path, tool: str) -> subprocess.CompletedProcess[str]:
    """All roles into ``folder/prefix``, with a strict umask and tools that do as this line of a shell says."""
    tools = folder / "tools" / "bin"
    tools.mkdir(parents=True)
    for name in ("pip", "python"):
        (tools / name).write_text(f"#!/bin/sh\n{tool}\n")
        (tools / name).chmod(0o755)
    environ = {**os.environ, "TOOLS": str(tools.parent), "PYTHON": sys.executable, "PIP_FLAGS": ""}
    argv = [top / "install" / "python.sh", "all", folder / "prefix"]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, cwd="/", umask=0o077)


def test_without_a_network_the_way_is_named(tmp_path: Path) -> None:
    done = install_python(TOP, tmp_path, 'case "$*" in *requirements-build.lock) exit 1 ;; esac')
    assert done.returncode == 1
    assert "PIP_FLAGS='--no-index --find-links FOLDER'" in done.stderr


def test_what_root_installs_with_a_strict_umask_is_for_everybody(tmp_path: Path) -> None:
    install_python(TOP, tmp_path, "exit 0")
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "prefix", tmp_path / "prefix" / "lib")]
    assert modes == [0o755, 0o755]


@pytest.mark.parametrize("folder", ["checkout", "a check out"])
def test_a_checkout_whose_path_has_a_space(tmp_path: Path, folder: str) -> None:
    """Whatever is asked of pip names files that are there."""
    top, missing = tmp_path / folder, tmp_path / "missing"
    top.mkdir()
    shutil.copytree(TOP / "install", top / "install")
    for file in (*TOP.glob("requirements*.lock"), *(TOP / name for name in ("pyproject.toml", "README.md", "LICENSE"))):
        (top / file.name).symlink_to(file)
    (top / "src").mkdir()
    noting = f'[ "$before" != -r ] || [ -f "$word" ] || echo "$word" >>{missing}'
    install_python(top, tmp_path, f"for word; do {noting}; before=$word; done")
    assert not missing.exists()


def links(prefix: Path, folder: Path | str, *words: str) -> str:
    argv = [TOP / "install" / "links.sh", prefix, folder, *words]
    return subprocess.run(argv, umask=0o077, check=True, capture_output=True, text=True).stderr


def test_commands_are_in_everybodys_path(tmp_path: Path) -> None:
    prefix, folder = tmp_path / "slurm-soda", tmp_path / "local" / "bin"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "sodactl").touch()
    for _ in range(2):
        assert links(Path(f"{prefix}/"), folder) == ""
        assert [(path.name, path.readlink()) for path in folder.iterdir()] == [("sodactl", prefix / "bin" / "sodactl")]
    assert folder.stat().st_mode & 0o777 == 0o755
    links(prefix, folder, "remove")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("other", ["file", "link"])
def test_what_is_there_under_that_name_stays(tmp_path: Path, other: str) -> None:
    prefix, folder = tmp_path / "slurm-soda", tmp_path / "bin"
    for path in (prefix / "bin", folder):
        path.mkdir(parents=True)
    (prefix / "bin" / "sodactl").touch()
    if other == "file":
        (folder / "sodactl").write_text("the site's")
    else:
        (folder / "sodactl").symlink_to("/elsewhere/sodactl")
    assert "LINKS=" in links(prefix, folder)
    links(prefix, folder, "remove")
    assert (folder / "sodactl").is_symlink() or (folder / "sodactl").read_text() == "the site's"


def test_a_prefix_that_is_in_the_path_needs_no_links(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sodactl").write_text("ours")
    assert links(tmp_path, tmp_path / "bin") == links(tmp_path, "") == ""
    links(tmp_path, tmp_path / "bin", "remove")
    assert (tmp_path / "bin" / "sodactl").read_text() == "ours"


def test_an_engine_is_asked_for_before_anything_is_fetched(tmp_path: Path) -> None:
    shown = subprocess.run(["make", "-n", "-C", TOP, "demo"], capture_output=True, text=True, check=True).stdout
    assert shown.index("no Docker engine is installed") < shown.index("sodactl demo")
