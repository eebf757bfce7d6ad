"""Whose jobs may share GPUs, and how."""

from __future__ import annotations

from pydantic import Field, ValidationInfo, field_validator

from slurm_soda.daemon.settings.section import DAY_S, Section
from slurm_soda.slurm_ext.read.slurm_values import SHARED_GPU_GRES


class SharingSettings(Section):
    """``[sharing]``: jobs that share GPUs. With mode ``advise`` it is shown what would share."""

    partitions: list[str] = Field(default_factory=list)
    """Partitions whose jobs may share GPUs; none: nobody's."""
    consent_by_default: bool = False
    """Whether a job consents that does not say ``--soda-share``."""
    different_users: list[str] = Field(default_factory=list)
    """Of these partitions, those whose jobs may be on a GPU with jobs of other users; none: users share with themselves."""
    gres: str = Field(default=SHARED_GPU_GRES, pattern=r"^[A-Za-z][A-Za-z0-9_]{0,31}$")
    """The generic resource that names the devices of GPUs a second time, with one type for each (``g0`` for GPU 0)."""
    start_within_s: float = Field(default=30.0, ge=1, le=DAY_S)
    """A guest that has not started after so long is given its own request back."""
    max_slowdown: float | None = Field(default=None, ge=1)
    """How many times as slow as alone a job that shares may be whose owner did not say; ``None``: any number."""
    mps: bool = False
    """Jobs that share a GPU run under MPS, as ``sharing.conf`` on the nodes says; else they take turns on it."""

    @field_validator("different_users")
    @classmethod
    def _share_at_all(cls, names: list[str], info: ValidationInfo) -> list[str]:
        if set(names) - set(info.data.get("partitions", names)):
            raise ValueError("partitions that sharing.partitions names too")
        return names

    @field_validator("gres")
    @classmethod
    def _is_not_gpu(cls, gres: str) -> str:
        if gres in ("gpu", "mps", "shard"):
            raise ValueError("the name of a resource of its own, such as sharedgpu")
        return gres
