"""What ``sodactl pools`` found and did, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from slurm_soda.daemon.pools.pool_plan import PoolPlan
from slurm_soda.daemon.pools.prerequisites import PoolObstacle
from slurm_soda.policies.pools.layout.partitions import describe_node_class
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.pools.partition_settings import PartitionChange, include_text, list_foreign_changes
from slurm_soda.slurm_ext.pools.pool_installer import PoolChangeOutcome
from slurm_soda.slurm_ext.pools.pools_record import PoolsRecord, shares_document
from slurm_soda.slurm_ext.pools.scontrol_partitions import SlurmPartition
from slurm_soda.sodactl.output import Document


def plan_document(found: PoolPlan) -> Document:
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


def partition_change_documents(todo: Sequence[PartitionChange]) -> list[Document]:
    """Steps, each with the call that an admin would type."""
    return [
        {
            "verb": step.verb,
            "partition": step.name,
            "new": dict(step.settings),
            "old": dict(step.before),
            "command": step.command,
        }
        for step in todo
    ]


def outcome_document(done: PoolChangeOutcome) -> Document:
    """What was done."""
    return {
        "steps": partition_change_documents(done.steps),
        "moved": list(done.moved),
        "leaving": list(done.leaving),
        "problems": list(done.problems),
        "record_removed": done.record_removed,
    }


def no_pools_document() -> Document:
    """The status without pools."""
    return {
        "phase": "none",
        "changed_s": None,
        "by": None,
        "divides": [],
        "shares": [],
        "partitions": [],
        "changed": {},
        "missing": [],
        "leaving": [],
        "obstacles": [],
    }


def status_document(
    record: PoolsRecord,
    present: Mapping[str, SlurmPartition],
    jobs: Sequence[SlurmJob],
    obstacles: Sequence[PoolObstacle],
) -> Document:
    """The pools in force beside what Slurm shows now."""
    running = Counter(job.partition for job in jobs if job.state in ("RUNNING", "COMPLETING"))
    waiting = Counter(name for job in jobs if job.state == "PENDING" for name in job.partition.split(","))
    cores = Counter[str]()
    for job in jobs:
        if job.state == "RUNNING":
            cores[job.partition] += job.cpus
    changed = {
        name: found
        for name, shown in record.shown.items()
        if name in present and (found := list_foreign_changes(shown, present[name].fields))
    }
    return {
        "phase": record.phase,
        "changed_s": record.changed_s,
        "by": record.by,
        "divides": list(record.bases),
        "shares": shares_document(record.shares),
        "partitions": [
            {
                "name": part.name,
                "base": part.base,
                "kind": part.kind.value,
                "borrowing": part.borrowing,
                "class": describe_node_class(part.node_class),
                "nodes": list(part.nodes),
                "cores_per_node": part.most_cores,
                "tier": part.tier,
                "running_jobs": running[part.name],
                "cores_in_use": cores[part.name],
                "waiting_jobs": waiting[part.name],
            }
            for part in record.table
        ],
        "changed": changed,
        "missing": [name for name in record.sent if name not in present],
        "leaving": list(record.leaving),
        "obstacles": [asdict(obstacle) for obstacle in obstacles],
    }
