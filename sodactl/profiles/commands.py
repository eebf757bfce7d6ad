"""``sodactl profiles``: what is known about kinds of jobs, from whom and how surely; and changing it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from slurm_soda.daemon.learning.manual_edits import ProfileEditor, subject_text
from slurm_soda.daemon.learning.profile_rows import value_from_row
from slurm_soda.daemon.learning.quantities import QUANTITIES
from slurm_soda.daemon.store import kind_profiles as stored
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileSubject, ProfileValue
from slurm_soda.policies.sharing.prediction.predicted_interference import PredictedInterference
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Document
from slurm_soda.sodactl.profiles import documents, tables
from slurm_soda.sodactl.profiles.model_names import ModelName
from slurm_soda.sodactl.site_access import SiteAccess, on_site

SOURCES = {source.name.lower(): source for source in Source if source is not Source.PRIOR}
ANY_MODEL = "any"
"""In the place of a model: a value for all that have none of their own."""
MAX_COUNT = 1_000_000_000
"""As in traces: samples of a batch, GPUs of a job. The store holds no number of any size."""
_MAX_EDITS = 50


_MODEL_NAME = ModelName()


@click.group()
def profiles() -> None:
    """What is known about kinds of jobs, and from which source.

    A kind is a model (`--soda-model`) with its batch, on so many GPUs of a type. sodad learns from jobs as they end; tables
    measured elsewhere can be imported, and a value set by hand takes precedence over all others. docs/profiles.md says
    what is learned and what it is used for.

    \b
    Examples:
      sodactl profiles list               every value with its source and error
      sodactl profiles show resnet50      one model, alone and beside others
      sodactl profiles import table.json  speeds in the format of Gavel's simulator
      sodactl profiles set resnet50 xi 1.2 --with vgg16
      sodactl profiles undo               undo the last manual change
    """  # noqa: D301 - click reads the control character


@profiles.command("list")
@click.option("--source", type=click.Choice(tuple(SOURCES)), help="Only values of this source.")
@click.option("--quantity", type=click.Choice(tuple(QUANTITIES)), help="Only this quantity.")
@on_site
def list_values(site: SiteAccess, *, as_json: bool, source: str | None, quantity: str | None) -> None:
    """Every value of jobs alone, with source, error and observations.

    The last lines say how good predicted run times were.

    \b
    Examples:
      sodactl profiles list
      sodactl profiles list --source measured
    """  # noqa: D301 - click reads the control character
    values = [value for value in _read_values(site) if not value.subject.partner]
    document = {
        "values": documents.value_documents(_filter_values(values, source, quantity)),
        "run_times": documents.run_time_accuracy(site),
    }
    _print(document, as_json=as_json, draw=tables.print_values_and_accuracy)


@profiles.command()
@click.argument("model", type=_MODEL_NAME, required=False)
@click.option("--source", type=click.Choice(tuple(SOURCES)), help="Only values of this source.")
@click.option(
    "--predicted", "with_predicted", is_flag=True, help="Also what the trained model predicts for all other pairs."
)
@on_site
def pairs(site: SiteAccess, *, as_json: bool, model: str | None, source: str | None, with_predicted: bool) -> None:
    """How much jobs slow each other down on one GPU.

    XI is the iteration time of the first model beside the second one, over that alone.

    \b
    Examples:
      sodactl profiles pairs
      sodactl profiles pairs resnet50 --predicted
    """  # noqa: D301 - click reads the control character
    found = _read_values(site)
    values = [value for value in found if value.subject.partner]
    if with_predicted:
        from slurm_soda.sodactl.profiles.training import predict_pairs  # noqa: PLC0415 - brings numpy

        values += predict_pairs(_read_model(site), found)
    about = [value for value in values if model in (None, value.subject.kind.model, value.subject.partner)]
    _print(
        {"values": documents.value_documents(_filter_values(about, source, None))},
        as_json=as_json,
        draw=tables.print_values,
    )


@profiles.command()
@click.argument("model", type=_MODEL_NAME)
@on_site
def show(site: SiteAccess, *, as_json: bool, model: str) -> None:
    """All that is known about one model, alone and beside others.

    \b
    Examples:
      sodactl profiles show resnet50 --json
    """  # noqa: D301 - click reads the control character
    values = [value for value in _read_values(site) if model in (value.subject.kind.model, value.subject.partner)]
    if not values:
        raise SodaError(f"nothing is known of {model}; `sodactl profiles list` has all models")
    _print({"model": model, "values": documents.value_documents(values)}, as_json=as_json, draw=tables.print_values)


@profiles.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--gpu", metavar="NAME", help="Only this type of GPU, as the file names it.  [default: all]")
@click.option("--as", "own_name", metavar="TYPE", help="What Slurm calls that type here.  [default: as in the file]")
@on_site
def import_table(site: SiteAccess, *, as_json: bool, file: Path, gpu: str | None, own_name: str | None) -> None:
    """Import a table of speeds that were measured elsewhere.

    JSON in the format of Gavel's simulator: steps per second alone and in pairs, by GPU. Replaces what was imported before
    of the same kinds. Values that were measured here or set by hand take precedence.

    \b
    Examples:
      sodactl profiles import throughputs.json
      sodactl profiles import throughputs.json --gpu v100 --as tesla_v100
    """  # noqa: D301 - click reads the control character
    from slurm_soda.daemon.learning import gavel_tables  # noqa: PLC0415 - only here

    if own_name is not None and gpu is None:
        raise click.UsageError("--as names one type of GPU: say which with --gpu")
    values = gavel_tables.values_of_table(gavel_tables.read_gavel_table(file), gpu, own_name)
    with site.store() as store, store.write() as session:
        edit = _editor(site).take_table(session, values, str(file))
    _print_edit(edit, f"{len(values):,} values of {file}", as_json=as_json)


@profiles.command("set")
@click.argument("model", type=_MODEL_NAME)
@click.argument("quantity", type=click.Choice(tuple(QUANTITIES)))
@click.argument("value", type=float)
@click.option("--batch", type=click.IntRange(0, MAX_COUNT), default=0, show_default=True, help="Per GPU; 0: any.")
@click.option("--gpu-type", default="", metavar="TYPE", help="As Slurm calls it.  [default: none, as for untyped GPUs]")
@click.option("--gpus", type=click.IntRange(1, MAX_COUNT), default=1, show_default=True, help="Of the job.")
@click.option("--with", "partner", type=_MODEL_NAME, help="The model that shares its GPU, for xi and fits.")
@click.option(
    "--with-batch", type=click.IntRange(0, MAX_COUNT), default=0, show_default=True, help="Its batch; 0: any."
)
@click.option("--error", type=click.FloatRange(min=0.0), default=0.0, show_default=True, help="How far off it may be.")
@on_site
def set_value(
    site: SiteAccess, *, as_json: bool, model: str, quantity: str, value: float, batch: int, gpu_type: str, gpus: int,
    partner: str | None, with_batch: int, error: float,
) -> None:  # fmt: skip
    """Set one value by hand; it takes precedence over all other sources.

    QUANTITY is one of iteration_s, utilisation_ratio, memory_mib, occupancy_s, bandwidth_s, restart_s, migration_s, of a job
    alone; xi or fits, beside another one; device_mib, of the GPU, whatever the model. The MODEL any stands for all that
    have no value of their own.

    \b
    Examples:
      sodactl profiles set bert restart_s 45
      sodactl profiles set resnet50 xi 1.2 --batch 64 --gpu-type v100 --with vgg16 --with-batch 32
      sodactl profiles set any device_mib 32768 --gpu-type v100
    """  # noqa: D301 - click reads the control character
    kind = JobKind("" if QUANTITIES[quantity].of_gpu or model == ANY_MODEL else model, batch, gpu_type.lower(), gpus)
    subject = ProfileSubject(kind, partner or "", with_batch if partner else 0)
    try:
        estimate = Estimate(value, error, Source.SET)
    except PolicyError as wrong:
        raise click.UsageError(str(wrong)) from wrong
    with site.store() as store, store.write() as session:
        edit = _editor(site).set_value(session, ProfileValue(subject, quantity, estimate))
    _print_edit(edit, f"{quantity} = {value:g} of {subject_text(subject)}", as_json=as_json)


@profiles.command()
@click.argument("model", type=_MODEL_NAME)
@click.option("--source", type=click.Choice(tuple(SOURCES)), help="Only values of this source.")
@click.option("--quantity", type=click.Choice(tuple(QUANTITIES)), help="Only this quantity.")
@on_site
def forget(site: SiteAccess, *, as_json: bool, model: str, source: str | None, quantity: str | None) -> None:
    """Forget what is known about a model, alone and beside others.

    It is learned again from jobs that end later.

    \b
    Examples:
      sodactl profiles forget resnet50
      sodactl profiles forget resnet50 --source set
    """  # noqa: D301 - click reads the control character
    with site.store() as store, store.write() as session:
        edit, count = _editor(site).forget(
            session, model, quantity=quantity, source=None if source is None else SOURCES[source]
        )
    _print_edit(edit, f"forgot {count} values of {model}", as_json=as_json)


@profiles.command()
@on_site
def train(site: SiteAccess, *, as_json: bool) -> None:
    """Train the model that predicts slowdowns of unmeasured pairs.

    It learns from all slowdowns that are known here; needs the optional extra `learn`. Takes seconds to minutes.

    \b
    Examples:
      sodactl profiles train
    """  # noqa: D301 - click reads the control character
    from slurm_soda.sodactl.profiles import training  # noqa: PLC0415 - brings libraries

    document, summary = training.train_model(_read_values(site))
    with site.store() as store, store.write() as session:
        edit = _editor(site).take_model(session, document, summary)
    _print_edit(edit, f"learned from {summary}", as_json=as_json)


@profiles.command()
@click.argument("edit", type=click.IntRange(min=1), required=False)
@on_site
def undo(site: SiteAccess, *, as_json: bool, edit: int | None) -> None:
    """Undo the newest manual change; again for the one before.

    EDIT, its number, only makes sure that it is the one you mean.

    \b
    Examples:
      sodactl profiles undo
    """  # noqa: D301 - click reads the control character
    with site.store() as store, store.write() as session:
        undone = _editor(site).undo(session, edit)
        number, summary = undone.id, undone.summary
    _print_edit(number, f"taken back: {summary}", as_json=as_json)


@profiles.command()
@on_site
def edits(site: SiteAccess, *, as_json: bool) -> None:
    """The newest manual changes.

    \b
    Examples:
      sodactl profiles edits
    """  # noqa: D301 - click reads the control character
    with site.store() as store, store.read() as session:
        rows = [documents.edit_document(row) for row in stored.newest_edits(session, _MAX_EDITS)]
    _print({"edits": rows}, as_json=as_json, draw=tables.print_edits)


def _read_values(site: SiteAccess) -> list[ProfileValue]:
    with site.store() as store, store.read() as session:
        return [value_from_row(row) for row in stored.all_values(session)]


def _read_model(site: SiteAccess) -> PredictedInterference | None:
    from slurm_soda.daemon.learning.stored_profiles import read_slowdown_model  # noqa: PLC0415 - brings numpy

    with site.store() as store, store.read() as session:
        return read_slowdown_model(session)


def _filter_values(values: Iterable[ProfileValue], source: str | None, quantity: str | None) -> Iterator[ProfileValue]:
    for value in values:
        if (source is None or value.estimate.source is SOURCES[source]) and quantity in (None, value.quantity):
            yield value


def _editor(site: SiteAccess) -> ProfileEditor:
    return ProfileEditor(site.context.who(), site.now_s())


def _print_edit(edit: int, text: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json({"edit": edit, "summary": text})
    else:
        output.print_line(f"edit {edit}: {text}")


def _print(document: Document, *, as_json: bool, draw: tables.PrintDocument) -> None:
    if as_json:
        output.print_json(document)
    else:
        draw(document)
