"""What cpuset groups do, as a model: version 1 with its rules between parent and child, version 2 with effective sets.

After cpuset(7) and the kernel's documents on cgroup v1 and v2; the errors are those of kernel/cgroup/cpuset.c.
Threads are not moved by it; it knows no memory nodes, no partitions and no load balancing.
"""

from __future__ import annotations

import errno
import sys
from dataclasses import dataclass, field
from pathlib import Path as File

sys.path.insert(0, str(File(__file__).parents[1] / "fuse"))
from mount import Path, Refusal

Cpus = frozenset[int]


@dataclass(slots=True)
class Group:
    """One group; in v2 an empty set asks for nothing and has what the parent has."""

    cpus: Cpus = frozenset()
    procs: list[int] = field(default_factory=list)


def parse(text: str) -> Cpus:
    """What a written list means."""
    found: set[int] = set()
    for item in filter(None, text.strip().split(",")):
        first, dash, last = item.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) < int(first):
            raise Refusal(errno.EINVAL)
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def shown(cpus: Cpus) -> str:
    """A list as the kernel shows it."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


class Kernel:
    """Groups by path; () is the root, which has all CPUs of the machine."""

    writable = frozenset({"cpuset.cpus", "cgroup.procs"})

    def __init__(self, version: int, cpus: Cpus) -> None:
        self.version = version
        self.groups: dict[Path, Group] = {(): Group(cpus)}
        self.vanish: set[Path] = set()
        """Groups that vanish, with all below them, at the next write to one of their files."""
        self.log: list[str] = []

    def is_dir(self, path: Path) -> bool:
        return path in self.groups

    def is_file(self, path: Path) -> bool:
        return bool(path) and path[:-1] in self.groups and path[-1] in self.files()

    def list(self, path: Path) -> list[str]:
        return sorted({p[-1] for p in self.groups if p and p[:-1] == path} | set(self.files()))

    def files(self) -> tuple[str, ...]:
        return (
            "cgroup.procs",
            "cpuset.cpus",
            "cpuset.effective_cpus" if self.version == 1 else "cpuset.cpus.effective",
        )

    def read(self, path: Path) -> str:
        group = self.groups.get(path[:-1])
        if group is None:
            raise Refusal(errno.ENODEV)
        if path[-1] == "cgroup.procs":
            return "".join(f"{pid}\n" for pid in self.procs(path[:-1]))
        return shown(group.cpus if path[-1] == "cpuset.cpus" else self.effective(path[:-1])) + "\n"

    def procs(self, path: Path) -> list[int]:
        return self.groups[path].procs

    def effective(self, path: Path) -> Cpus:
        own = self.groups[path].cpus
        if self.version == 1 or not path:
            return own
        above = self.effective(path[:-1])
        return own & above or above

    def write(self, path: Path, data: bytes) -> None:
        folder, name = path[:-1], path[-1]
        if folder in self.vanish:
            self.vanish.discard(folder)
            self.remove(folder)
        group = self.groups.get(folder)
        if group is None:
            raise Refusal(errno.ENODEV)
        text = data.decode("ascii", "replace").strip()
        self.log.append(f"{'/'.join(path)} {text}")
        if name == "cgroup.procs":
            for other in self.groups.values():
                if int(text) in other.procs:
                    other.procs.remove(int(text))
            group.procs.append(int(text))
        elif name == "cpuset.cpus" and folder:
            self._set(folder, parse(text))
        else:
            raise Refusal(errno.EACCES)

    def _set(self, path: Path, cpus: Cpus) -> None:
        """The order of the checks is that of update_cpumask and validate_change."""
        if cpus and max(cpus) > max(self.groups[()].cpus):
            raise Refusal(errno.ERANGE)
        if not cpus <= self.groups[()].cpus:
            raise Refusal(errno.EINVAL)
        if self.version == 1:
            children = [g for p, g in self.groups.items() if p and p[:-1] == path]
            if any(not child.cpus <= cpus for child in children):
                raise Refusal(errno.EBUSY)
            if not cpus <= self.groups[path[:-1]].cpus:
                raise Refusal(errno.EACCES)
            if not cpus and self.procs(path):
                raise Refusal(errno.ENOSPC)
        self.groups[path].cpus = cpus

    def mkdir(self, path: Path) -> None:
        if path in self.groups or self.is_file(path):
            raise Refusal(errno.EEXIST)
        if path[:-1] not in self.groups:
            raise Refusal(errno.ENOENT)
        self.groups[path] = Group()

    def rmdir(self, path: Path) -> None:
        if path not in self.groups:
            raise Refusal(errno.ENOENT)
        if not path or self.procs(path) or any(p[:-1] == path for p in self.groups if p):
            raise Refusal(errno.EBUSY)
        del self.groups[path]

    def remove(self, path: Path) -> None:
        """A group is gone, with all below it."""
        for gone in [p for p in self.groups if p[: len(path)] == path]:
            del self.groups[gone]
