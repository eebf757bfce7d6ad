"""What a node without Slurm's files of its own tells of our files: those that its slurmd keeps, or nobody."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """`named_by_slurm.sh` on a node without files of its own, whose slurmctld does not answer."""
    script = tmp_path / "named_by_slurm.sh"
    text = (TOP / "install/named_by_slurm.sh").read_text()
    for path in ("/run/slurm/conf", "/etc/slurm"):
        text = text.replace(path, f"{tmp_path}{path}")
    script.write_text(text)
    for name, lines in {"scontrol": "exit 1", "pidof": f"[ -e {tmp_path}/slurmd ]"}.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{lines}\n")
        program.chmod(0o755)
    (tmp_path / "run/slurm/conf").mkdir(parents=True)
    return script


def named_on(node: Path) -> subprocess.CompletedProcess[str]:
    path = {"PATH": f"{node.parent}/bin:/usr/bin:/bin"}
    argv = ["/bin/sh", str(node), "/opt/slurm-soda", "libexec/prolog", "lib/soda_spank.so"]
    return subprocess.run(argv, env=path, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("slurm.conf", "Prolog=/opt/slurm-soda/libexec/prolog"),
        ("plugstack.conf", "optional /opt/slurm-soda/lib/soda_spank.so"),
    ],
)
def test_what_slurmd_keeps_of_slurmctlds_configuration_is_read(node: Path, name: str, line: str) -> None:
    """Of a configless node: slurmd would drain it, or each srun complain."""
    kept = node.parent / "run/slurm/conf"
    (kept / "slurm.conf").write_text("ClusterName=c\n")
    assert named_on(node).returncode == 1
    (kept / name).write_text(f"{line}\n")
    found = named_on(node)
    assert (found.returncode, found.stdout) == (0, f"{kept / name}:1:{line}\n")


def test_nobody_tells_what_a_slurmd_runs(node: Path) -> None:
    assert named_on(node).returncode == 1, "an image, in which none runs"
    (node.parent / "slurmd").touch()
    found = named_on(node)
    assert found.returncode == 0
    assert found.stdout.startswith("perhaps: slurmd runs, slurmctld does not answer, and there is no ")
