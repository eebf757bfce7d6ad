"""What of a job tells how long it will run, and whose earlier jobs it resembles."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

_DIGITS = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class SubmissionTraits:
    """What is known of a job when it is submitted; empty text where nobody said."""

    owner: str
    gpus: int
    """Over all nodes."""
    partition: str = ""
    name: str = ""
    model: str = ""
    limit_s: float = math.inf
    """Its time limit; infinite where it has none, or nobody says. Runs of one script mostly have the same."""

    @property
    def family(self) -> str:
        """The name without its numbers, since runs of a sweep are numbered: ``train-17`` is of ``train-#``."""
        return _DIGITS.sub("#", self.name)


class JobGroup(NamedTuple):
    """Jobs that have these traits in common; ``None`` for a trait that may be any."""

    owner: str | None = None
    gpus: int | None = None
    partition: str | None = None
    model: str | None = None
    family: str | None = None
    limit_s: float | None = None

    def words(self) -> str:
        """For people: ``of alice, on 4 GPUs in main, training resnet50``."""
        parts = [
            f"of {self.owner}" if self.owner is not None else "",
            _describe_gpus(self.gpus, self.partition),
            f"named {self.family}" if self.family is not None else "",
            f"training {self.model}" if self.model is not None else "",
            f"limited to {self.limit_s / 60:g} min" if self.limit_s is not None else "",
        ]
        return ", ".join(part for part in parts if part) or "of everybody"


def list_groups(traits: SubmissionTraits) -> tuple[JobGroup, ...]:
    """The groups that a job belongs to, each more like it than the one before.

    Shape alone comes before the owner, and the owner before both: people repeat their jobs, and others' jobs of the shape
    say little. Groups by name, model or time limit exist only where the job has one.
    """
    shape = JobGroup(gpus=traits.gpus, partition=traits.partition)
    own, model = shape._replace(owner=traits.owner), traits.model or None
    limit_s = traits.limit_s if math.isfinite(traits.limit_s) else None
    groups = [JobGroup(), shape, shape._replace(limit_s=limit_s), JobGroup(owner=traits.owner), own]
    groups += [shape._replace(model=model), own._replace(model=model)]
    groups += [own._replace(limit_s=limit_s), own._replace(model=model, limit_s=limit_s)]
    if traits.name:
        named = own._replace(family=traits.family, model=model)
        groups += [named, named._replace(limit_s=limit_s)]
    return tuple(dict.fromkeys(groups))


def _describe_gpus(gpus: int | None, partition: str | None) -> str:
    if gpus is None:
        return ""
    return f"on {gpus} GPU{'s' * (gpus != 1)}" + (f" in {partition}" if partition else "")
