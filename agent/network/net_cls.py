"""Groups of the net_cls hierarchy (cgroup v1): the class of a job's packets where Slurm's own groups cannot be matched.

Ours are ``slurm-soda-NODE/gpu`` and ``…/cpu``: the tree may be shared by several nodes of one machine. Only processes
that nobody put into a group are moved, and they go back to where they were.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from slurm_soda.agent.network.shaper import NetworkError, class_id
from slurm_soda.policies.node_limits.link_shares import CPU, GPU
from slurm_soda.wire.munge import RunProgram, run_program

OWN_MOUNT = Path("/run/slurm-soda-agent/net_cls")
_NAMES = {GPU: "gpu", CPU: "cpu"}
_TIMEOUT_S = 5.0
_MOST_ROUNDS = 5
"""Processes that fork while they are moved are found in the next round."""

PLACE_WITHIN_S = 0.5
"""So long processes are moved in one go."""


class NetClsGroups:
    """Our groups on one node."""

    def __init__(
        self, node: str, own_mount: Path = OWN_MOUNT, run: RunProgram = run_program, proc: Path = Path("/proc")
    ) -> None:
        self._name = f"slurm-soda-{node}"
        self._own_mount = own_mount
        self._run = run
        self._proc = proc

    def make(self) -> None:
        """Make the groups, and mount the hierarchy where the system has not.

        Raises:
            NetworkError: the kernel has no net_cls, or refuses.
        """
        root = self._mounted() or self._mount()
        try:
            for minor, name in _NAMES.items():
                group = root / self._name / name
                group.mkdir(parents=True, exist_ok=True)
                (group / "net_cls.classid").write_text(f"{class_id(minor)}\n")
        except OSError as error:
            raise NetworkError(f"network: groups of net_cls cannot be made: {error}") from error

    def place(self, minor: int, pids: Iterable[int]) -> None:
        """Have these processes, and their children from now on, send in a class. Those that ended are passed over.

        A job may have thousands, and the kernel may take milliseconds for each: what is not done in :data:`PLACE_WITHIN_S`
        waits for the next call.

        Raises:
            NetworkError: the groups are gone, or the kernel refuses.
        """
        root = self._mounted()
        if root is None:
            raise NetworkError("network: net_cls is not mounted any more")
        group = root / self._name / _NAMES[minor]
        try:
            missing = set(pids) - set(_pids(group))
            until_s = time.monotonic() + PLACE_WITHIN_S
            for pid in sorted(missing):
                if time.monotonic() >= until_s:
                    break
                if self._group_of(pid) in ("/", *(f"/{self._name}/{name}" for name in _NAMES.values())):
                    _move(pid, group)
        except OSError as error:
            raise NetworkError(f"network: processes cannot be put into {group}: {error}") from error

    def remove(self) -> None:
        """Give the processes back and remove the groups, and the mount if it is ours. What is not there is no error.

        Raises:
            NetworkError: something would not go; it is to be tried again.
        """
        root = self._mounted()
        if root is None and not self._in_use():
            return
        root = root or self._mount()  # an agent before this one may have had mounts of its own
        top = root / self._name
        try:
            for name in _NAMES.values():
                _empty(top / name, root)
            _remove(top)
        except OSError as error:
            raise NetworkError(f"network: groups of net_cls cannot be removed yet: {error}") from error
        if root == self._own_mount:
            self._unmount()

    def _in_use(self) -> bool:
        """The kernel has the hierarchy, mounted here, elsewhere or nowhere any more: it lives as long as its groups."""
        try:
            rows = (self._proc / "cgroups").read_text("utf-8", "surrogateescape").splitlines()
        except OSError:
            return True
        return any(row[:1] == ["net_cls"] and row[1:2] != ["0"] for row in map(str.split, rows))

    def _mounted(self) -> Path | None:
        """Where the hierarchy can be written: the system's mount if there is one, else ours."""
        places = []
        for line in (self._proc / "self/mountinfo").read_text("utf-8", "surrogateescape").splitlines():
            before, _, after = line.partition(" - ")
            kind, _, options = after.partition(" ")
            if (
                kind == "cgroup"
                and "net_cls" in options.split()[-1].split(",")
                and "rw" in before.split()[5].split(",")
            ):
                places.append(Path(before.split()[4]))
        return next((place for place in places if place != self._own_mount), places[0] if places else None)

    def _mount(self) -> Path:
        """Mount net_cls for ourselves; where the kernel has it together with net_prio, both."""
        said = ""
        try:
            self._own_mount.mkdir(mode=0o700, parents=True, exist_ok=True)
            for options in ("net_cls", "net_cls,net_prio"):
                argv = ("mount", "-t", "cgroup", "-o", options, "slurm-soda", str(self._own_mount))
                status, _, error = self._run(argv, b"", _TIMEOUT_S)
                if status == 0:
                    return self._own_mount
                said = said or " ".join(error.decode("utf-8", "replace").split())
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)
        raise NetworkError(f"network: net_cls cannot be mounted, so jobs cannot be told apart: {said}")

    def _unmount(self) -> None:
        try:
            self._run(("umount", str(self._own_mount)), b"", _TIMEOUT_S)
            self._own_mount.rmdir()
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NetworkError(f"network: {self._own_mount} cannot be unmounted yet: {error}") from error

    def _group_of(self, pid: int) -> str:
        """The process' group in this hierarchy; empty when it has ended."""
        try:
            lines = (self._proc / str(pid) / "cgroup").read_text("utf-8", "surrogateescape").splitlines()
        except OSError:
            return ""
        split = (line.split(":", 2) for line in lines)
        return next((path for _, controllers, path in split if "net_cls" in controllers.split(",")), "")


def _pids(group: Path) -> list[int]:
    return [int(line) for line in (group / "cgroup.procs").read_text().split()]


def _move(pid: int, group: Path) -> None:
    handle = os.open(group / "cgroup.procs", os.O_WRONLY)
    try:
        os.write(handle, f"{pid}\n".encode())
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def _empty(group: Path, root: Path) -> None:
    """Move everything to the root and remove the group."""
    until_s = time.monotonic() + PLACE_WITHIN_S
    for _ in range(_MOST_ROUNDS):
        if not group.is_dir():
            return
        for pid in _pids(group):
            if time.monotonic() >= until_s:
                break  # what is left keeps the group, which is tried again
            _move(pid, root)
        try:
            group.rmdir()
        except OSError:
            continue
    _remove(group)


def _remove(group: Path) -> None:
    try:
        group.rmdir()
    except FileNotFoundError:
        return
