"""What stands in a guest's Extra field (``docs/design/0013-a-guest-carries-its-record.md``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_soda.slurm_ext.errors import SlurmReplyError

GUEST_PREFIX = "soda-guest:"
"""An Extra that begins so is a guest's record, of whatever version."""

UNDO_FIELDS = ("TresPerNode", "TresPerJob", "TresPerTask", "TresPerSocket", "ReqNodeList")
"""Fields that a share changes, apart from Extra itself, which was empty before."""

MAX_BYTES = 1024
"""A longer record is not written, and not read."""

_VERSION = "1"
_ID = r"[1-9][0-9]{0,9}"
_INDEX = r"[0-9]{1,3}"
_COUNT = re.compile(r"[1-9][0-9]{0,8}")
_LISTS = {"hosts": re.compile(rf"{_ID}(\+{_ID})*"), "gpus": re.compile(rf"{_INDEX}(\+{_INDEX})*")}
_UNDO = re.compile(rf"({'|'.join(UNDO_FIELDS)})=([A-Za-z0-9_.,:/=\[\]-]*)")


@dataclass(frozen=True, slots=True)
class GuestRecord:
    """Where a guest was sent, with what, and how its request was."""

    hosts: tuple[int, ...]
    """Job ids, ascending."""
    gpus: tuple[int, ...]
    """Indices that it shares on each of its nodes, ascending."""
    own: int = 0
    """GPUs on each node that it holds as plain ``gpu`` beside them."""
    sub_batch: int = 0
    """Samples a GPU and forward pass; 0: its whole batch."""
    steps: int = 1
    """Forward passes before an optimiser step."""
    threads: int = 100
    """Percentage of a GPU's threads that MPS gives it."""
    memory_mib: int = 0
    """What MPS lets it allocate on each GPU; 0: no limit."""
    undo: Mapping[str, str] = field(default_factory=dict)
    """Fields as they were; those of :data:`UNDO_FIELDS` that the share changed."""

    def encode(self) -> str:
        """As Extra has it.

        Raises:
            SlurmReplyError: it is longer than :data:`MAX_BYTES`, or holds what :func:`parse_guest_record` would not take.
        """
        words = [
            f"{GUEST_PREFIX}{_VERSION}",
            f"hosts={'+'.join(map(str, self.hosts))}",
            f"gpus={'+'.join(map(str, self.gpus))}",
        ]
        for name, value, usual in (
            ("own", self.own, 0),
            ("sub", self.sub_batch, 0),
            ("steps", self.steps, 1),
            ("threads", self.threads, 100),
            ("memory", self.memory_mib, 0),
        ):
            if value != usual:
                words.append(f"{name}={value}")
        words.append("undo=" + ";".join(f"{name}={value}" for name, value in self.undo.items()))
        text = ",".join(words)
        if parse_guest_record(text) != self:
            raise _unreadable(text)
        return text


def is_guest_record(extra: str) -> bool:
    """Whether somebody meant this Extra as a guest's record, readable or not."""
    return extra.startswith(GUEST_PREFIX)


def parse_guest_record(extra: str) -> GuestRecord:
    """A record from outside, every value checked.

    Raises:
        SlurmReplyError: it is no record of this version, or a value in it is not allowed.
    """
    head, mark, undo = extra.partition(",undo=")
    version, *words = head.split(",")
    if len(extra) > MAX_BYTES or version != f"{GUEST_PREFIX}{_VERSION}" or not mark:
        raise _unreadable(extra)
    told: dict[str, str] = {}
    for word in words:
        name, _, value = word.partition("=")
        pattern = _LISTS.get(name, _COUNT)
        if name in told or name not in (*_LISTS, "own", "sub", "steps", "threads", "memory"):
            raise _unreadable(extra)
        if not pattern.fullmatch(value):
            raise _unreadable(extra)
        told[name] = value
    numbers = {name: tuple(map(int, told.get(name, "").split("+"))) if told.get(name) else () for name in _LISTS}
    if not all(values and list(values) == sorted(set(values)) for values in numbers.values()):
        raise _unreadable(extra)
    record = GuestRecord(
        hosts=numbers["hosts"],
        gpus=numbers["gpus"],
        own=int(told.get("own", 0)),
        sub_batch=int(told.get("sub", 0)),
        steps=int(told.get("steps", 1)),
        threads=int(told.get("threads", 100)),
        memory_mib=int(told.get("memory", 0)),
        undo=_parse_undo(undo, extra),
    )
    if record.threads > 100:
        raise _unreadable(extra)
    return record


def _parse_undo(text: str, extra: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for piece in text.split(";") if text else ():
        match = _UNDO.fullmatch(piece)
        if match is None or match[1] in found:
            raise _unreadable(extra)
        found[match[1]] = match[2]
    return found


def _unreadable(extra: str) -> SlurmReplyError:
    return SlurmReplyError(f"Extra={extra[:200]!a} is not the record of a guest")
