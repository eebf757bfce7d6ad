"""What ``sodactl profiles`` shows, as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable

from slurm_soda.daemon.store import kind_profiles as stored
from slurm_soda.daemon.store.tables.kind_profiles import ProfileEdit
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileValue
from slurm_soda.sodactl.output import Document
from slurm_soda.sodactl.site_access import SiteAccess

_MAX_RUN_TIMES = 2000


def value_documents(found: Iterable[ProfileValue]) -> list[Document]:
    """Values with their sources."""
    return [
        {
            "model": value.subject.kind.model,
            "batch": value.subject.kind.batch,
            "gpu_type": value.subject.kind.gpu_type,
            "gpus": value.subject.kind.gpus,
            "with": value.subject.partner,
            "with_batch": value.subject.partner_batch,
            "quantity": value.quantity,
            "value": value.estimate.value,
            "error": value.estimate.error,
            "source": value.estimate.source.name.lower(),
            "owner": value.owner,
            "observations": value.observations,
            "origin": value.origin,
            "at_s": value.at_s,
        }
        for value in found
    ]


def run_time_accuracy(site: SiteAccess) -> list[Document]:
    """How far predicted run times were off, by their source: the typical factor, over the newest ended jobs."""
    with site.store() as store, store.read() as session:
        rows = stored.predictions_with_run_times(session, _MAX_RUN_TIMES)
        pairs_by: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            if row.actual_s and row.run_s:
                pairs_by.setdefault(row.predicted_by, []).append((row.run_s, row.actual_s))
    return [
        {
            "predicted_by": predicted_by,
            "jobs": len(pairs),
            "factor": math.exp(math.fsum(abs(math.log(told / ran)) for told, ran in pairs) / len(pairs)),
            "error_s": math.fsum(abs(told - ran) for told, ran in pairs) / len(pairs),
        }
        for predicted_by, pairs in sorted(pairs_by.items())
    ]


def edit_document(row: ProfileEdit) -> Document:
    """One change by hand."""
    return {
        "edit": row.id,
        "at_s": row.at_s,
        "by": row.who,
        "action": row.action,
        "summary": row.summary,
        "replaced": len(row.before),
        "undone_s": row.undone_s,
    }
