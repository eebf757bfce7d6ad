"""The kernel's resctrl file system: what the node can measure and limit, and the groups that are ours.

Described in the kernel's ``Documentation/filesystems/resctrl.rst`` (before 6.16: ``Documentation/arch/x86``). Ours are
only groups named ``soda-JOBID``, at the top (control: own limits and own counters) or under ``mon_groups`` of the top
(counters only). No other group is ever written or removed; their counters are read, because their traffic is the node's.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_soda.agent.contention.resctrl_features import FULL_PERCENT, MbaFeatures, ResctrlFeatures
from slurm_soda.wire.errors import SodaError

MOUNT = Path("/sys/fs/resctrl")
MON_GROUPS = "mon_groups"
_OWN_GROUP_NAME = re.compile(r"soda-([1-9][0-9]{0,9})")
_DOMAIN = re.compile(r"mon_L3_(\d+)")
_GONE_ERRNOS = frozenset({errno.ENOENT, errno.ENODEV})
"""A group that was removed: by name, or while its file was open."""
_READ_BYTES = 1 << 16


class ResctrlError(SodaError):
    """The kernel refused something; carries its errno, and the kernel's own words where it left some."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class ResctrlFull(ResctrlError):  # noqa: N818 - a state, as errno names it
    """No control or monitoring id is free: other groups hold them."""


@dataclass(frozen=True, slots=True, order=True)
class ResctrlGroup:
    """One group of ours: ``soda-JOBID`` at the top, or under ``mon_groups``."""

    job_id: int
    control: bool

    @property
    def path(self) -> str:
        """Relative to the mount."""
        name = f"soda-{self.job_id}"
        return name if self.control else f"{MON_GROUPS}/{name}"

    @classmethod
    def parse(cls, path: str) -> ResctrlGroup | None:
        """The group of ours that a path names, or None: it is somebody else's."""
        above, _, name = path.rpartition("/")
        match = _OWN_GROUP_NAME.fullmatch(name)
        if match is None or above not in ("", MON_GROUPS):
            return None
        return cls(int(match[1]), control=not above)


class Resctrl:
    """A mounted resctrl file system."""

    def __init__(self, mount: Path = MOUNT) -> None:
        self._mount = mount

    def features(self) -> ResctrlFeatures:
        """Read what the node can do; an absent mount can do nothing.

        Raises:
            ResctrlError: a file of ``info`` does not say what the kernel documents.
        """
        if not (self._mount / "info").is_dir():
            missing = f"{self._mount} is no resctrl mount: mount -t resctrl resctrl {self._mount}"
            return ResctrlFeatures(None, "", 0, (), missing)
        throttle, missing = self._throttle()
        events = self._words("info/L3_MON/mon_features")
        event = next((e for e in ("mbm_total_bytes", "mbm_local_bytes") if e in events), "")
        if not event:
            missing = "; ".join(filter(None, (missing, "no memory-bandwidth monitoring (MBM)")))
            return ResctrlFeatures(throttle, "", 0, (), missing)
        return ResctrlFeatures(throttle, event, self._number("info/L3_MON/num_rmids"), self._domains(), missing)

    def ours(self) -> tuple[ResctrlGroup, ...]:
        """All groups of ours, whoever made them: control groups first, by job."""
        names = [*self._names(""), *(f"{MON_GROUPS}/{name}" for name in self._names(MON_GROUPS))]
        groups = [group for name in names if (group := ResctrlGroup.parse(name)) is not None]
        return tuple(sorted(groups, key=lambda g: (not g.control, g.job_id)))

    def create(self, group: ResctrlGroup) -> None:
        """Make a group; one that is there already stays as it is.

        Raises:
            ResctrlFull: no id is free.
            ResctrlError: any other refusal, such as ids that are not yet free for reuse (EBUSY).
        """
        try:
            (self._mount / group.path).mkdir()
        except FileExistsError:
            return
        except OSError as error:
            raise self._error(f"group {group.path} cannot be made", error) from error

    def remove(self, group: ResctrlGroup) -> None:
        """Remove a group: its tasks fall back to the root group. One that is gone is no error.

        Raises:
            ResctrlError: the kernel refused.
        """
        try:
            (self._mount / group.path).rmdir()
        except OSError as error:
            if error.errno not in _GONE_ERRNOS:
                raise self._error(f"group {group.path} cannot be removed", error) from error

    def add_tasks(self, group: ResctrlGroup, task_ids: Iterable[int]) -> int:
        """Move threads into a group, one write each, and count them. Those that ended meanwhile are passed over.

        resctrl moves single threads: ``task_ids`` are those of ``cgroup.threads``, not only of ``cgroup.procs``. Threads
        that they start later are born in the group.

        Raises:
            ResctrlError: the group is gone, or the kernel refused for another reason.
        """
        moved = 0
        for task_id in task_ids:
            try:
                self._write(f"{group.path}/tasks", f"{task_id}\n")
            except ProcessLookupError:
                continue
            except OSError as error:
                raise self._error(f"task {task_id} cannot be moved to {group.path}", error) from error
            moved += 1
        return moved

    def tasks(self, group: ResctrlGroup) -> tuple[int, ...]:
        """The threads in a group, none where it is gone."""
        return tuple(int(word) for word in self._words(f"{group.path}/tasks"))

    def limit(self, group: ResctrlGroup, percents: Mapping[int, int]) -> None:
        """Set a control group's bandwidth by domain; other resources (cache ways) are left as they are.

        Raises:
            ResctrlError: the kernel refused, or the group is gone.
        """
        self._set(group, "MB:" + ";".join(f"{domain}={percent}" for domain, percent in percents.items()))

    def limits(self, group: ResctrlGroup | None) -> dict[int, int]:
        """Bandwidth limits by domain, None: the root's. Empty without MBA or where the group has gone."""
        return self._bandwidth_line(f"{group.path}/schemata" if group else "schemata")

    def inherit(self, group: ResctrlGroup) -> None:
        """Give a control group what the root has of all but bandwidth: a site may confine jobs to some cache ways.

        Raises:
            ResctrlError: the kernel refused, as it does where somebody holds those ways for himself alone.
        """
        own = set(_other_resources(self._text(f"{group.path}/schemata")))
        for line in _other_resources(self._text("schemata")):
            if line not in own:
                self._set(group, line)

    def _set(self, group: ResctrlGroup, line: str) -> None:
        try:
            self._write(f"{group.path}/schemata", f"{line}\n")
        except OSError as error:
            raise self._error(f"{line} cannot be set on {group.path}", error) from error

    def foreign_tasks(self) -> frozenset[int]:
        """Threads that somebody else put into a control group: they are not ours to move."""
        groups = [name for name in self._names("") if ResctrlGroup.parse(name) is None and self._is_group(name)]
        return frozenset(int(word) for name in groups for word in self._words(f"{name}/tasks"))

    def counters(self, event: str) -> dict[str, dict[int, int | None]]:
        """Bytes so far by group (path relative to the mount) and domain; None where the kernel has no value now.

        Of the root (""), of each group at the top and of each monitoring group of the root, which the root's own count
        contains. Empty without monitoring.
        """
        paths = ["", *(name for name in self._names("") if self._is_group(name))]
        paths += [f"{MON_GROUPS}/{name}" for name in self._names(MON_GROUPS)]
        domains = self._domains()
        found = {path: {d: self._counter(path, d, event) for d in domains} for path in paths}
        return found if domains else {}

    def _counter(self, path: str, domain: int, event: str) -> int | None:
        """One value; none where the kernel says "Unavailable", "Error" or "Unassigned", or the group has gone."""
        text = self._text(f"{path}/mon_data/mon_L3_{domain:02d}/{event}".lstrip("/")).strip()
        return int(text) if text.isdecimal() else None

    def _throttle(self) -> tuple[MbaFeatures | None, str]:
        limits = self._bandwidth_line("schemata")
        if not limits or not (self._mount / "info/MB").is_dir():
            return None, "no memory-bandwidth allocation (MBA)"
        if max(limits.values()) > FULL_PERCENT:
            return None, "memory-bandwidth limits of this node are absolute, not percentages: not used"
        number = self._number
        step, least = number("info/MB/bandwidth_gran"), number("info/MB/min_bandwidth")
        if not 1 <= step <= FULL_PERCENT or least > FULL_PERCENT:
            raise ResctrlError(
                f"{self._mount}/info/MB: min_bandwidth {least} and bandwidth_gran {step} are no percentages"
            )
        linear = number("info/MB/delay_linear") == 1
        return MbaFeatures(least, step, number("info/MB/num_closids"), linear, tuple(sorted(limits))), ""

    def _bandwidth_line(self, path: str) -> dict[int, int]:
        """The MB line of a schemata file. Values are padded with blanks; unknown resources are passed over."""
        for line in self._text(path).splitlines():
            resource, _, values = line.partition(":")
            if resource.strip() == "MB":
                pairs = (value.partition("=") for value in values.split(";"))
                return {int(d): int(v) for d, _, v in pairs if d.strip().isdecimal() and v.strip().isdecimal()}
        return {}

    def _domains(self) -> tuple[int, ...]:
        found = (_DOMAIN.fullmatch(name) for name in self._names("mon_data"))
        return tuple(sorted(int(match[1]) for match in found if match))

    def _is_group(self, name: str) -> bool:
        return name not in ("info", MON_GROUPS, "mon_data") and (self._mount / name / "tasks").is_file()

    def _names(self, path: str) -> Iterator[str]:
        try:
            entries = sorted(os.listdir(self._mount / path))  # noqa: PTH208 - names are all that is wanted
        except OSError as error:
            if error.errno not in {*_GONE_ERRNOS, errno.ENOTDIR}:
                raise self._error(f"{path or 'the mount'} cannot be listed", error) from error
            return iter(())
        return iter(entries)

    def _text(self, path: str) -> str:
        try:
            handle = os.open(f"{self._mount}/{path}", os.O_RDONLY)  # every sample reads many: no Path, no decoder
            try:
                parts = []
                while part := os.read(handle, _READ_BYTES):
                    parts.append(part)
            finally:
                os.close(handle)
        except OSError as error:
            if error.errno in {*_GONE_ERRNOS, errno.ENOTDIR, errno.EIO, errno.EINVAL}:
                return ""
            raise self._error(f"{path} cannot be read", error) from error
        return b"".join(parts).decode("ascii", "replace")

    def _words(self, path: str) -> list[str]:
        return self._text(path).split()

    def _number(self, path: str) -> int:
        text = self._text(path).strip()
        if not text.isdecimal():
            raise ResctrlError(f"{self._mount / path} holds {text!r}, not a number")
        return int(text)

    def _write(self, path: str, text: str) -> None:
        """One write(2): the kernel takes each write as one command, so nothing may split or repeat it."""
        handle = os.open(self._mount / path, os.O_WRONLY)
        try:
            os.write(handle, text.encode("ascii"))
        finally:
            os.close(handle)

    def _error(self, what: str, error: OSError) -> ResctrlError:
        """The kernel's errno with its own words; a success in between leaves "ok", which says nothing."""
        try:
            words = " ".join(
                (self._mount / "info/last_cmd_status").read_text(encoding="ascii", errors="replace").split()
            )
        except OSError:
            words = ""
        said = f" ({words})" if words not in ("", "ok") else ""
        text = f"{self._mount}: {what}: {os.strerror(error.errno or 0)}{said}"
        if error.errno == errno.ENOSPC:
            return ResctrlFull(
                f"{text}: remove groups that nobody uses, or the node is left without this limit", errno.ENOSPC
            )
        return ResctrlError(text, error.errno or 0)


def _other_resources(schemata: str) -> list[str]:
    lines = ("".join(line.split()) for line in schemata.splitlines())
    return [line for line in lines if line and not line.startswith("MB:")]
