"""A job's cpuset groups, in cgroup v1 and v2: which there are, what they say, and how they are written in an order that
the kernel takes.

v1: ``CPUSET/slurm_NODE/uid_U/job_J/step_S/task_T``. A child must be a subset of its parent at every moment, so narrowing
goes from the leaves up (EBUSY otherwise) and widening from the job down (EACCES otherwise). A step that starts makes Slurm
write the job's whole allocation to the job's group again, and leaves older steps as they are (measured with 24.11).

v2: ``system.slice/slurmstepd.scope/job_J/step_S/user/task_T``, and ``step_S/slurm`` for slurmstepd alone. A group has what
it asks for as far as its parent has it; groups that ask for nothing have what the parent has. So the job's own group
decides, but for steps with fewer cores, which Slurm writes to ``step_S/user`` (24.11).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurm_soda.agent.cpusets.cpu_list import Cpus, format_cpu_list, parse_cpu_list
from slurm_soda.agent.cpusets.errors import CoresError, JobGoneError
from slurm_soda.agent.cpusets.thread_affinity import MAX_THREADS
from slurm_soda.epilog.job_cgroups import SLURMSTEPD, find_node_cgroup

V1, V2 = "cgroup/v1", "cgroup/v2"
_ATTEMPTS = 3
"""Groups come and go while they are written."""
_MOST_BYTES = 16 * MAX_THREADS
"""Of one file: a process id has 7 digits at most."""
_GONE_ERRNOS = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR)


@dataclass(frozen=True, slots=True)
class JobCpusets:
    """The groups of one job, by their paths below ``path``; the job's own is the empty one."""

    source: str
    path: str

    def names(self) -> list[str]:
        """Groups that hold cores of their own, parents first.

        Raises:
            JobGoneError: the job's group is gone.
            CoresError: it cannot be listed.
        """
        found = [path.removeprefix(self.path).strip("/") for path, _, _ in os.walk(self.path)]
        if not found:
            self._read("", "cpuset.cpus")  # says why, where it is there all the same
            raise JobGoneError(f"{self.path} is gone")
        return [name for name in found if not name or self.source == V1 or self._text(name)]

    def read(self, name: str = "") -> Cpus:
        """What a group asks for.

        Raises:
            JobGoneError: the group is gone.
            CoresError: the kernel refuses.
        """
        return _cpus(self._read(name, "cpuset.cpus"), f"{self.path}/{name}")

    def effective(self, name: str = "") -> Cpus:
        """What the kernel gives to a group's processes; errors as of :meth:`read`."""
        file = "cpuset.effective_cpus" if self.source == V1 else "cpuset.cpus.effective"
        return _cpus(self._read(name, file), f"{self.path}/{name}")

    def pids(self) -> dict[str, list[int]]:
        """Processes by group, of the groups that have any; :data:`~.thread_affinity.MAX_THREADS` at most.

        Without slurmstepd where it has a group of its own (v2): that may use all cores of the job, whatever its step has.
        """
        found: dict[str, list[int]] = {}
        left = MAX_THREADS
        for path, _, _ in os.walk(self.path):
            name = path.removeprefix(self.path).strip("/")
            if self.source == V2 and name.partition("/")[2] == SLURMSTEPD:
                continue
            try:
                pids = [int(word) for word in self._read(name, "cgroup.procs").split()[:left]]
            except JobGoneError:
                continue
            if pids:
                found[name] = pids
                left -= len(pids)
        return found

    def apply(self, wanted: Callable[[list[str]], Mapping[str, Cpus]]) -> None:
        """Bring all groups to what is wanted of those that are there; children within their parents.

        Raises:
            JobGoneError: the job ended meanwhile.
            CoresError: the kernel refuses.
        """
        for attempt in range(_ATTEMPTS):
            target = wanted(self.names())
            try:
                self._apply_once(target)
            except CoresError:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def _apply_once(self, target: Mapping[str, Cpus]) -> None:
        """``target``: parents first. First everything is widened, from there on nothing but narrowed."""
        for name, cpus in target.items():
            self._write(name, cpus, widen=True)
        for name in reversed(list(target)):
            self._write(name, target[name], widen=False)

    def _write(self, name: str, cpus: Cpus, *, widen: bool) -> None:
        """Change one group, where needed; one below the job's that vanished needs nothing."""
        try:
            now = self.read(name)
            new = now | cpus if widen else cpus
            if new != now:
                self._put(name, format_cpu_list(new))
        except JobGoneError:
            if not name:
                raise

    def _put(self, name: str, text: str) -> None:
        path = f"{self.path}/{name}".rstrip("/") + "/cpuset.cpus"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, text.encode("ascii") + b"\n")
            finally:
                os.close(fd)
        except OSError as error:
            raise _refused(error, f"{path}: {text!r} is not taken") from error

    def _read(self, name: str, file: str) -> str:
        path = f"{self.path}/{name}".rstrip("/") + f"/{file}"
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return _read_all(fd).decode("ascii", "replace")
            finally:
                os.close(fd)
        except OSError as error:
            raise _refused(error, f"{path} cannot be read") from error

    def _text(self, name: str) -> str:
        try:
            return self._read(name, "cpuset.cpus").strip()
        except CoresError:
            return ""


def find_job_cpusets(root: str, node: str, uid: int, job_id: int) -> JobCpusets | None:
    """The job's groups, or ``None`` where Slurm limits no cores by groups (no cgroups, or ConstrainCores=no)."""
    source, name = find_node_cgroup(root, node)
    if source == V1:
        path = f"{root}/cpuset/{name}/uid_{uid}/job_{job_id}"
        return JobCpusets(V1, path) if os.path.isdir(path) else None  # noqa: PTH112  (beside os.walk)
    groups = JobCpusets(V2, f"{root}/{name}/job_{job_id}")
    try:
        return groups if source and groups.read() else None
    except CoresError:
        return None


def _read_all(fd: int) -> bytes:
    """What a file says, up to :data:`_MOST_BYTES`: the kernel gives about a page of a group's file at a time."""
    found = b""
    while len(found) < _MOST_BYTES and (part := os.read(fd, _MOST_BYTES - len(found))):
        found += part
    return found


def _cpus(text: str, path: str) -> Cpus:
    try:
        return parse_cpu_list(text)
    except ValueError as error:
        raise CoresError(f"{path}: {text[:60]!a} is no list of CPUs") from error


def _refused(error: OSError, what: str) -> CoresError:
    if error.errno in _GONE_ERRNOS:
        return JobGoneError(f"{what}: {error.strerror}")
    return CoresError(f"{what}: {error.strerror}")
