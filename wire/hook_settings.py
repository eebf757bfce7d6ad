"""What prolog and epilog of a node read in sharing.conf; its agent reports it, and ``sodactl doctor`` compares nodes."""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass
from pathlib import Path

from slurm_soda.wire.run_fields import RunFields

HOOK_SETTINGS_FILE = Path("/etc/slurm-soda/sharing.conf")
DEFAULT_KILL_WAIT_S = 30
"""What the hooks take where the file names none (docs/design/0013-a-guest-carries-its-record.md)."""

_KILL_WAIT = re.compile(r"[1-9][0-9]{0,2}")
_LONGEST = 1 << 16
_MOST_PARTITIONS, _LONGEST_NAME = 1024, 255


@dataclass(frozen=True, slots=True)
class HookSettings:
    """The hooks' settings on one node; the defaults are those of a node without the file."""

    kill_wait_s: int = DEFAULT_KILL_WAIT_S
    mps: bool = False
    partitions: tuple[str, ...] = ()
    """Whose consenting jobs start under MPS."""
    consent_by_default: bool = False
    problem: str = ""
    """Why the hooks do not trust the file; they then have the defaults."""

    @classmethod
    def from_dict(cls, data: object) -> HookSettings:
        """Check and take settings that came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("hooks", data)
        return cls(
            kill_wait_s=read.whole("kill_wait_s", 1, 999),
            mps=read.flag("mps"),
            partitions=read.texts("partitions", _MOST_PARTITIONS, _LONGEST_NAME),
            consent_by_default=read.flag("consent_by_default"),
            problem=read.text("problem", 255, ""),
        )


def read_hook_settings(path: Path) -> HookSettings:
    """As ``prolog/share-walls`` and ``prolog/mps-settings`` read them."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            return HookSettings(problem="it is no file")
        if found.st_uid != 0 or found.st_mode & 0o022:
            return HookSettings(problem="others than root may write it")
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = file.read(_LONGEST).splitlines()
    except FileNotFoundError:
        return HookSettings()
    except OSError as error:
        return HookSettings(problem=error.strerror or "it cannot be read")
    pairs = [(key.strip(), value.strip()) for key, _, value in (line.partition("=") for line in lines)]
    told = dict(pairs)
    wait = told.get("kill_wait_s", "")
    names = [name[:_LONGEST_NAME] for name in told.get("partitions", "").split(",") if name]
    return HookSettings(
        int(wait) if _KILL_WAIT.fullmatch(wait) else DEFAULT_KILL_WAIT_S,
        {value for key, value in pairs if key == "mps"} == {"yes"},
        tuple(names[:_MOST_PARTITIONS]),
        told.get("consent_by_default") == "yes",
    )
