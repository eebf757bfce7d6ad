"""``sodactl pools`` for people."""

from __future__ import annotations

from slurm_soda.policies.pools.kinds import NodeClass
from slurm_soda.policies.pools.layout.partitions import describe_node_class
from slurm_soda.slurm_ext.read.hostlist import compress_hosts
from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Column, Document


def print_plan(document: Document) -> None:
    """Shares, then what stands in the way, then the calls and the file."""
    for line in document["warnings"]:
        output.warn(line)
    output.print_line(f"divides {', '.join(document['partitions'])}, whose own settings stay as they are")
    _shares(document)
    if document["obstacles"]:
        output.print_line()
        output.print_line("fix first:")
        for obstacle in document["obstacles"]:
            output.print_line(f"  {obstacle['check']}: {obstacle['found']}")
            output.print_line(f"    {obstacle['remedy']}")
    if document["refused"]:
        output.print_line()
        output.print_line(f"refused: {document['refused']}")
    output.print_line()
    _steps(document, "nothing to change: Slurm is as wanted")
    if document["steps"]:
        output.print_line()
        output.print_line(f"and into {document['include_path']}, which slurm.conf includes:")
        for line in document["include"].splitlines():
            if not line.startswith("#"):
                output.print_line(f"  {line}")
    for remark in document["remarks"]:
        output.warn(remark)


def print_outcome(document: Document) -> None:
    """What was done."""
    for line in document["warnings"]:
        output.warn(line)
    gone = "Slurm had none of the pool partitions any more; the routes and the record of the pools were removed"
    _steps(document, gone if document["record_removed"] else "nothing to change")
    if document["moved"]:
        output.print_line(f"{len(document['moved'])} waiting jobs were moved to other partitions")
    if document["leaving"]:
        output.print_line(
            f"jobs still run in {', '.join(document['leaving'])}: no more come; run `sodactl pools revert` again when they "
            "have ended"
        )
    for line in document["problems"]:
        output.warn(line)


def print_status(document: Document) -> None:
    """What is in force."""
    if document["phase"] == "none":
        output.print_line("no pools; `sodactl pools plan` shows what there could be")
        return
    by = f"by {document['by']} at {output.format_instant(document['changed_s'])}"
    output.print_line(f"{document['phase']} {by}; divides {', '.join(document['divides'])}")
    output.print_line()
    columns = [
        Column("partition"),
        Column("nodes"),
        Column("cores/node", right=True),
        Column("borrows"),
        Column("running", right=True),
        Column("cores used", right=True),
        Column("waiting", right=True),
    ]
    rows = [
        (
            part["name"],
            compress_hosts(part["nodes"]),
            str(part["cores_per_node"]),
            "yes" if part["borrowing"] else "",
            str(part["running_jobs"]),
            str(part["cores_in_use"]),
            str(part["waiting_jobs"]),
        )
        for part in document["partitions"]
    ]
    output.print_table(columns, rows)
    for name, changes in document["changed"].items():
        output.warn(f"{name} was changed by somebody else: {'; '.join(changes)}")
    for name in document["missing"]:
        output.warn(f"{name} is not in Slurm any more; `sodactl pools apply` makes it again")
    for obstacle in document["obstacles"]:
        output.warn(f"{obstacle['check']}: {obstacle['found']}; {obstacle['remedy']}")
    if document["phase"] == "reverting":
        output.warn(
            f"jobs still run in {', '.join(document['leaving'])}; run `sodactl pools revert` when they have ended"
        )
    elif document["leaving"]:
        output.warn(
            f"{', '.join(document['leaving'])} goes at the next `sodactl pools apply` after its last job has ended"
        )
    if document["phase"] == "applying":
        output.warn("a change was cut short; run `sodactl pools apply` again, or `sodactl pools revert`")


def _shares(document: Document) -> None:
    output.print_line()
    columns = [
        Column("nodes"),
        Column("each"),
        Column("CPU jobs' cores", right=True),
        Column("large nodes", right=True),
        Column("why"),
    ]
    rows = [
        (
            compress_hosts(share["nodes"]),
            describe_node_class(NodeClass(share["gpu_type"], share["gpus"], share["cpus"])),
            f"{share['cpu_cores']} of {share['cpus']}",
            f"{share['large_nodes']} of {len(share['nodes'])}",
            "; ".join(share["reasons"]),
        )
        for share in document["shares"]
    ]
    output.print_table(columns, rows)


def _steps(document: Document, otherwise: str) -> None:
    if not document["steps"]:
        output.print_line(otherwise)
    for step in document["steps"]:
        output.print_line(step["command"])
