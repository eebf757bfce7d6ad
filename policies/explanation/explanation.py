"""What every explanation consists of, whoever gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Explanation:
    """Sentences for people, most important first, and the numbers behind them as plain data; both empty: nothing known."""

    sentences: tuple[str, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The sentences as one paragraph."""
        return " ".join(self.sentences)
