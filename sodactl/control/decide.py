"""``sodactl decide``: what a policy says of a snapshot in a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import click

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.registry.catalog import make_policy, policy_names
from slurm_soda.policies.services.service import Device
from slurm_soda.policies.snapshot import ClusterSnapshot, JobTable
from slurm_soda.policies.snapshot_file.document import SnapshotDump, parameters_of, plan_bytes, policy_document
from slurm_soda.policies.snapshot_file.encoding import codec_of
from slurm_soda.sodactl import output
from slurm_soda.sodactl.control.snapshot_files import read_file
from slurm_soda.sodactl.main import EXIT_FAILED
from slurm_soda.sodactl.output import Column, Document
from slurm_soda.sodactl.simulation.inputs.policy_parameters import choose_policies

SHOWN = 20
_MOST_IN_A_LIST = 8
_LARGE = 10_000
_SHOWN_APART = ("id", "is", "job_id", "reason")
_RIGHT = ("job", "GPUs", "queue")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--policy", type=click.Choice(policy_names()), metavar="NAME", help="Instead of the file's own policy.")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Another parameter of the policy; repeatable."
)
@click.option(
    "--limit", default=SHOWN, show_default=True, type=click.IntRange(min=0), help="Lines of each list; 0: all."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def decide(*, file: Path, policy: str | None, assignments: tuple[str, ...], limit: int, as_json: bool) -> int:
    """Repeat a decision from a file, without Slurm or sodad.

    FILE is what `sodactl snapshot dump` wrote. If the file's own policy decides something else than sodad did, the command
    says so and exits with status 1.

    \b
    Examples:
      sodactl decide site.json.gz
      sodactl decide site.json.gz --policy fifo
      sodactl decide site.json.gz --set min_run_s=600 --json | jq .actions
    """  # noqa: D301 - click reads the control character
    dump = read_file(file)
    chosen = _chosen(dump, policy, assignments)
    plan = chosen.decide()
    document = _document(file, chosen, plan)
    if policy is None and not assignments and dump.plan is not None:
        document["same_as_recorded"] = plan_bytes(plan) == plan_bytes(dump.plan)
    if as_json:
        output.print_json(document)
    else:
        _draw(document, limit or len(plan.order) + len(plan.actions))
    if document["same_as_recorded"] is False:
        output.warn(f"{file} has another plan, as sodad {chosen.made_by} recorded it; this is not what sodad decided")
        return EXIT_FAILED
    return 0


def _chosen(dump: SnapshotDump, policy: str | None, assignments: tuple[str, ...]) -> SnapshotDump:
    """The dump with the policy that was asked for; of the file's own, parameters that nobody sets stay."""
    if policy is None and not assignments:
        return dump
    (choice,) = choose_policies([policy or dump.policy.name], assignments)
    own = parameters_of(dump.policy) if choice.name == dump.policy.name else {}
    return replace(dump, policy=make_policy(choice.name, {**own, **choice.parameters}))


def _document(file: Path, dump: SnapshotDump, plan: Plan) -> Document:
    policy = policy_document(dump.policy)
    return {
        "file": str(file),
        "now_s": dump.snapshot.now_s,
        "stand_ins": dump.stand_ins,
        "made_by": dump.made_by,
        "mode": dump.mode,
        "policy": policy["name"],
        "parameters": policy["parameters"],
        "facts": dict(plan.facts),
        "order": [_place(dump.snapshot.jobs, plan, job_id) for job_id in plan.order.tolist()],
        "starts": [_start(dump.snapshot, plan, job_id) for job_id in plan.starts.tolist()],
        "actions": [{"id": action.id, **told} for action, told in zip(plan.actions, _actions(plan), strict=True)],
        "plan_sha256": sha256(plan_bytes(plan)).hexdigest(),
        "same_as_recorded": None,
    }


def _place(jobs: JobTable, plan: Plan, job_id: int) -> Document:
    view, note = jobs.view(jobs.row(job_id)), plan.notes.of(job_id)
    return {
        "job_id": job_id,
        "user": view.user,
        "partition": view.partition,
        "gpus": view.gpus,
        "cpus": view.cpus,
        "verdict": note.verdict.name,
        "queue": note.queue + 1,
        "score": note.score,
        "score_name": note.score_name,
    }


def _start(snapshot: ClusterSnapshot, plan: Plan, job_id: int) -> Document:
    pieces = [
        {
            "node": snapshot.nodes.name[piece.node],
            "gpus": piece.gpus,
            "cpus": piece.cpus,
            "memory_mib": piece.memory_mib,
        }
        for piece in plan.places.get(job_id, ())
    ]
    return {"job_id": job_id, "places": pieces}


def _actions(plan: Plan) -> list[Document]:
    told: list[Document] = codec_of(Plan).encode(plan)["actions"]
    return told


def _draw(document: Document, most: int) -> None:
    names = "stand-ins for names" if document["stand_ins"] else "names as they are"
    output.print_line(
        f"{document['file']}: {output.format_instant(document['now_s'])}, mode {document['mode']}, {names}"
    )
    values = ", ".join(f"{name} {_text(value)}" for name, value in document["parameters"].items())
    output.print_line(f"policy {document['policy']}{f': {values}' if values else ''}")
    _draw_list(
        "order", document["order"], most, ("job", "user", "partition", "GPUs", "verdict", "queue", "score"), _ordered
    )
    _draw_list("starts", document["starts"], most, ("job", "on"), _placed)
    _draw_list("actions", document["actions"], most, ("action", "what", "reason"), _acted)
    if document["same_as_recorded"]:
        output.print_line()
        output.print_line("the same as sodad decided")


def _draw_list(
    title: str, rows: list[Document], most: int, columns: tuple[str, ...], cells: Callable[[Document], list[str]]
) -> None:
    output.print_line()
    output.print_line(f"{title}: {len(rows) or 'none'}")
    if not rows:
        return
    output.print_table([Column(name, right=name in _RIGHT) for name in columns], [cells(row) for row in rows[:most]])
    if len(rows) > most:
        output.print_line(f"… and {len(rows) - most} more (--limit 0 shows all)")


def _ordered(row: Document) -> list[str]:
    verdict = row["verdict"].lower().replace("_", " ")
    score = f"{row['score']:{'.0f' if abs(row['score']) >= _LARGE else '.4g'}} {row['score_name']}"
    return [str(row["job_id"]), row["user"], row["partition"], str(row["gpus"]), verdict, str(row["queue"]), score]


def _placed(row: Document) -> list[str]:
    return [
        str(row["job_id"]),
        ", ".join(f"{one['node']} ({output.format_count(one['gpus'], 'GPU')})" for one in row["places"]) or "-",
    ]


def _acted(row: Document) -> list[str]:
    if row["is"] == "ScaleService":
        on = "CPU cores" if row["device"] == Device.CPU else f"{row['gpu_type']} GPUs".lstrip()
        return [row["id"], f"{row['instances']} on {on}{', first' * row['first']}", row["reason"]]
    told = {name: value for name, value in row.items() if name not in _SHOWN_APART and value}
    return [row["id"], ", ".join(f"{name} {_text(value)}" for name, value in told.items()), row["reason"]]


def _text(value: Any) -> str:
    """A value of JSON for people; long lists are cut."""
    if isinstance(value, list):
        more = f" and {len(value) - _MOST_IN_A_LIST} more" if len(value) > _MOST_IN_A_LIST else ""
        return " ".join(_text(each) for each in value[:_MOST_IN_A_LIST]) + more or "none"
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name} {_text(each)}" for name, each in value.items()) + ")"
    return f"{value:g}" if isinstance(value, float) else str(value)
