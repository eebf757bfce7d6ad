"""What the machine of the model can do, and the schemata files that follow from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

FULL = 100


@dataclass(slots=True)
class Setup:
    """The machine."""

    domains: list[int] = field(default_factory=lambda: [0, 1])
    closids: int = 4
    rmids: int = 16
    min_bandwidth: int = 10
    bandwidth_gran: int = 10
    mba: bool = True
    mbm: bool = True
    cat: bool = True
    full_bandwidth: int = FULL
    """The largest MB value: 100, or an absolute one, as AMD has."""
    domain_bytes_per_s: float = 100e9
    """What one domain's memory can deliver."""


class SchemataError(Exception):
    """A file that is refused; its text is what last_cmd_status says."""


def shown_schemata(setup: Setup, mb: dict[int, int], l3: dict[int, int]) -> str:
    """The file of a group with these limits."""
    lines = []
    if setup.cat:
        lines.append("    L3:" + ";".join(f"{d}={v:x}" for d, v in l3.items()))
    if setup.mba:
        lines.append("    MB:" + ";".join(f"{d}={v:4d}" for d, v in mb.items()))
    return "\n".join(lines) + "\n"


def parsed_schemata(setup: Setup, text: str) -> tuple[dict[int, int], dict[int, int]]:
    """The MB and L3 values that a written text sets; all lines are checked before any takes effect.

    Raises:
        SchemataError: a line is wrong.
    """
    mb: dict[int, int] = {}
    l3: dict[int, int] = {}
    for line in text.removesuffix("\n").split("\n"):
        name, colon, values = line.partition(":")
        name = name.strip()
        if not colon:
            raise SchemataError("Missing ':'")
        if not values:
            raise SchemataError(f"Missing '{name}' value")
        if name == "MB" and setup.mba:
            mb |= _pairs(setup, values, lambda word: _bandwidth(setup, word))
        elif name == "L3" and setup.cat:
            l3 |= _pairs(setup, values, _cache_mask)
        else:
            raise SchemataError(f"Unknown or unsupported resource name '{name}'")
    return mb, l3


def _pairs(setup: Setup, values: str, take: Callable[[str], int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for pair in filter(None, values.split(";")):
        domain, equals, value = pair.partition("=")
        if not equals or not domain.isdecimal():
            raise SchemataError("Missing '=' or non-numeric domain")
        if int(domain) not in setup.domains:
            raise SchemataError("")
        if int(domain) in found:
            raise SchemataError(f"Duplicate domain {domain}")
        found[int(domain)] = take(value.strip())
    return found


def _bandwidth(setup: Setup, word: str) -> int:
    if not word.isdecimal():
        raise SchemataError(f"Invalid MB value {word}")
    least, most, gran = setup.min_bandwidth, setup.full_bandwidth, setup.bandwidth_gran
    if not least <= int(word) <= most:
        raise SchemataError(f"MB value {word} out of range [{least},{most}]")
    return -(-int(word) // gran) * gran


def _cache_mask(word: str) -> int:
    try:
        mask = int(word, 16)
    except ValueError:
        raise SchemataError(f"Non-hex character in the mask {word}") from None
    if not 0 < mask <= 0xFFF:
        raise SchemataError("Mask out of range")
    if "0" in f"{mask:b}".strip("0"):
        raise SchemataError(f"The mask {mask:x} has non-consecutive 1-bits")
    return mask
