"""Decisions to share or to wait as sodactl shows them, whoever made them: the simulator's policies, or a site's two jobs."""

from __future__ import annotations

from slurm_soda.policies.sharing import telling
from slurm_soda.policies.sharing.subbatch import Decision
from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Document


def document(decision: Decision | None) -> Document | None:
    """All its numbers; numbers that JSON lacks may be among them."""
    return None if decision is None else telling.numbers(decision)


def lines(decision: Decision | None) -> tuple[str, ...]:
    """The pair's arithmetic in sentences; none without a decision."""
    return () if decision is None else telling.sentences(decision)


def draw(decision: Decision | None, *, indent: int) -> None:
    """The same on the terminal."""
    for line in lines(decision):
        output.print_line(f"{' ' * indent}{line}")
