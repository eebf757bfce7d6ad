"""When images are rebuilt, and what is fetched for them."""

from __future__ import annotations

import re
import shutil
import stat
import tomllib
from pathlib import Path

import pytest

from slurm_soda.containers.base_image import debootstrap_command
from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.cluster_spec import ClusterError, ClusterSpec
from slurm_soda.containers.images import IMAGE, ImageFiles, ImageLayer, find_checkout, slurm_layer, sources
from slurm_soda.containers.slurm_releases import SLURM_RELEASES, SlurmRelease
from slurm_soda.containers.wheels import ContainerPython, lock_for_containers

RELEASES = list(SLURM_RELEASES.values())

FILES: ImageFiles = {"a": (b"1", 0o644), "b": (b"2", 0o755)}


def tag(below: str = "slurm:1", name: str = "slurm", **changed: tuple[bytes, int]) -> str:
    return ImageLayer(name, below, {**FILES, **changed}).tag


def test_equal_inputs_give_the_same_tag_in_any_order() -> None:
    assert ImageLayer("slurm", "slurm:1", dict(reversed(FILES.items()))).tag == tag()


@pytest.mark.parametrize(
    "other",
    [
        tag(a=(b"2", 0o644)),
        tag(a=(b"1", 0o755)),
        tag(c=(b"", 0o644)),
        tag(a=(b"", 0o644), c=(b"1", 0o644)),
        tag(below="slurm:2"),
        tag(name="product"),
    ],
)
def test_any_other_input_gives_another_tag(other: str) -> None:
    assert other != tag()


LOCK = """\
# made by a tool
alembic==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via x
numpy==2.4 ; python_full_version < '3.12' \\
    --hash=sha256:cc
numpy==2.5 ; python_full_version >= '3.12' \\
    --hash=sha256:dd
    # via
    #   x
pywin32==312 ; sys_platform == 'win32' \\
    --hash=sha256:ee
fast==1 ; platform_machine == 'x86_64' \\
    --hash=sha256:ff
"""


@pytest.mark.parametrize(("architecture", "more"), [("x86_64", "fast==1 --hash=sha256:ff\n"), ("aarch64", "")])
def test_the_lock_is_reduced_to_what_holds_in_the_containers(architecture: str, more: str) -> None:
    expected = "alembic==1.0 --hash=sha256:aa --hash=sha256:bb\nnumpy==2.5 --hash=sha256:dd\n" + more
    python = ContainerPython("3.13", architecture)
    assert lock_for_containers(LOCK, python) == expected
    assert lock_for_containers(LOCK + LOCK, python) == expected, "two locks may name the same"


def test_the_lock_is_reduced_for_the_python_of_the_suite() -> None:
    older, newer = (f"python_full_version {comparison} '3.14'" for comparison in ("<", ">="))
    lock = f"numpy==2.5 ; {older} --hash=sha256:aa\nnumpy==2.6 ; {newer} --hash=sha256:bb\n"
    found = {
        release.version: lock_for_containers(lock, ContainerPython(release.python, "x86_64")) for release in RELEASES
    }
    first, second = "numpy==2.5 --hash=sha256:aa\n", "numpy==2.6 --hash=sha256:bb\n"
    assert found == {"24.11": first, "26.05": second, "22.05": first}


def test_each_release_of_slurm_has_images_of_its_own() -> None:
    assert next(iter(SLURM_RELEASES)) == ClusterSpec("x").slurm == "24.11"
    assert len({release.base_image for release in RELEASES}) == len(RELEASES)
    assert len({slurm_layer(release, "base:1").tag for release in RELEASES}) == len(RELEASES)


def test_debootstrap_makes_suites_that_are_younger_than_itself() -> None:
    """It has a script by the name of each suite that it knows; that of sid makes them all."""
    argv = debootstrap_command("forky", Path("/var/tmp/x"))
    assert argv == ("debootstrap", "--variant=minbase", "forky", "/var/tmp/x", "", "sid")


@pytest.mark.parametrize("version", ["23.02", "26.05.5", "", "trixie"])
def test_a_release_that_no_suite_has_is_refused_before_anything_is_made(version: str) -> None:
    with pytest.raises(
        ClusterError, match=re.escape(f"slurm is {version!r}; clusters in containers run 24.11 or 26.05")
    ):
        ContainerCluster.up("x", slurm=version)


def test_every_script_of_the_image_is_executable() -> None:
    scripts = [path for path in IMAGE.iterdir() if path.read_text().startswith("#!")]
    assert {path.name for path in scripts} >= {"daemonctl", "start-controller", "start-node", "install-product"}
    assert [path.name for path in scripts if not path.stat().st_mode & 0o111] == []


def test_the_sources_are_all_that_an_install_reads(tmp_path: Path) -> None:
    top = tmp_path / "checkout"
    shutil.copytree(find_checkout(), top, symlinks=True, ignore=shutil.ignore_patterns(".*", "build", "__pycache__"))
    clean = sources(top)
    for folder in (top / "src" / "slurm_soda", top / "agent"):
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / "main.cpython-313.pyc").write_bytes(b"compiled")
    assert sources(top) == clean
    assert clean["source/src/slurm_soda/agent"] == (b"../../agent", stat.S_IFLNK | 0o777)
    assert clean["source/install/python.sh"][1] == 0o755
    project = tomllib.loads(clean["source/pyproject.toml"][0].decode())["project"]
    locks = ("requirements-agent.lock", "requirements-build.lock", "requirements-controller.lock")
    assert {f"source/{name}" for name in [project["readme"], *project["license-files"], *locks]} <= clean.keys()


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.suite)
def test_served_models_get_the_same_packages_in_every_suite(release: SlurmRelease) -> None:
    lock = lock_for_containers(
        (find_checkout() / "requirements-serving.lock").read_text(), ContainerPython(release.python, "x86_64")
    )
    names = [line.partition("==")[0] for line in lock.splitlines()]
    assert len(set(names)) == len(names)
    assert {"numpy", "onnx", "onnxruntime"} <= set(names)
