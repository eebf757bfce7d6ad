"""Where jobs are in pools, and who borrows what."""

from __future__ import annotations

from pydantic import Field

from slurm_soda.daemon.settings.section import PathOrNone, Section
from slurm_soda.slurm_ext.pools.routes_file import GpuLending


class PoolSettings(Section):
    """``[pools]``: jobs in pools (SODA, Section V-C), where ``sodactl pools apply`` has created them."""

    max_aborts: int = Field(default=3, ge=0)
    """A job that gave back what it had borrowed so often borrows no more."""
    reserve_after_s: float = Field(default=600.0, ge=0, allow_inf_nan=True)
    """Slurm may reserve whole nodes for the next GPU job of a pool once it has waited so long."""
    partitions: list[str] = Field(default_factory=list)
    """Partitions that are divided; none: the default partition."""
    gpu_lending: GpuLending = "checkpoint"
    """GPU jobs that may borrow GPUs: those that checkpoint at SIGTERM, all that may be requeued, or none."""
    include_path: PathOrNone = ""
    """The file with pool partitions that slurm.conf includes; empty: ``soda-pools.conf`` beside it."""
    history_days: float = Field(default=28.0, gt=0, le=3660)
    """Shares are derived from jobs that ran so lately."""
    rederive_s: float = Field(default=86_400.0, ge=0)
    """An enforcing sodad derives the shares anew this often, once pools are applied; 0: never."""
