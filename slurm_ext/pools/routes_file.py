"""The pools in force as lines that job_submit.lua reads: everything that its routing depends on, and nothing to execute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slurm_soda.policies.pools.layout.partitions import PoolTable
from slurm_soda.slurm_ext.errors import SlurmError

ROUTES_NAME = "pools.routes"
"""Name of the file in the state directory; soda.lua has its path as ``routes_path``."""
ROUTES_HEADER = "soda-pools 1"
ROUTES_END = "end"
"""Last line: a file without it was cut short and is not used."""
ROUTES_MAX_BYTES = 32 * 1024
"""job_submit.lua reads the file at every submission, and no more of it than this."""

GpuLending = Literal["checkpoint", "requeue", "never"]
"""Which GPU jobs may borrow: those that checkpoint at SIGTERM in time, all that Slurm may requeue, or none."""


@dataclass(frozen=True, slots=True)
class RoutingRules:
    """What decides, beside the table, whether a job may borrow."""

    gpu_lending: GpuLending = "checkpoint"
    kill_wait_s: int = 30
    """Slurm's KillWait: time between SIGTERM and SIGKILL, which is all that a borrower gets to save its state."""
    job_requeue: bool = True
    """Slurm's JobRequeue: whether a job that does not say may be requeued."""


def render_routes(table: PoolTable, rules: RoutingRules) -> str:
    """The file's text.

    Raises:
        SlurmError: it is longer than job_submit.lua reads.
    """
    lines = [
        ROUTES_HEADER,
        f"rules gpu_lending={rules.gpu_lending} kill_wait_s={rules.kill_wait_s} job_requeue={int(rules.job_requeue)}",
    ]
    lines += [
        f"part name={part.name} base={part.base} kind={part.kind.value} borrowing={int(part.borrowing)}"
        f" nodes={len(part.nodes)} cores={part.most_cores} cpus={part.node_class.cpus} gpus={part.node_class.gpus}"
        f" type={part.node_class.gpu_type}"
        for part in table
    ]
    text = "\n".join([*lines, ROUTES_END, ""])
    if (length := len(text.encode())) > ROUTES_MAX_BYTES:
        raise SlurmError(
            f"{len(table)} pool partitions take {length} bytes in {ROUTES_NAME}, and job_submit.lua reads"
            f" {ROUTES_MAX_BYTES}: divide fewer partitions, or ones with fewer kinds of nodes"
        )
    return text
