"""Prints OJPP's evaluation: ``python -m benchmarks.ojpp`` (some ten minutes of two cores).

With ``--pairs FILE`` (Gavel's format) and ``--gpu NAME``: devices saved on full-size trainings instead.
"""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.ojpp.evaluation import evaluate_all
from benchmarks.ojpp.measured import WAYS, rows
from benchmarks.reproduce.document import table
from benchmarks.reproduce.ojpp import cases, tables


@click.command()
@click.option("--pairs", type=click.Path(path_type=Path, exists=True), help="Pair table in Gavel's format.")
@click.option("--gpu", default="v100", show_default=True, help="GPU of that table.")
def main(pairs: Path | None, gpu: str) -> None:
    """OJPP's evaluation, as Markdown."""
    if pairs is not None:
        click.echo("\n".join(table(["theta, theta'", *WAYS], rows(pairs, gpu))))
        return
    written = tables(evaluate_all(cases()))
    click.echo("\n".join([*written.lines, *(claim.text for claim in written.claims)]))


if __name__ == "__main__":
    main()
