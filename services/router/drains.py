"""Which instances drain. Pure: from what sodad wants and what serves now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WISH_LASTS_S = 60.0
"""So long what sodad wanted is done without a word of sodad's; then every healthy instance serves again."""


@dataclass(frozen=True, slots=True)
class DrainCandidate:
    """What counts of one instance."""

    ready: bool
    """It says that it is ready, or that it drains because it was asked to, and lives."""
    answers: bool
    """HAProxy's check finds it well."""
    serves: bool
    """It gets queries now."""
    since_s: float = 0.0

    @property
    def can_serve(self) -> bool:
        """Whether it would get queries if nobody wanted it to drain."""
        return self.ready and self.answers


def choose_drains(candidates: Mapping[str, DrainCandidate], wanted: frozenset[str]) -> frozenset[str]:
    """Those of ``wanted`` that drain: all but one, if no other instance serves.

    The one that stays is an instance that serves now rather than one that would have to be called back, and of several the
    one that has been there longest. Ties go by name.
    """
    wanted &= candidates.keys()
    if any(one.serves for name, one in candidates.items() if name not in wanted):
        return wanted
    able = [
        (not candidates[name].serves, candidates[name].since_s, name) for name in wanted if candidates[name].can_serve
    ]
    return wanted - {min(able)[2]} if able else wanted
