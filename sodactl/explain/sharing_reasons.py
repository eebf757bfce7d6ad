"""Decisions to share or to wait as sodactl shows them, whoever made them: the simulator's policies, or a site's two jobs."""

from __future__ import annotations

from slurm_soda.policies.sharing.arithmetic.sharing_decision import SharingDecision
from slurm_soda.policies.sharing.explanation import decision_text
from slurm_soda.policies.sharing.explanation.co_runners import CoRunnersReport
from slurm_soda.policies.sharing.explanation.co_runners_text import JobNames
from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Document


def sharing_document(decision: SharingDecision | CoRunnersReport | None) -> Document | None:
    """All its numbers; numbers that JSON lacks may be among them."""
    return None if decision is None else decision_text.decision_as_dict(decision)


def list_sharing_reasons(decision: SharingDecision | CoRunnersReport | None, name: JobNames = str) -> tuple[str, ...]:
    """The arithmetic in sentences; none without a decision. ``name``: what people call a job, by its id."""
    return () if decision is None else decision_text.format_decision(decision, name)


def print_sharing_reasons(
    decision: SharingDecision | CoRunnersReport | None, *, indent: int, name: JobNames = str
) -> None:
    """The same on the terminal."""
    for line in list_sharing_reasons(decision, name):
        output.print_line(f"{' ' * indent}{line}")
