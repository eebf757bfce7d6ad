"""What ``sodactl profiles`` tells, as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable

from slurm_soda.daemon.knowledge.values import Value
from slurm_soda.daemon.store import knowledge as stored
from slurm_soda.daemon.store.knowledge_schema import KnowledgeEdit
from slurm_soda.sodactl.output import Document
from slurm_soda.sodactl.site import Site

_NEWEST_TOLD = 2000


def values(found: Iterable[Value]) -> list[Document]:
    """Values with their sources."""
    return [
        {
            "model": value.subject.kind.model, "batch": value.subject.kind.batch,
            "gpu_type": value.subject.kind.gpu_type, "gpus": value.subject.kind.gpus,
            "with": value.subject.partner, "with_batch": value.subject.partner_batch,
            "quantity": value.quantity, "value": value.estimate.value, "error": value.estimate.error,
            "source": value.estimate.source.name.lower(), "observations": value.observations,
            "origin": value.origin, "at_s": value.at_s,
        }
        for value in found
    ]  # fmt: skip


def accuracy(site: Site) -> list[Document]:
    """How far predicted run times were off, by who told them: the typical factor, over the newest ended jobs."""
    with site.store() as store, store.read() as session:
        rows = stored.told_and_actual(session, _NEWEST_TOLD)
        pairs_by: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            if row.actual_s and row.run_s:
                pairs_by.setdefault(row.told_by, []).append((row.run_s, row.actual_s))
    return [
        {
            "told_by": told_by, "jobs": len(pairs),
            "factor": math.exp(math.fsum(abs(math.log(told / ran)) for told, ran in pairs) / len(pairs)),
            "error_s": math.fsum(abs(told - ran) for told, ran in pairs) / len(pairs),
        }
        for told_by, pairs in sorted(pairs_by.items())
    ]  # fmt: skip


def edit(row: KnowledgeEdit) -> Document:
    """One change by hand."""
    return {
        "edit": row.id, "at_s": row.at_s, "by": row.who, "action": row.action, "summary": row.summary,
        "replaced": len(row.before), "undone_s": row.undone_s,
    }  # fmt: skip
