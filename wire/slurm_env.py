"""Reads the environment that slurmd gives to prolog and epilog. Users choose parts of it, so every value is bounded.

Nothing here raises for a bad value: a prolog must not fail. Imported by the prolog: keep the imports few.
"""

from __future__ import annotations

from collections.abc import Mapping

MAX_TEXT = 256
MAX_HINTS = 16
_HINT_PREFIX = "SPANK_SODA_"


def read_integer(environ: Mapping[str, str], name: str, default: int = 0, highest: int = 0xFFFF_FFFF) -> int:
    """A decimal number from 0 to ``highest``, or the default."""
    text = environ.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        return default
    return int(text) if int(text) <= highest else default


def read_text(environ: Mapping[str, str], name: str, longest: int = MAX_TEXT) -> str:
    """Text cut to ``longest`` characters, with control characters as ``?``."""
    value = environ.get(name, "")[:longest]
    return "".join("?" if ord(c) < 32 or 127 <= ord(c) < 160 else c for c in value)


def read_whole_text(environ: Mapping[str, str], name: str, longest: int) -> str:
    """Text as :func:`read_text`, or none where it is longer: a list that is cut says something else."""
    return read_text(environ, name, longest) if len(environ.get(name, "")) <= longest else ""


def read_gpu_indices(environ: Mapping[str, str]) -> list[int]:
    """Absolute indices of the job's GPUs on this node (SLURM_JOB_GPUS, such as ``0,1`` or ``0-3``), ascending."""
    found: set[int] = set()
    for item in environ.get("SLURM_JOB_GPUS", "")[:4096].split(","):
        first, dash, last = item.strip().partition("-")
        if not first.isdecimal() or not first.isascii() or (dash and not (last.isdecimal() and last.isascii())):
            continue
        if len(first) > 5 or len(last) > 5:
            continue
        found.update(range(int(first), min(int(last or first), int(first) + MAX_TEXT) + 1))
    return sorted(found)[:MAX_TEXT]


def read_hints(environ: Mapping[str, str]) -> dict[str, str]:
    """What the SPANK plugin set for the job, as it is but for the bounds: the agent validates it.

    Values are cut to ASCII, which is all that a hint may hold, so that an event of any user's making stays short enough.
    """
    names = sorted(name for name in environ if name.startswith(_HINT_PREFIX) and len(name) <= 64 and name.isascii())
    return {name: read_text(environ, name).encode("ascii", "replace").decode() for name in names[:MAX_HINTS]}
