"""What the kernel's control groups say of a job: Slurm makes one group a job on every node (cgroup/v1 and cgroup/v2).

v1 trees are ``CONTROLLER/slurm_NODE/uid_U/job_J`` (``slurm`` alone on some builds), v2's is
``system.slice/slurmstepd.scope/job_J`` (``NODE_slurmstepd.scope`` on some builds). A job's group vanishes with its last
process, and with it what it counted; the group above lives on and its CPU counter keeps what its children used, which is
how the last seconds of a job can still be found (measured on Linux 6.18 with cgroup v1, on 6.12 with v2).

In v2 that group also holds daemons of Slurm: ``system`` with each slurmstepd that starts or ends, and ``slurmd`` where
systemd did not start that; and a job's group holds its slurmstepds, in ``step_S/slurm`` beside its tasks in
``step_S/user``. What they use is nobody's work.

Imported by the epilog: keep the imports few, they are paid by every job.
"""

from __future__ import annotations

import os

CGROUP_ROOT = "/sys/fs/cgroup"
_MIB = 1 << 20
SLURMSTEPD = "slurm"
"""v2: the group of slurmstepd in that of its step."""
_DAEMONS = ("system", "slurmd")
"""v2: groups beside those of jobs."""
_MAX_STEPS = 64
"""Of a job, whose slurmstepds are told from its tasks: more of them count as its tasks."""


class JobCgroup:
    """One job's group, found at one moment. Readings are ``None`` once it is gone."""

    def __init__(self, source: str, cpu_directory: str, memory_directory: str) -> None:
        self.source = source
        """``cgroup/v1`` or ``cgroup/v2``."""
        self.identity = _inode(cpu_directory)
        """Tells this group from a later one of the same name, whose counters start at zero again."""
        self._cpu = cpu_directory
        self._memory = memory_directory

    def cpu_s(self) -> float | None:
        """CPU seconds, user and system, of all processes that were ever in the group, but for slurmstepds that are."""
        found = self.read_cpu_s()
        return None if found is None else found[0]

    def read_cpu_s(self) -> tuple[float, float] | None:
        """CPU seconds as of :meth:`cpu_s`, and those of the slurmstepds beside them; together all that the group used."""
        daemons_s = 0.0 if self.source == "cgroup/v1" else self._slurmstepds_s()
        all_s = read_cpu_s(self._cpu)
        return None if all_s is None else (max(all_s - daemons_s, 0.0), daemons_s)

    def _slurmstepds_s(self) -> float:
        try:
            steps = [name for name in os.listdir(self._cpu) if name.startswith("step_")]  # noqa: PTH208
        except OSError:
            return 0.0
        return sum(read_cpu_s(f"{self._cpu}/{step}/{SLURMSTEPD}") or 0.0 for step in steps[:_MAX_STEPS])

    def memory_mib(self) -> float | None:
        """Memory in use now that the kernel cannot drop: without cached files, which is what Slurm accounts too, but with
        shared memory (/dev/shm), which counts towards the job's limit.
        """
        stat = f"{self._memory}/memory.stat"
        own, shared = (b"total_rss", b"total_shmem") if self.source == "cgroup/v1" else (b"anon", b"shmem")
        used = _field(stat, own)
        return None if used is None else (used + (_field(stat, shared) or 0)) / _MIB


def find_node_cgroup(root: str, node: str) -> tuple[str, str]:
    """``(source, name)`` of the group of all jobs of this node's slurmd; two empty texts where Slurm makes no groups."""
    for name in (f"slurm_{node}", "slurm"):
        if os.path.isdir(f"{root}/cpuacct/{name}"):  # noqa: PTH112  (pathlib costs every job some ms)
            return "cgroup/v1", name
    for name in (f"system.slice/{node}_slurmstepd.scope", "system.slice/slurmstepd.scope"):
        if os.path.isdir(f"{root}/{name}"):  # noqa: PTH112
            return "cgroup/v2", name
    return "", ""


def find_job_cgroup(root: str, node: str, uid: int, job_id: int) -> JobCgroup | None:
    """The group of a job on this node, or ``None`` where there is none (any more)."""
    source, name = find_node_cgroup(root, node)
    if source == "cgroup/v1":
        path = f"{name}/uid_{uid}/job_{job_id}"
        group = JobCgroup(source, f"{root}/cpuacct/{path}", f"{root}/memory/{path}")
    else:
        path = f"{root}/{name}/job_{job_id}"
        group = JobCgroup(source, path, path)
    return group if source and group.identity else None


def read_node_cpu_s(root: str, node: str) -> float | None:
    """CPU seconds of all jobs that this slurmd ever ran, gone ones included."""
    source, name = find_node_cgroup(root, node)
    if source == "cgroup/v1":
        return read_cpu_s(f"{root}/cpuacct/{name}")
    all_s = read_cpu_s(f"{root}/{name}") if source else None
    if all_s is None:
        return None
    return all_s - sum(read_cpu_s(f"{root}/{name}/{daemons}") or 0.0 for daemons in _DAEMONS)


def read_cpu_s(directory: str) -> float | None:
    """CPU seconds that a group and all groups below it, gone ones included, have used."""
    usage_us = _field(f"{directory}/cpu.stat", b"usage_usec")
    if usage_us is not None:
        return usage_us / 1e6
    content = _read(f"{directory}/cpuacct.usage").strip()
    return int(content) / 1e9 if content.isdigit() else None


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino  # noqa: PTH116
    except OSError:
        return 0


def _field(path: str, key: bytes) -> int | None:
    """The number behind ``key`` in a file of ``key number`` lines."""
    for line in _read(path).splitlines():
        name, _, value = line.partition(b" ")
        if name == key and value.isdigit():
            return int(value)
    return None


def _read(path: str) -> bytes:
    """A small kernel file's content; empty when it is not there or the group is gone (ENODEV)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 16 << 10)
    except OSError:
        return b""
    finally:
        os.close(fd)
