"""Stands where nobody can change the cores of a running job."""

from __future__ import annotations

from slurm_soda.wire.errors import SodaError


class NoCoreSets:
    """Refuses to take cores, and has none to give back."""

    def limit(self, job_id: int, cores: int) -> None:
        """Raises SodaError: no job loses cores."""
        raise SodaError("this agent does not change the cores of running jobs")

    def restore(self, job_id: int) -> None:
        """Nothing was taken."""
