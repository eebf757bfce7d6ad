"""What an instance says of itself: a file in the service's folder, written by ``services/slurm_soda_serve.py``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from slurm_soda.wire.json_fields import JsonFields
from slurm_soda.wire.services.service_profile import DEVICES

INSTANCES = "instances"
"""Directory of the files, in ``FOLDER/SERVICE``: ``HOST.JOBID.json``; ``HOST.JOBID.drain`` asks it to drain."""
STATES = ("starting", "ready", "draining", "failed")
LONGEST_FILE = 16 * 1024


@dataclass(frozen=True, slots=True)
class InstanceFile:
    """One instance, by its own words."""

    service: str
    job_id: int
    """Slurm's id of the task's own job (``SLURM_JOB_ID``)."""
    host: str
    """Name or address at which its node is reached."""
    port: int
    device: str
    """One of :data:`~.service_profile.DEVICES`."""
    state: str
    """One of :data:`STATES`."""
    since_s: float
    """When it came to that state, Unix seconds."""
    heartbeat_s: float
    """When the file was last written; every 2 seconds."""
    array_job_id: int = 0
    task: int = 0
    gpu_type: str = ""
    batch: int = 0
    cores: int = 0
    restarts: int = 0
    """How often its command was started again in this job."""
    reason: str = ""
    """Of a failed one: what its command did."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: object, what: str) -> InstanceFile:
        """Read what an instance wrote.

        Raises:
            RecordError: a field is missing or out of range; names it, the value and what is allowed.
        """
        fields = JsonFields(what, data)
        return cls(
            service=fields.text("service", 40),
            job_id=fields.whole("job_id", 1, 2**32),
            host=fields.name("host"),
            port=fields.whole("port", 1, 65535),
            device=fields.choice("device", DEVICES),
            state=fields.choice("state", STATES),
            since_s=fields.number("since_s"),
            heartbeat_s=fields.number("heartbeat_s"),
            array_job_id=fields.whole("array_job_id", 0, 2**32, 0),
            task=fields.whole("task", 0, 2**32, 0),
            gpu_type=fields.text("gpu_type", 64, ""),
            batch=fields.whole("batch", 0, 100_000, 0),
            cores=fields.whole("cores", 0, 4096, 0),
            restarts=fields.whole("restarts", 0, 10**9, 0),
            reason=fields.text("reason", 500, ""),
        )
