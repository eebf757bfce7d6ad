"""A job's CPU cores: what it asked for, what it starts with, what was found."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_soda.daemon.api.views import JobDetailView
from slurm_soda.daemon.store.tables.cpu_fit import CpuProposalRow
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.policies.explanation.explanation import Explanation
from slurm_soda.slurm_ext.client import SlurmJob

_SETTLE_REASON_TEXTS = {
    "best_fit": "the fewest with which its GPUs are as busy as they can be",
    "measured": "the fewest measured with which its GPUs are as busy as they can be",
    "kept": "neither fewer nor more would do as well",
    "independent": "its GPUs are as busy with any number",
    "idle": "its GPUs hardly work, so what it needs is unknown",
    "cut_short": "the search was given up",
}


def explain_cores(view: JobDetailView, record: SlurmJob | None) -> Explanation:
    """Sentences about cores, each per node, and the proposal; empty where nothing is known of them."""
    proposal = view.cpu_proposal
    numbers = (
        {}
        if proposal is None
        else {
            "asked": proposal.asked_cores,
            "start": proposal.cores,
            "source": proposal.source,
            "left_alone": proposal.left_alone,
        }
    )
    return Explanation(tuple(_sentences(view, view.job if record is None else record)), numbers)


def _sentences(view: JobDetailView, source: Job | SlurmJob | None) -> Iterator[str]:
    if source is None:
        return
    start, present = view.cpu_proposal, -(-source.cpus // max(source.nodes, 1))
    if start is not None and source.state == "PENDING":
        yield _waiting_request_text(start, present)
    elif start is not None and start.asked_cores != present:
        yield f"It asked for {start.asked_cores} cores on each node and started with {present}."
    if view.cpu_fits:
        fit = view.cpu_fits[-1]
        tried = f"tried in {fit.steps} steps" if fit.steps else "without trying others"
        yield f"Its cores: {fit.cores} on each node, {tried}: {_SETTLE_REASON_TEXTS.get(fit.reason, fit.reason)}."


def _waiting_request_text(start: CpuProposalRow, present: int) -> str:
    if start.left_alone:
        return f"Its request of {present} cores on each node is left alone: {start.left_alone}."
    if start.cores != present:
        return f"It asks for {present} cores on each node; {start.cores} would be right to start with."
    if start.asked_cores != present:
        return f"It asked for {start.asked_cores} cores on each node and will start with {present}."
    return f"It asks for {present} cores on each node, which is right to start with."
