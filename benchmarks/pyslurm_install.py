"""pyslurm on a cluster's controller, from a wheel that somebody built for that Slurm, or as it is installed there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from slurm_soda.containers.cluster import ContainerCluster

WHEEL_VARIABLE = "SODA_PYSLURM_WHEEL"
"""Environment variable with the path of the wheel."""
_PREFIX = "/opt/pyslurm"
_PRODUCT_PYTHON = "/opt/slurm-soda/bin/python"
_SCRIPT = "/usr/local/bin/pyslurm-inside"


class NoPyslurmError(Exception):
    """There is none for this cluster; says why."""


def find_pyslurm(cluster: ContainerCluster, wheel: str | None = None) -> str:
    """The interpreter on the controller that has pyslurm; the wheel is installed first if one is given.

    Raises:
        NoPyslurmError: there is none, or it cannot be imported.
    """
    wheel = os.environ.get(WHEEL_VARIABLE, "") if wheel is None else wheel
    python = "/usr/bin/python3"
    if wheel:
        path = f"/tmp/{Path(wheel).name}"
        cluster.copy_in(Path(wheel).read_bytes(), path)
        line = f"python3 -m venv {_PREFIX} && {_PREFIX}/bin/pip install --no-index --no-deps --quiet {path}"
        cluster.exec("root", ("sh", "-c", line), timeout_s=300).check()
        python = f"{_PREFIX}/bin/python"
    tried = cluster.exec("root", (python, "-I", "-c", "import pyslurm"))
    if tried.status != 0:
        why = tried.stderr.strip().rpartition("\n")[2] or f"its import ended with status {tried.status}"
        raise NoPyslurmError(
            f"{python} on the controller, with Slurm {cluster.spec.slurm}, has no pyslurm ({why}): "
            f"set {WHEEL_VARIABLE} to a wheel built for that Slurm and Python (docs/operations.md, pyslurm)"
        )
    return python


def run_inside(cluster: ContainerCluster, *words: str, timeout_s: float = 600.0) -> Any:
    """What :mod:`benchmarks.pyslurm_inside` prints on the controller."""
    cluster.copy_in((Path(__file__).parent / "pyslurm_inside.py").read_bytes(), _SCRIPT)
    said = cluster.exec("root", (_PRODUCT_PYTHON, _SCRIPT, *words), timeout_s=timeout_s).check()
    return json.loads(said.stdout)
