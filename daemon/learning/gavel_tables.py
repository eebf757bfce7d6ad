"""Tables of speeds that were measured elsewhere, in Gavel's format, as values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileSubject, ProfileValue
from slurm_soda.policies.sharing.prediction.speed_tables import SpeedTable, parse_speed_table
from slurm_soda.slurm_ext.errors import SodaError

UNCONSOLIDATED_SUFFIX = "_unconsolidated"
"""End of a GPU's name that means gangs spread over nodes: another matter than the kind of job."""
MAX_BYTES = 64 << 20
ERROR_RATIO = 0.05
"""Our choice, as for the table itself: another machine of the same type, another version of a framework."""


def read_gavel_table(path: Path) -> SpeedTable:
    """Read a table.

    Raises:
        SodaError: it cannot be read, is no JSON, or has another form; says where.
    """
    try:
        if path.exists() and not path.is_file():
            raise SodaError(f"{path}: it must be a file; write the table into one")
        if path.stat().st_size > MAX_BYTES:
            raise SodaError(f"{path}: larger than {MAX_BYTES >> 20} MiB; this is no table of speeds")
        return parse_speed_table(json.loads(path.read_text(encoding="utf-8")))
    except json.JSONDecodeError as error:
        raise SodaError(f"{path}:{error.lineno}: it must be JSON; at column {error.colno}: {error.msg}") from error
    except PolicyError as error:
        raise SodaError(f"{path}: {error}") from error
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SodaError(f"{path}: it cannot be read: {reason}") from error


def values_of_table(table: SpeedTable, gpu: str | None = None, own_name: str | None = None) -> list[ProfileValue]:
    """Values of a table, the last one of two that are about the same.

    Args:
        table: as read.
        gpu: only of this type of GPU, as the table names it; None: of all.
        own_name: what Slurm calls this type here; None: the same.

    Raises:
        SodaError: the table does not have this type, or nothing that can be used.
    """
    if gpu is not None and gpu not in table.gpu_types:
        raise SodaError(f"the table has no GPU {gpu!r}; it has: {', '.join(table.gpu_types)}")
    found: dict[tuple[str, ProfileSubject], ProfileValue] = {}
    for value in (*_read_alone(table), *_read_pairs(table)):
        here = value.subject.kind.gpu_type
        if (gpu is None and here.endswith(UNCONSOLIDATED_SUFFIX)) or (gpu is not None and here != gpu):
            continue
        kind = replace(value.subject.kind, gpu_type=here if own_name is None else own_name)
        subject = ProfileSubject.of(
            kind, JobKind(value.subject.partner, value.subject.partner_batch, "") if value.subject.partner else None
        )
        found[value.quantity, subject] = replace(value, subject=subject)
    if not found:
        raise SodaError(
            f"the table has nothing that can be used: no speed above 0 of a GPU but "
            f"{UNCONSOLIDATED_SUFFIX[1:]} ones; measure alone first"
        )
    return list(found.values())


def _read_alone(table: SpeedTable) -> Iterator[ProfileValue]:
    for kind, speed in table.alone.items():
        if speed:
            yield ProfileValue(ProfileSubject(kind), "iteration_s", _estimate(1.0 / speed))


def _read_pairs(table: SpeedTable) -> Iterator[ProfileValue]:
    for one, other in table.shared:
        if one.gpus != other.gpus:
            continue
        for slowed, by in ((one, other), (other, one)):
            both = table.speeds(slowed, by)
            subject = ProfileSubject(slowed, by.model, by.batch)
            if both is not None:
                yield ProfileValue(subject, "fits", Estimate(float(all(both)), 0.0, Source.IMPORTED))
            if (xi := table.slowdown(slowed, by)) is not None:
                yield ProfileValue(subject, "xi", _estimate(max(xi, 1.0)))


def _estimate(value: float) -> Estimate:
    return Estimate(value, ERROR_RATIO * value, Source.IMPORTED)
