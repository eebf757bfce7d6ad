"""Fields that several records of jobs' runs have, each with its bounds, which are the same in all of them."""

from __future__ import annotations

from slurm_soda.wire.json_fields import JsonFields

MAX_CPUS = 1_000_000
MAX_GPUS = 256
"""GPUs of one node."""
MAX_ITERATIONS = 1e12
"""Of a training; as many as ``--soda-iterations`` allows."""
MAX_SEARCHES = 1_000_000
MAX_STEPS = 64
MAX_JOB_ID = 0xFFFF_FFFF
"""Ids of a federation have the cluster's number in their upper bits."""
_MAX_RESTARTS = 1_000_000
_MAX_TIME_S = 1e11


class RunFields(JsonFields):
    """One JSON object about a run of a job. Every method reads one field.

    Raises:
        RecordError: the field is missing, of another type or out of bounds.
    """

    def job_id(self) -> int:
        """Slurm's job id."""
        return self.whole("job_id", 1, MAX_JOB_ID)

    def restart(self) -> int:
        """SLURM_RESTART_COUNT: 0 for the first run."""
        return self.whole("restart", 0, _MAX_RESTARTS)

    def start_s(self) -> int:
        """Start of the run, whole Unix seconds."""
        return self.whole("start_s", 0, int(_MAX_TIME_S))

    def unix_s(self, key: str) -> float:
        """A time, Unix seconds."""
        return self.number(key, 0, _MAX_TIME_S)

    def cpus(self, key: str, least: int = 1) -> int:
        """A number of CPUs of one node."""
        return self.whole(key, least, MAX_CPUS)

    def ratio(self, key: str) -> float:
        """A number from 0 to 1."""
        return self.number(key, 0, 1)

    def search(self) -> int:
        """Number of a search for the best number of cores, from 0."""
        return self.whole("search", 0, MAX_SEARCHES)

    def step(self) -> int:
        """Number of a measurement in a search, from 0."""
        return self.whole("step", 0, MAX_STEPS)
