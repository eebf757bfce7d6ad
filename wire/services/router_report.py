"""What a service's router reports to sodad each second or two, and what sodad answers (``POST /v1/services/report``)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from slurm_soda.wire.json_fields import JsonFields, decode_json
from slurm_soda.wire.services.instance_file import STATES
from slurm_soda.wire.services.service_file import LONGEST_FILE
from slurm_soda.wire.services.service_profile import DEVICES, ServiceProfile

REPORT_PATH = "/v1/services/report"
LONGEST_REPORT = 512 * 1024
MOST_INSTANCES = 1000


@dataclass(frozen=True, slots=True)
class ReportedInstance:
    """One instance as the router sees it: its own words, and whether it answers the router's checks."""

    job_id: int
    device: str
    state: str
    """``ready`` only if the router's own check says so too."""
    since_s: float
    host: str = ""
    port: int = 0
    gpu_type: str = ""
    queries: int = 0
    """In flight."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RouterReport:
    """Load and latency of the last interval, and the instances. Who sent it (MUNGE) is the service's owner."""

    service_file: str
    """The whole text of the service's file."""
    at_s: float
    """Unix seconds."""
    load_qps: float
    """Queries that came in, a second."""
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    p99_ms: float = 0.0
    queries: int = 0
    """Answered in the interval."""
    errors: int = 0
    """Of them, not answered by an instance."""
    violations: int = 0
    """Of them, answered later than the target."""
    profile: ServiceProfile | None = None
    instances: tuple[ReportedInstance, ...] = ()
    endpoint: str = ""
    """Address at which the router serves."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, text: bytes) -> RouterReport:
        """Read a report.

        Raises:
            RecordError: not a report; names the field, the value and what is allowed.
        """
        what = "router's report"
        data = decode_json(text, LONGEST_REPORT, what)
        fields = JsonFields(what, data)
        profile = data.get("profile") if isinstance(data, dict) else None
        return cls(
            service_file=fields.document("service_file", LONGEST_FILE),
            at_s=fields.number("at_s"),
            load_qps=fields.number("load_qps", 0.0, 1e9),
            p50_ms=fields.number("p50_ms", default=0.0),
            p95_ms=fields.number("p95_ms", default=0.0),
            p99_ms=fields.number("p99_ms", default=0.0),
            queries=fields.whole("queries", 0, 10**12, 0),
            errors=fields.whole("errors", 0, 10**12, 0),
            violations=fields.whole("violations", 0, 10**12, 0),
            profile=None if profile is None else ServiceProfile.from_dict(profile, f"{what} profile"),
            instances=tuple(_instance(one, what) for one in fields.objects("instances", MOST_INSTANCES)),
            endpoint=fields.text("endpoint", 300, ""),
        )


def _instance(data: object, what: str) -> ReportedInstance:
    fields = JsonFields(f"{what} instances", data)
    return ReportedInstance(
        job_id=fields.whole("job_id", 1, 2**32),
        device=fields.choice("device", DEVICES),
        state=fields.choice("state", STATES),
        since_s=fields.number("since_s"),
        host=fields.text("host", 255, ""),
        port=fields.whole("port", 0, 65535, 0),
        gpu_type=fields.text("gpu_type", 64, ""),
        queries=fields.whole("queries", 0, 10**9, 0),
        reason=fields.text("reason", 500, ""),
    )


@dataclass(frozen=True, slots=True)
class RouterAnswer:
    """What sodad wants of the router."""

    drain: tuple[int, ...] = ()
    """Job ids of instances that get no new queries and leave once they have answered what they had."""
    cpu: int = 0
    """Instances on CPU cores that shall run."""
    gpu: int = 0
    """Instances on GPUs that shall run."""
    reason: str = ""
    """Why, for people."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, text: bytes) -> RouterAnswer:
        """Read an answer.

        Raises:
            RecordError: not an answer.
        """
        fields = JsonFields("sodad's answer", decode_json(text, LONGEST_REPORT, "sodad's answer"))
        return cls(
            drain=fields.wholes("drain", MOST_INSTANCES, 1, 2**32),
            cpu=fields.whole("cpu", 0, MOST_INSTANCES, 0),
            gpu=fields.whole("gpu", 0, MOST_INSTANCES, 0),
            reason=fields.text("reason", 1000, ""),
        )
