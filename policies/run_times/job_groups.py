"""What of a job tells how long it will run, and whose earlier jobs it resembles."""

from __future__ import annotations

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
    limit_s: float | None = None
    """Its time limit: jobs of one script have the same. None where nobody says, or it has none."""

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
        ]
        return ", ".join(part for part in parts if part) or "of everybody"


def list_groups(traits: SubmissionTraits) -> tuple[JobGroup, ...]:
    """The groups that a job belongs to, each more like it than the one before.

    Shape alone comes before the owner, and the owner before both: people repeat their jobs, and others' jobs of the shape
    say little. Groups by name or model exist only where the job has one.
    """
    shape = JobGroup(gpus=traits.gpus, partition=traits.partition)
    own = shape._replace(owner=traits.owner)
    groups = [JobGroup(), shape, JobGroup(owner=traits.owner), own]
    if traits.limit_s is not None:
        groups.insert(2, shape._replace(limit_s=traits.limit_s))
    if traits.model:
        groups += [shape._replace(model=traits.model), own._replace(model=traits.model)]
    if traits.limit_s is not None:
        groups.append(own._replace(limit_s=traits.limit_s))
        if traits.model:
            groups.append(own._replace(limit_s=traits.limit_s, model=traits.model))
    if traits.name:
        groups.append(own._replace(family=traits.family, model=traits.model or None))
    return tuple(groups)


def _describe_gpus(gpus: int | None, partition: str | None) -> str:
    if gpus is None:
        return ""
    return f"on {gpus} GPU{'s' * (gpus != 1)}" + (f" in {partition}" if partition else "")
