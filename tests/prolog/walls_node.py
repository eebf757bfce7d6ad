"""The hooks' walls on a node that is a directory: control groups and records in it, and programs that a test may replace."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.prolog.conftest import CHECKOUT, PROLOG_ENV, Installed, make_installed

HOOKS = (CHECKOUT / "epilog/share-end", CHECKOUT / "epilog/epilog", CHECKOUT / "prolog/prolog")
GUEST_ENV = {
    name: value for name, value in PROLOG_ENV.items() if name not in {"SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"}
}
GUEST_ENV |= {"SLURM_JOB_ID": "11"}


@dataclass(frozen=True)
class Node:
    """Hooks whose records are in the test's directory, on a node where Slurm has a control group and does not answer, but
    that nobody is there."""

    installed: Installed
    shares: Path

    @property
    def tools(self) -> Path:
        """Where the hooks look for programs."""
        return self.shares.parents[1] / "tools"

    def tool(self, name: str, script: str) -> None:
        """``name`` is this program from now on."""
        (self.tools / name).unlink(missing_ok=True)
        (self.tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.tools / name).chmod(0o755)

    def group(self, job: int, *pids: int) -> Path:
        """The control group of a job of alice, with these processes."""
        group = self.shares.parents[1] / f"cgroup/freezer/slurm_n1/uid_1000/job_{job}"
        group.mkdir(parents=True, exist_ok=True)
        (group / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
        return group

    def guest(self, job: int, gpu: int, host: int = 7) -> None:
        """The record of a guest."""
        self.shares.mkdir(parents=True, mode=0o700, exist_ok=True)
        (self.shares / ".kept").touch()
        (self.shares / f"guest.{job}").write_text(f"uid=1000\nhosts={host}\ngpus={gpu}\nown=\nend\n")

    def run(self, hook: str, environ: dict[str, str]) -> str:
        """What it says; it ends well."""
        done = self.installed.run(hook, environ)
        assert (done.returncode, done.stdout) == (0, b"")
        return done.stderr.decode(errors="replace")

    def records(self) -> dict[str, list[str]]:
        found = [path for path in sorted(self.shares.iterdir()) if not path.name.startswith(".")]
        return {path.name: path.read_text().splitlines() for path in found}

    def starts(self, job: int, gpus: str) -> str:
        return self.run("prolog", {**PROLOG_ENV, "SLURM_JOB_ID": str(job), "SLURM_JOB_GPUS": gpus})


def make_node(tmp_path: Path, after_s: tuple[int, int, int] = (0, 1, 2)) -> Node:
    """``after_s``: when a guest is killed, when it must be dead, and when Slurm is asked no more, from its beginning."""
    until_s, dead_s, latest_s = after_s
    installed = make_installed(tmp_path)
    shares, groups, tools = tmp_path / "run" / "shares", tmp_path / "cgroup", tmp_path / "tools"
    (groups / "freezer" / "slurm_n1").mkdir(parents=True)
    tools.mkdir()
    for tool in ("sleep", "readlink", "stat", "find", "timeout", "rm"):
        (tools / tool).symlink_to(shutil.which(tool) or "/")
    changes = {
        "shares=/run/slurm-soda-node/shares": f"shares={shares}",
        "share_cgroups=/sys/fs/cgroup": f"share_cgroups={groups}",
        "share_own_groups=/proc/self/cgroup": f"share_own_groups={tmp_path}/own-groups",
        "[ ! -e /etc/slurm-soda/sharing.conf ] || share_mps": f"[ ! -e {tmp_path}/sharing.conf ] || share_mps",
        "share_tools=/usr/bin:/bin:/usr/local/bin:/opt/slurm/bin": f"share_tools={tools}",
        "share_begun + kill_wait_s + 10": f"share_begun + {until_s}",
        "share_begun + kill_wait_s + 15": f"share_begun + {dead_s}",
        "share_begun + kill_wait_s + 32": f"share_begun + {latest_s}",
        "share_begun + 32": f"share_begun + {latest_s}",
        "share_begun + 30": "share_begun + 2",
        "export PATH=/usr/bin:/bin;": f"export PATH={tools};",
        "/bin/rm -f": f"{tools}/rm -f",
    }
    found = set()
    for source in (*(CHECKOUT / "prolog").glob("share-*"), *HOOKS):
        text = source.read_text()
        for old, new in changes.items():
            found |= {old} if old in text else set()
            text = text.replace(old, new)
        (installed.prefix / "libexec" / source.name).write_text(text)
    assert found == set(changes)
    node = Node(installed, shares)
    node.tool("squeue", 'case "$*" in *%U*) ;; *) exit 1 ;; esac')  # nobody is on the node
    return node
