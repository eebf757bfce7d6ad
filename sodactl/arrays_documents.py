"""What ``sodactl arrays`` found and did, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from slurm_soda.daemon.arrays.planning import ArrayPlan
from slurm_soda.daemon.arrays.readiness import Obstacle
from slurm_soda.policies.arrays.layout import described
from slurm_soda.slurm_ext.arranging import Outcome
from slurm_soda.slurm_ext.arrays import ArraysRecord, shares_document
from slurm_soda.slurm_ext.cli.partitions import PartitionRecord
from slurm_soda.slurm_ext.client import JobRecord
from slurm_soda.slurm_ext.partitions import Step, differences, include_text
from slurm_soda.sodactl.output import Document


def plan(found: ArrayPlan) -> Document:
    """A plan, without its steps."""
    return {
        "partitions": list(found.wanted.bases),
        "shares": [
            asdict(node_class)
            | asdict(derived.share)
            | {"nodes": list(found.nodes_of[node_class]), "reasons": list(derived.reasons)}
            for node_class, derived in found.derived.items()
        ],
        "obstacles": [asdict(obstacle) for obstacle in found.obstacles],
        "remarks": list(found.remarks),
        "include_path": str(found.wanted.include_path),
        "include": include_text(found.wanted.settings),
    }


def steps(todo: Sequence[Step]) -> list[Document]:
    """Steps, each with the call that an admin would type."""
    return [
        {"verb": step.verb, "partition": step.name, "new": dict(step.settings), "old": dict(step.before),
         "command": step.command}
        for step in todo
    ]  # fmt: skip


def outcome(done: Outcome) -> Document:
    """What was done."""
    return {
        "steps": steps(done.steps),
        "moved": list(done.moved),
        "leaving": list(done.leaving),
        "problems": list(done.problems),
    }


def none() -> Document:
    """The status without arrays."""
    return {"phase": "none", "changed_s": None, "by": None, "divides": [], "shares": [], "partitions": [],
            "changed": {}, "missing": [], "leaving": [], "obstacles": []}  # fmt: skip


def status(
    record: ArraysRecord,
    present: Mapping[str, PartitionRecord],
    jobs: Sequence[JobRecord],
    obstacles: Sequence[Obstacle],
) -> Document:
    """The arrays in force beside what Slurm shows now."""
    running = Counter(job.partition for job in jobs if job.state in ("RUNNING", "COMPLETING"))
    waiting = Counter(name for job in jobs if job.state == "PENDING" for name in job.partition.split(","))
    cores = Counter[str]()
    for job in jobs:
        if job.state == "RUNNING":
            cores[job.partition] += job.cpus
    changed = {
        name: found
        for name, shown in record.shown.items()
        if name in present and (found := differences(shown, present[name].fields))
    }
    return {
        "phase": record.phase,
        "changed_s": record.changed_s,
        "by": record.by,
        "divides": list(record.bases),
        "shares": shares_document(record.shares),
        "partitions": [
            {
                "name": part.name, "base": part.base, "kind": part.kind.value, "borrowing": part.borrowing,
                "class": described(part.node_class), "nodes": list(part.nodes), "cores_per_node": part.most_cores,
                "tier": part.tier, "running_jobs": running[part.name], "cores_in_use": cores[part.name],
                "waiting_jobs": waiting[part.name],
            }
            for part in record.table
        ],
        "changed": changed,
        "missing": [name for name in record.sent if name not in present],
        "leaving": list(record.leaving),
        "obstacles": [asdict(obstacle) for obstacle in obstacles],
    }  # fmt: skip
