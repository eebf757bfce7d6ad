"""What can go wrong while a job's cores are set."""

from __future__ import annotations

from slurm_soda.wire.errors import SodaError


class CoresError(SodaError):
    """A job's cores cannot be read or set; names the job or path, what the kernel said, and what to do."""


class JobGoneError(CoresError):
    """The job, or its group, ended meanwhile; nothing of it has to be taken back."""
