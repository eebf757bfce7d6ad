"""``sodactl quarantine``: which programs do not share GPUs with each other after a fault under MPS, and lifting that."""

from __future__ import annotations

from collections.abc import Sequence

import click

from slurm_soda.daemon.store import faulted_pairs as stored
from slurm_soda.daemon.store.tables.sharing import FaultedPairRow
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Column, Document
from slurm_soda.sodactl.simulation.inputs.parameter_types import MOST_ROWS
from slurm_soda.sodactl.site_access import SiteAccess, on_site, wake_daemon


@click.command()
@click.option(
    "--lift", "fault_id", type=click.IntRange(1, MOST_ROWS), help="Let the programs of this fault share again."
)
@on_site
def quarantine(site: SiteAccess, *, as_json: bool, fault_id: int | None) -> None:
    """Which programs a fault under MPS keeps apart.

    For root and SlurmUser, on the controller. A fatal fault of one program under NVIDIA MPS ends those that share a GPU with
    it, and nobody can tell whose it was. So the two jobs never share again, and jobs of the same two owners and models do
    not until the quarantine is lifted here, or the store forgets the fault (store.keep_days).

    \b
    Examples:
      sodactl quarantine            every fault that the store knows
      sodactl quarantine --lift 3   the program is mended: let jobs like those of fault 3 share again
    """  # noqa: D301 - click reads the control character
    with site.store() as store:
        if fault_id is not None:
            with store.write() as session:
                row = session.get(FaultedPairRow, fault_id)
                if row is None:
                    raise SodaError(f"there is no fault {fault_id}; `sodactl quarantine` lists them")
                stored.lift(session, row, site.context.who(), site.now_s())
        with store.read() as session:
            rows = [_document(row) for row in stored.faulted_pairs(session)]
    if fault_id is not None:
        wake_daemon(site)
    if as_json:
        output.print_json({"faults": rows})
    else:
        _draw(rows)


def _document(row: FaultedPairRow) -> Document:
    return {
        "id": row.id,
        "at_s": row.at_s,
        "node": row.node,
        "jobs": [row.one, row.other],
        "programs": [{"owner": row.owner, "model": row.model}, {"owner": row.other_owner, "model": row.other_model}],
        "lifted_s": row.lifted_s,
        "lifted_by": row.lifted_by,
    }


def _draw(rows: Sequence[Document]) -> None:
    if not rows:
        output.print_line("no fault under MPS is known")
        return
    columns = [
        Column("fault", right=True),
        Column("seen"),
        Column("node"),
        Column("jobs"),
        Column("programs"),
        Column("share"),
    ]
    output.print_table(columns, [_cells(row) for row in rows])


def _cells(row: Document) -> list[str]:
    lifted = row["lifted_s"] is not None
    return [
        str(row["id"]),
        output.format_instant(row["at_s"]),
        row["node"],
        ", ".join(map(str, row["jobs"])),
        " and ".join(f"{one['owner'] or '?'}'s {one['model'] or '?'}" for one in row["programs"]),
        f"again, by {row['lifted_by']}" if lifted else "no",
    ]
