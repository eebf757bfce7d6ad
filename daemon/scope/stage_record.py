"""Since when sodad runs in this mode on this scope, which outlives restarts: the stage of a roll-out."""

from __future__ import annotations

import hashlib

from sqlalchemy.orm import Session

from slurm_soda.daemon.settings.scope import ScopeSettings
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.tables.scheduling import AdminSetting

SETTING = "stage"
"""Key among what admins set; sodad writes it."""


def stage_name(mode: str, settings: ScopeSettings) -> str:
    """The same for the same mode and the same jobs in scope, in whatever order they are named."""
    lists = (settings.partitions, settings.accounts, settings.qos, settings.users)
    named = "\n".join("\t".join(sorted(names)) for names in lists)
    return f"{mode} {hashlib.sha256(named.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"


def note_stage(session: Session, mode: str, settings: ScopeSettings, now_s: float) -> str:
    """Record the stage if it is another one than before; gives its name."""
    name, known = stage_name(mode, settings), session.get(AdminSetting, SETTING)
    if known is None or known.value != name:
        queries.put_admin_setting(session, SETTING, name, now_s=now_s, by="sodad")
    return name


def stage_since_s(session: Session, mode: str, settings: ScopeSettings) -> float | None:
    """Since when sodad runs so; ``None``: it does not, as far as it has recorded."""
    known = session.get(AdminSetting, SETTING)
    return known.changed_s if known is not None and known.value == stage_name(mode, settings) else None
