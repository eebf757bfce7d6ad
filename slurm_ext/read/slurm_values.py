"""Slurm's ways of writing numbers, times and trackable resources (TRES)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from slurm_soda.policies.snapshot import NEVER, UNLIMITED_S
from slurm_soda.slurm_ext.errors import SlurmReplyError

_NO_TIME = frozenset({"", "N/A", "NONE", "Unknown", "None", "(null)", "0"})
_NO_LIMIT = frozenset({"UNLIMITED", "NOT_SET", "INVALID", "Partition_Limit", "N/A", ""})
_NO_TEXT = frozenset({"", "(null)", "N/A"})
_INTEGER = re.compile(r"-?[0-9]{1,18}")
"""As many digits as every database and NumPy hold."""
_COUNT = re.compile(r"[0-9]{1,18}")
_SPAN = re.compile(r"(?:([0-9]{1,9})-)?(?:([0-9]{1,9}):)?([0-9]{1,9}):([0-9]{1,9}(?:\.[0-9]{1,9})?)")
_AMOUNT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)([KMGTP]?)")
_MIB_PER_UNIT = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_COUNT_PER_UNIT = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_GPU = re.compile(r"(?:gres[/:])?gpu(?:[:/]([A-Za-z][^:=,(/]*))?(?:[:=]([0-9]+))?(?:\(.*)?")
_INDICES = re.compile(r"\(IDX:([0-9,-]{1,4096})\)")
_DEVICE_TYPE = re.compile(r"g([0-9]{1,4})")
SHARED_GPU_GRES = "sharedgpu"
"""The generic resource that names the devices of ``gpu`` a second time, with one type for each: ``g0`` is GPU 0. A guest
holds it on GPUs that another job holds as ``gpu``."""
MAX_COUNT = 2**31 - 1
"""Of CPUs, GPUs or nodes: more is a mistake, and more than some databases hold."""
_MAX_INDEX = 1023
"""Of a GPU in its node."""
_MAX_MIB = 2**53
JSON_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, StopIteration, TypeError, ValueError)
"""What reading JSON of another form, or with numbers that nobody can hold, may raise."""
_NOT_SET = (0xFFFF, 0xFFFE, 0xFFFF_FFFF, 0xFFFF_FFFE, 0xFFFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFE)
"""INFINITE and NO_VAL, in 16, 32 and 64 bits, as older versions print them."""
_MAX_NUMBER = 2**53
_SHOWN = 60
"""Characters of a value in an error."""
_MAX_TASKS = 2**31
"""Slurm shows a task count that is not set as 4294967294."""


def parse_integer(text: str, what: str) -> int:
    """A whole number.

    Raises:
        SlurmReplyError: it is none, or has more than 18 digits.
    """
    if not _INTEGER.fullmatch(text):
        raise SlurmReplyError(f"{what} is {text[:_SHOWN]!r}, not a whole number of at most 18 digits")
    return int(text)


def json_count(value: Any) -> int:
    """A count in JSON, plain or as an object with ``set`` and ``infinite``; 0 where it is not set.

    Raises:
        ValueError: it is negative or larger than 2^53. Others of :data:`JSON_ERRORS`: it is of another form.
    """
    if isinstance(value, dict):
        value = value["number"] if value.get("set") and not value.get("infinite") else 0
    count = int(value or 0)
    if count in _NOT_SET:
        return 0
    if not 0 <= count <= _MAX_NUMBER:
        raise ValueError("a number out of range")
    return count


def scaled_count(text: str, what: str) -> int:
    """A whole number, or one in units of 1024, in which squeue writes multiples of it: ``2K``.

    Raises:
        SlurmReplyError: it is none.
    """
    return parse_integer(text[:-1], what) * 1024 if text.endswith("K") else parse_integer(text, what)


def count_or_zero(text: str) -> int:
    """A count; 0 where the text is a word such as UNLIMITED, or a count that nothing has."""
    return int(text) if _COUNT.fullmatch(text) else 0


def time_s(text: str, what: str) -> float:
    """A point in time that was printed as Unix seconds; NaN where Slurm has none."""
    return NEVER if text in _NO_TIME else float(parse_integer(text, what))


@lru_cache(maxsize=4096)
def span_s(text: str, what: str) -> float:
    """``1-02:03:04``, ``2:03`` and the like; infinite for a limit that is not set."""
    if text in _NO_LIMIT:
        return UNLIMITED_S
    match = _SPAN.fullmatch(text)
    if not match:
        raise SlurmReplyError(f"{what} is {text[:_SHOWN]!r}, not a time span such as 1-02:03:04")
    days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60 + float(match[4])


def cpu_time_s(text: str, what: str) -> float:
    """CPU time as sacct prints it (``01:02:03``, ``00:00.001``); NaN where it has none."""
    return NEVER if text in _NO_TEXT else span_s(text, what)


def text_or_empty(text: str) -> str:
    """Text that Slurm made itself, with its words for nothing as the empty text."""
    return "" if text in _NO_TEXT else text


def task_count(text: str, what: str) -> int:
    """Number of tasks, 1 where it is not set."""
    count = 1 if text in _NO_TEXT else scaled_count(text, what)
    return count if 0 < count < _MAX_TASKS else 1


def memory_mib(text: str, what: str) -> int:
    """``62.50G``, ``1000M``, ``512K``; without a unit MiB.

    Raises:
        SlurmReplyError: it is no amount.
    """
    match = _AMOUNT.fullmatch(text)
    mib = float(match[1]) * _MIB_PER_UNIT[match[2]] if match else _MAX_MIB
    if mib >= _MAX_MIB:
        raise SlurmReplyError(f"{what} is {text[:_SHOWN]!r}, not an amount of memory")
    return round(mib)


def peak_mib(text: str, what: str) -> float:
    """Peak memory as sacct prints it; without a unit bytes; NaN where it has none."""
    if text in _NO_TEXT:
        return NEVER
    match = _AMOUNT.fullmatch(text)
    if not match:
        raise SlurmReplyError(f"{what} has peak memory {text[:_SHOWN]!r}, which is no amount")
    return float(match[1]) * (_MIB_PER_UNIT[match[2]] if match[2] else 1 / 1024**2)


@dataclass(frozen=True, slots=True)
class TrackableResources:
    """Trackable resources of a job: what it asks for while it waits, what it holds once it runs."""

    cpus: int = 0
    memory_mib: int = 0
    nodes: int = 0
    gpus: int = 0
    """Shared ones too."""
    gpu_type: str = ""
    shared_gpus: int = 0
    """Those of them that others hold as well: the second generic resource over the same devices."""

    def given(self, *, as_guest: bool) -> TrackableResources:
        """The same, of a job that asked for shared GPUs or did not.

        With ``--exclusive`` Slurm gives a job everything that its nodes have, its own GPUs by their second name too.
        """
        return (
            self
            if as_guest or not self.shared_gpus
            else replace(self, gpus=self.gpus - self.shared_gpus, shared_gpus=0)
        )


@lru_cache(maxsize=65536)
def parse_tres(text: str, shared_gres: str = SHARED_GPU_GRES) -> TrackableResources:
    """``cpu=4,mem=2000M,node=1,billing=4,gres/gpu=4,gres/gpu:a100=4``.

    ``shared_gres``: name of the generic resource of guests.

    Raises:
        SlurmReplyError: a piece is not a name and an amount.
    """
    found: dict[str, str] = {}
    for piece in text_or_empty(text).split(",") if text_or_empty(text) else ():
        name, equals, amount = piece.partition("=")
        if not equals:
            raise SlurmReplyError(f"TRES {text[:_SHOWN]!r} cannot be read at {piece[:_SHOWN]!r}")
        found[name] = amount
    typed = _counts_by_type(found, "gpu", text)
    gpus = _count(found["gres/gpu"], text) if "gres/gpu" in found else sum(typed.values())
    shared = f"gres/{shared_gres}"
    by_device = _counts_by_type(found, shared_gres, text)
    shared_gpus = _count(found[shared], text) if shared in found else sum(by_device.values())
    return TrackableResources(
        cpus=_count(found.get("cpu", "0"), text),
        memory_mib=memory_mib(found.get("mem", "0"), "memory"),
        nodes=_count(found.get("node", "0"), text),
        gpus=gpus + shared_gpus,
        gpu_type=next(iter(typed)) if len(typed) == 1 else "",
        shared_gpus=shared_gpus,
    )


def _counts_by_type(found: dict[str, str], gres: str, text: str) -> dict[str, int]:
    prefix = f"gres/{gres}:"
    return {name[len(prefix) :]: _count(amount, text) for name, amount in found.items() if name.startswith(prefix)}


def _count(amount: str, text: str) -> int:
    match = _AMOUNT.fullmatch(amount)
    count = float(match[1]) * _COUNT_PER_UNIT[match[2]] if match else MAX_COUNT + 1.0
    if count > MAX_COUNT:
        raise SlurmReplyError(f"TRES {text[:_SHOWN]!r} cannot be read at {amount[:_SHOWN]!r}")
    return round(count)


@lru_cache(maxsize=65536)
def parse_gpu_request(text: str) -> tuple[int, str]:
    """GPUs and their type in a list of generic resources: ``gres/gpu:a100:2,gres/fpga:1`` or ``gpu:a100:3(IDX:0-2)``.

    A request without a count means one; other resources are passed over.

    Raises:
        SlurmReplyError: more than :data:`MAX_COUNT` GPUs.
    """
    total, types = 0, set()
    for piece in _split_outside_parentheses(text_or_empty(text)):
        match = _GPU.fullmatch(piece)
        if match:
            total += 1 if match[2] is None else _count(match[2], text)
            types.add(match[1] or "")
    return total, types.pop() if len(types) == 1 else ""


@lru_cache(maxsize=65536)
def count_shared_gpus(text: str, shared_gres: str = SHARED_GPU_GRES) -> int:
    """GPUs that a request wants as a guest: ``gres/sharedgpu:g0:1,gres/sharedgpu:g1:1`` is two.

    Raises:
        SlurmReplyError: more than :data:`MAX_COUNT`.
    """
    return sum(count for name, count in parse_other_gres(text).items() if name.partition(":")[0] == shared_gres)


@lru_cache(maxsize=65536)
def parse_gpu_indices(text: str) -> tuple[int, ...]:
    """Indices of the GPUs in a list such as ``gpu:a100:3(IDX:0,2-3)``, ascending; none where Slurm does not tell them."""
    found: set[int] = set()
    for piece in _split_outside_parentheses(text_or_empty(text)):
        told = _INDICES.search(piece) if _GPU.fullmatch(piece) else None
        for part in told[1].split(",") if told else ():
            first, _, last = part.partition("-")
            if first.isdecimal() and (last or first).isdecimal() and int(last or first) <= _MAX_INDEX:
                found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


@lru_cache(maxsize=65536)
def parse_shared_indices(text: str, shared_gres: str = SHARED_GPU_GRES) -> tuple[int, ...]:
    """GPUs of a list such as ``sharedgpu:g0:1(IDX:0),sharedgpu:g2:0``, by their types; those with a count of 0 are left out.

    The type names the device and not the index in parentheses, which follows the order of lines in gres.conf.

    Raises:
        SlurmReplyError: more than :data:`MAX_COUNT` of one.
    """
    parts = ((name.partition(":"), count) for name, count in parse_other_gres(text).items())
    types = (_DEVICE_TYPE.fullmatch(kind) for (name, _, kind), count in parts if name == shared_gres and count)
    return tuple(sorted(int(match[1]) for match in types if match))


def parse_other_gres(text: str) -> dict[str, int]:
    """All generic resources but GPUs in a list such as ``gres/fpga:x1:1,gpu:4(IDX:0-3)``, by name and type (``fpga:x1``).

    Raises:
        SlurmReplyError: more than :data:`MAX_COUNT` of one.
    """
    found: dict[str, int] = {}
    for piece in _split_outside_parentheses(text_or_empty(text)):
        if "=" in piece and not piece.startswith("gres/"):
            continue  # a TRES that is no generic resource, as in ``cpu=4,gres/fpga=1``
        name, _, count = (
            piece.partition("(")[0].removeprefix("gres/").removeprefix("gres:").replace("=", ":").rpartition(":")
        )
        if not _COUNT.fullmatch(count):
            name, count = f"{name}:{count}" if name else count, "1"
        if name.partition(":")[0] != "gpu":
            found[name] = found.get(name, 0) + _count(count, text)
    return found


def _split_outside_parentheses(text: str) -> list[str]:
    """Split at the commas outside parentheses (``gpu:4(IDX:0,2),fpga:1``)."""
    return re.findall(r"(?:[^,(]|\([^)]*\))+", text)
