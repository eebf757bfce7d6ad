"""What is measured: kinds of trainings, alone and in all pairs."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import NamedTuple


class TrainingKind(NamedTuple):
    """A model with a batch size, on one GPU."""

    model: str
    batch: int

    @property
    def key(self) -> str:
        """As a pair table names it."""
        return f"('{self.model} (batch size {self.batch})', 1)"

    def __str__(self) -> str:
        return f"{self.model}/{self.batch}"

    @classmethod
    def read(cls, text: str) -> TrainingKind:
        """The kind of a text such as ``resnet50/64``.

        Raises:
            ValueError: it is none.
        """
        model, slash, batch = text.rpartition("/")
        if not slash or not model or not batch.isascii() or not batch.isdigit() or not 1 <= int(batch) <= 1_000_000:
            raise ValueError(f"a kind is MODEL/BATCH such as resnet50/64, not {text!r}")
        return cls(model, int(batch))


ON_GPU = tuple(
    TrainingKind(model, batch)
    for model, batches in (
        ("resnet18", (32, 256)),
        ("resnet50", (32, 128)),
        ("vgg11", (32, 128)),
        ("transformer", (16, 64)),
        ("lstm", (20, 80)),
        ("recommendation", (1024, 16_384)),
    )
    for batch in batches
)
ON_CPU = (TrainingKind("tiny-mlp", 16), TrainingKind("tiny-lstm", 8))

Run = tuple[TrainingKind, ...]
"""One kind alone, or two together."""


def runs(kinds: tuple[TrainingKind, ...]) -> list[Run]:
    """Everything to measure: each alone first, then all pairs, those with themselves included."""
    return [*((kind,) for kind in kinds), *combinations_with_replacement(kinds, 2)]


def name_of(run: Run) -> str:
    """As the journal names a run."""
    return "+".join(map(str, run))
