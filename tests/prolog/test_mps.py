"""Control daemons of MPS by the hooks' scripts: who has one, and what its jobs are told."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.prolog.mps_node import AS_ROOT, CONF, OTHER, UID, Node, hardware, node, train

__all__ = ["hardware", "node"]
pytestmark = AS_ROOT


def test_the_first_job_starts_a_daemon_and_the_last_ends_it(node: Node) -> None:
    assert node.start(7) == 0
    pid = node.daemon()
    assert Path(f"/proc/{pid}").stat().st_uid == UID
    assert node.lines(7) == [
        f"CUDA_MPS_PIPE_DIRECTORY={node.mps}/{UID}/pipe",
        f"CUDA_MPS_LOG_DIRECTORY={node.mps}/{UID}/log",
    ]
    assert node.start(8, UID, "0,1") == 0
    assert node.daemon() == pid
    program = train(node, 8)
    assert program.stdout is not None
    assert "by MPS" in program.stdout.readline()
    program.kill()
    program.communicate()
    assert node.stop(7).returncode == 0
    assert Path(f"/proc/{pid}").exists()
    assert node.stop(8).returncode == 0
    assert node.left() == []


def test_limits_count_the_devices_as_the_job_does(node: Node) -> None:
    assert node.start(7, UID, "1,3-4", 40, 2000) == 0
    assert node.lines(7)[2:] == [
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2000M,1=2000M,2=2000M",
    ]  # fmt: skip


def test_what_a_guest_was_told_before_stays(node: Node) -> None:
    (node.run / "shares/env.7").write_text("CUDA_VISIBLE_DEVICES=2\n-SLURM_GPUS\nend\n")
    assert node.start(7) == 0
    assert node.lines(7)[:3] == [
        "CUDA_VISIBLE_DEVICES=2",
        "-SLURM_GPUS",
        f"CUDA_MPS_PIPE_DIRECTORY={node.mps}/{UID}/pipe",
    ]
    assert sorted(path.name for path in (node.run / "shares").iterdir()) == ["env.7", "gpus.7"]


def test_every_user_has_a_daemon_and_no_other_users_way_into_it(node: Node) -> None:
    assert node.start(7) == node.start(8, OTHER) == 0
    assert node.daemon() != node.daemon(OTHER)
    for who, uid in ((UID, UID), (OTHER, OTHER)):
        assert (node.mps / str(who)).stat().st_uid == 0
        for name in ("pipe", "log"):
            place = (node.mps / str(who) / name).stat()
            assert (place.st_uid, place.st_mode & 0o777) == (uid, 0o700)
    node.stop(7)
    assert f"{UID}" not in " ".join(node.left())
    node.stop(8)
    assert node.left() == []


def test_one_daemon_for_all_users_where_the_site_says_so(node: Node) -> None:
    (node.top / "etc/sharing.conf").write_text(CONF + "mps_multiuser=yes\n")
    assert node.start(7) == node.start(8, OTHER) == 0
    assert Path(f"/proc/{node.daemon('all')}").stat().st_uid == 0
    programs = [train(node, 7), train(node, 8, OTHER)]
    assert all(program.stdout and "by MPS" in program.stdout.readline() for program in programs)
    for program in programs:
        program.kill()
        program.communicate()
    node.stop(7), node.stop(8)
    assert node.left() == []


NOT_FIT = {
    "no list": None,
    "empty list": "",
    "one that is not": "0 fit\n1 its compute mode is PROHIBITED\n",
    "half a line": "0 fit\n1",
}


@pytest.mark.parametrize("content", NOT_FIT.values(), ids=NOT_FIT)
def test_without_fit_gpus_the_job_runs_without_mps(node: Node, content: str | None) -> None:
    (node.run / "mps-gpus").unlink()
    if content is not None:
        (node.run / "mps-gpus").write_text(content)
    assert node.start(7) == 1
    assert node.lines(7) == node.left() == []


WANTED = {
    "yes": ({"SPANK_SODA_SHARE": "yes", "SLURM_JOB_PARTITION": "gpu"}, CONF, True),
    "said nothing": ({"SLURM_JOB_PARTITION": "gpu"}, CONF, False),
    "the site's default": ({"SLURM_JOB_PARTITION": "long"}, CONF + "consent_by_default=yes\n", True),
    "no": ({"SPANK_SODA_SHARE": "no", "SLURM_JOB_PARTITION": "gpu"}, CONF + "consent_by_default=yes\n", False),
    "another partition": ({"SPANK_SODA_SHARE": "yes", "SLURM_JOB_PARTITION": "lon"}, CONF, False),
    "a pattern": ({"SPANK_SODA_SHARE": "yes", "SLURM_JOB_PARTITION": "*"}, CONF, False),
    "no partition": ({"SPANK_SODA_SHARE": "yes"}, CONF, False),
    "mps=no": ({"SPANK_SODA_SHARE": "yes", "SLURM_JOB_PARTITION": "gpu"}, "mps=no\npartitions=gpu\n", False),
    "mps=no first": ({"SPANK_SODA_SHARE": "yes", "SLURM_JOB_PARTITION": "gpu"}, "mps=no\n" + CONF, False),
    "mps=no last": ({"SPANK_SODA_SHARE": "yes", "SLURM_JOB_PARTITION": "gpu"}, CONF + "mps=no\n", False),
    "no end of line": ({"SPANK_SODA_SHARE": "yes", "SLURM_JOB_PARTITION": "gpu"}, "partitions=gpu\nmps=yes", True),
    "no file": ({"SPANK_SODA_SHARE": "yes", "SLURM_JOB_PARTITION": "gpu"}, None, False),
}


@pytest.mark.parametrize(("env", "conf", "wanted"), WANTED.values(), ids=WANTED)
def test_who_is_to_have_mps(node: Node, env: dict[str, str], conf: str | None, wanted: bool) -> None:
    (node.top / "etc/sharing.conf").unlink()
    if conf is not None:
        (node.top / "etc/sharing.conf").write_text(conf)
    argv = ["/bin/sh", "-c", f". {node.top}/libexec/mps-settings && mps_wanted"]
    assert (subprocess.run(argv, env=env, check=False).returncode == 0) == wanted
