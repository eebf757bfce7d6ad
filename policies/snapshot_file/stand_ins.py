"""Other names in the place of a site's own: equal names stay equal, and sort as they did, since policies go by that.

A job's stand-in is its rank among all jobs in the file, a user's ``user07`` the seventh user's; each part of a list of
partitions has its own. Categories that decisions know by name stay. In text for people, the number behind "job" and the
name behind "partition" or "node" is replaced.
Numbers, times and sizes stay: decisions are made of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slurm_soda.policies.cpu_fit.start_cores import DEFAULT_CORES
from slurm_soda.policies.snapshot_file.identifiers import SENTENCE, VOCABULARY, Identifier

_JOB, _PARTITION, _POOL = "job", "partition", "pool"
_KEPT = {"category": frozenset(DEFAULT_CORES)}
_LISTED = r"(?P<listed>[^\s,;:]+(?:, ?[^\s,;:]+)*)"
_MENTION = re.compile(rf"(?P<before>\b(?P<kind>job|partition|node)s? |\bSlurm refused ){_LISTED}")


@dataclass(frozen=True, slots=True)
class Names:
    """All names of a file, found by having it renamed with :meth:`note`."""

    found: dict[str, set[Any]] = field(default_factory=dict)

    def note(self, identifier: Identifier, value: Any) -> Any:
        """Remember a name; it stays as it is."""
        if identifier not in (SENTENCE, VOCABULARY):
            kind, parts = _parts(identifier.kind, value)
            self.found.setdefault(kind, set()).update(parts)
        return value

    def stand_ins(self) -> StandIns:
        """One for each name."""
        return StandIns({kind: _numbered(kind, values) for kind, values in self.found.items()})


@dataclass(frozen=True, slots=True)
class StandIns:
    """What stands for what, by kind."""

    by_kind: Mapping[str, Mapping[Any, Any]]

    def replace(self, identifier: Identifier, value: Any) -> Any:
        """The stand-in of a name, or text with stand-ins in it."""
        if identifier == VOCABULARY:
            return value
        if identifier == SENTENCE:
            return _MENTION.sub(self._mention, value)
        if identifier.kind == _POOL:
            partition, slash, word = value.rpartition("/")
            return self.by_kind[_PARTITION][partition] + slash + word if slash else value
        known = self.by_kind[identifier.kind]
        if identifier.kind == _PARTITION:
            return ",".join(known[part] for part in value.split(","))
        return known[value]

    def reversed(self) -> StandIns:
        """What leads back to the names."""
        return StandIns({kind: {new: old for old, new in pairs.items()} for kind, pairs in self.by_kind.items()})

    def _mention(self, match: re.Match[str]) -> str:
        kind = match["kind"] or _PARTITION
        known = self.by_kind.get(kind, {})

        def known_as(word: re.Match[str]) -> str:
            number = kind == _JOB and word[0].isdecimal()
            return str(known.get(int(word[0]) if number else word[0], word[0]))

        listed = re.sub(r"[^\s,]+", known_as, match["listed"])
        return match["before"] + listed


def _parts(kind: str, value: Any) -> tuple[str, Iterable[Any]]:
    """What of a name gets a stand-in of its own, and as what."""
    if kind == _POOL:
        return _PARTITION, (value.rpartition("/")[0],)
    return kind, value.split(",") if kind == _PARTITION else (value,)


def _numbered(kind: str, values: set[Any]) -> dict[Any, Any]:
    """Stand-ins in the order of the names; no name at all stays none."""
    kept = _KEPT.get(kind, frozenset())
    named = sorted(values - kept - {""})
    digits = len(str(len(named)))
    if kind == _JOB:
        return {name: number for number, name in enumerate(named, 1)}
    numbered = {name: f"{kind}{number:0{digits}}" for number, name in enumerate(named, 1)}
    return {"": "", **{name: name for name in kept}, **numbered}
