"""Decisions to share or to wait as sodactl shows them, whoever made them: the simulator's policies, or a site's two jobs."""

from __future__ import annotations

from slurm_soda.policies.sharing.arithmetic.subbatch import Decision
from slurm_soda.policies.sharing.telling import story
from slurm_soda.policies.sharing.telling.meeting import Meeting
from slurm_soda.policies.sharing.telling.meetings import Names
from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Document


def document(decision: Decision | Meeting | None) -> Document | None:
    """All its numbers; numbers that JSON lacks may be among them."""
    return None if decision is None else story.numbers(decision)


def lines(decision: Decision | Meeting | None, name: Names = str) -> tuple[str, ...]:
    """The arithmetic in sentences; none without a decision. ``name``: what people call a job, by its id."""
    return () if decision is None else story.sentences(decision, name)


def draw(decision: Decision | Meeting | None, *, indent: int, name: Names = str) -> None:
    """The same on the terminal."""
    for line in lines(decision, name):
        output.print_line(f"{' ' * indent}{line}")
