"""What resctrl does, as a model: groups, ids, schemata, tasks, counters, and the errors it answers with.

Written after Documentation/filesystems/resctrl.rst and the messages of fs/resctrl. Only what a program can see through
files; time does not pass by itself (``advance``), so that tests are exact.
"""

from __future__ import annotations

import errno
import sys
from dataclasses import dataclass, field
from pathlib import Path as File

sys.path.insert(0, str(File(__file__).parents[1] / "fuse"))
sys.path.insert(0, str(File(__file__).parent))
from mount import Path, Refusal
from schemata import SchemataError, Setup, parsed_schemata, shown_schemata

TOP_FILES = ("cpus", "cpus_list", "tasks")


@dataclass(slots=True)
class Group:
    """One group's state."""

    mb: dict[int, int]
    l3: dict[int, int]
    tasks: set[int] = field(default_factory=set)
    counted: dict[int, float] = field(default_factory=dict)
    said: str = ""
    """What its counters answer instead of a number."""


def control_of(path: Path) -> Path:
    """The control group whose limits hold in a group."""
    return () if not path or path[0] == "mon_groups" else path[:1]


class Kernel:
    """All groups by path: () is the root, (NAME,) control, (…, "mon_groups", NAME) monitoring."""

    writable = frozenset({"tasks", "schemata", "mode", "cpus", "cpus_list"})

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.groups: dict[Path, Group] = {(): self._new()}
        self.status = "ok"
        self.alive: dict[int, dict[int, float]] = {}
        """Threads that run, and the bytes/s that each would like from each domain."""
        self.vanish: set[str] = set()
        """Groups, by last name, that vanish at the next write to one of their files."""
        self.vanish_read: set[str] = set()
        """The same at the next reading of one of their files."""
        self.limbo = False
        """Freed monitoring ids are not free yet: EBUSY."""
        self.log: list[str] = []

    def _new(self) -> Group:
        domains = self.setup.domains
        return Group(
            mb=dict.fromkeys(domains, self.setup.full_bandwidth),
            l3=dict.fromkeys(domains, 0xFFF),
            counted=dict.fromkeys(domains, 0.0),
        )

    # what is there

    def is_dir(self, path: Path) -> bool:
        return path in self.groups or path in self._folders()

    def is_file(self, path: Path) -> bool:
        return bool(path) and path[-1] in self._files(path[:-1])

    def list(self, path: Path) -> list[str]:
        names = [p[-1] for p in (*self.groups, *self._folders()) if p and p[:-1] == path]
        return sorted({*names, *self._files(path)})

    def _folders(self) -> set[Path]:
        folders: set[Path] = {("info",)}
        if self.setup.mba:
            folders.add(("info", "MB"))
        if self.setup.cat:
            folders.add(("info", "L3"))
        if self.setup.mbm:
            folders.add(("info", "L3_MON"))
            for path in self.groups:
                folders.add((*path, "mon_data"))
                folders.update((*path, "mon_data", f"mon_L3_{d:02d}") for d in self.setup.domains)
                if len(path) < 2:
                    folders.add((*path, "mon_groups"))
        return folders

    def _files(self, folder: Path) -> tuple[str, ...]:
        if folder in self.groups:
            control = len(folder) < 2 and (self.setup.mba or self.setup.cat)
            return (*TOP_FILES, "schemata", "size", "mode") if control else TOP_FILES
        if folder not in self._folders():
            return ()
        if folder == ("info",):
            return ("last_cmd_status",)
        if folder[-1].startswith("mon_L3_"):
            return ("llc_occupancy", "mbm_local_bytes", "mbm_total_bytes")
        return {
            ("info", "MB"): ("bandwidth_gran", "delay_linear", "min_bandwidth", "num_closids"),
            ("info", "L3"): ("cbm_mask", "min_cbm_bits", "num_closids"),
            ("info", "L3_MON"): ("max_threshold_occupancy", "mon_features", "num_rmids"),
        }.get(folder, ())

    # reading

    def read(self, path: Path) -> str:
        folder, name = path[:-1], path[-1]
        owner = folder[: folder.index("mon_data")] if "mon_data" in folder else folder
        if owner and owner[-1] in self.vanish_read:
            self.vanish_read.discard(owner[-1])
            self.rmdir(owner)
        if not self.is_file(path):
            raise Refusal(errno.ENODEV)
        setup = self.setup
        if folder in self.groups:
            group = self.groups[folder]
            if name == "schemata":
                return shown_schemata(setup, group.mb, group.l3)
            return "".join(f"{t}\n" for t in sorted(group.tasks)) if name == "tasks" else "\n"
        if "mon_data" in folder:
            return self._counter(folder, name)
        return {
            "last_cmd_status": f"{self.status}\n",
            "bandwidth_gran": f"{setup.bandwidth_gran}\n",
            "delay_linear": "1\n",
            "min_bandwidth": f"{setup.min_bandwidth}\n",
            "num_closids": f"{setup.closids}\n",
            "cbm_mask": "fff\n",
            "min_cbm_bits": "1\n",
            "max_threshold_occupancy": "65536\n",
            "mon_features": "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n",
            "num_rmids": f"{setup.rmids}\n",
        }[name]

    def _counter(self, folder: Path, event: str) -> str:
        at = folder.index("mon_data")
        path, domain = folder[:at], int(folder[-1].removeprefix("mon_L3_"))
        group = self.groups[path]
        if group.said:
            return f"{group.said}\n"
        if event == "llc_occupancy":
            return "0\n"
        below = (g for p, g in self.groups.items() if self._counts_below(path, p))
        return f"{int(group.counted[domain] + sum(g.counted[domain] for g in below))}\n"

    @staticmethod
    def _counts_below(path: Path, other: Path) -> bool:
        return len(other) == len(path) + 2 and other[: len(path) + 1] == (*path, "mon_groups")

    # changing

    def mkdir(self, path: Path) -> None:
        above, name = path[:-1], path[-1]
        if self.is_dir(path) or self.is_file(path):
            raise Refusal(errno.EEXIST)
        if not above and (self.setup.mba or self.setup.cat):
            if sum(len(p) == 1 for p in self.groups) + 1 >= self.setup.closids:
                raise self._refuse(errno.ENOSPC, "Out of CLOSIDs")
        elif not (self.setup.mbm and above and above[-1] == "mon_groups" and above in self._folders()):
            raise Refusal(errno.EPERM)
        if "\n" in name:
            raise Refusal(errno.EINVAL)
        if self.setup.mbm and self.limbo:
            raise self._refuse(errno.EBUSY, "Out of RMIDs")
        if self.setup.mbm and len(self.groups) >= self.setup.rmids:
            raise self._refuse(errno.ENOSPC, "Out of RMIDs")
        self.groups[path] = self._new()
        self.status = "ok"
        self.log.append(f"mkdir {'/'.join(path)}")

    def rmdir(self, path: Path) -> None:
        if path not in self.groups:
            raise Refusal(errno.EPERM if self.is_dir(path) else errno.ENOENT)
        if not path:
            raise Refusal(errno.EPERM)
        gone = [p for p in self.groups if p[: len(path)] == path]
        parent = () if len(path) == 1 else path[:-2]
        for each in gone:
            group = self.groups.pop(each)
            self.groups[parent].tasks |= group.tasks
        self.status = "ok"
        self.log.append(f"rmdir {'/'.join(path)}")

    def write(self, path: Path, data: bytes) -> None:
        folder, name = path[:-1], path[-1]
        if folder and folder[-1] in self.vanish and folder in self.groups:
            self.vanish.discard(folder[-1])
            self.rmdir(folder)
        if folder not in self.groups or not self.is_file(path):
            raise Refusal(errno.ENODEV)
        text = data.decode("ascii", "replace")
        if not text.endswith("\n"):
            raise Refusal(errno.EINVAL)
        self.log.append(f"write {'/'.join(path)} {text.strip()}")
        self.status = "ok"
        if name == "tasks":
            self._move(folder, text)
        elif name == "schemata":
            self._set_schemata(folder, text)
        else:
            raise Refusal(errno.EACCES)

    def _move(self, path: Path, text: str) -> None:
        for word in text.split(","):
            if not word.strip().isdecimal():
                raise self._refuse(errno.EINVAL, f"Task list parsing error pid {word.strip()}")
            task = int(word)
            if task not in self.alive:
                raise self._refuse(errno.ESRCH, f"No task {task}")
            owner = next((p for p, g in self.groups.items() if task in g.tasks), ())
            if "mon_groups" in path and control_of(owner) != control_of(path):
                raise self._refuse(errno.EINVAL, "Can't move task to different control group")
            self.groups[owner].tasks.discard(task)
            self.groups[path].tasks.add(task)

    def _set_schemata(self, path: Path, text: str) -> None:
        group = self.groups[path]
        try:
            mb, l3 = parsed_schemata(self.setup, text)
        except SchemataError as error:
            raise self._refuse(errno.EINVAL, str(error)) from None
        group.mb, group.l3 = group.mb | mb, group.l3 | l3

    def _refuse(self, code: int, text: str) -> Refusal:
        self.status = text
        return Refusal(code)

    # the machine under it

    def run(self, task: int, bytes_per_s: dict[int, float]) -> None:
        """A thread starts, in the root group, or changes what it wants."""
        if task not in self.alive:
            self.groups[()].tasks.add(task)
        self.alive[task] = bytes_per_s

    def end(self, task: int) -> None:
        self.alive.pop(task, None)
        for group in self.groups.values():
            group.tasks.discard(task)

    def advance(self, seconds: float) -> None:
        """Threads get what they want, cut by their control group's percentage and by what the domain can deliver."""
        for domain in self.setup.domains:
            flows = []
            for path, group in self.groups.items():
                limit = self.groups[control_of(path)].mb[domain] / self.setup.full_bandwidth
                wanted = sum(self.alive[t].get(domain, 0.0) for t in group.tasks if t in self.alive)
                flows.append((group, wanted * limit))
            total = sum(flow for _, flow in flows)
            scale = min(1.0, self.setup.domain_bytes_per_s / total) if total else 0.0
            for group, flow in flows:
                group.counted[domain] += flow * scale * seconds
