"""``sodactl policy`` and ``sodactl mode``: what an admin sets at run time; a running sodad follows at its next cycle."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from slurm_soda.daemon.settings.config_file import CONFIG_FILE
from slurm_soda.daemon.settings.settings import MODES
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.store_errors import StoreMissingError
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.registry import catalog
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl import output
from slurm_soda.sodactl.live.view_source import describe_absence, find_stall, is_daemon_alive
from slurm_soda.sodactl.output import Column, Document
from slurm_soda.sodactl.simulation.inputs.parameter_types import POLICY
from slurm_soda.sodactl.site_access import SiteAccess, on_site, wake_daemon

_MODE_MEANINGS = {
    "observe": "reads Slurm and records, decides nothing, changes nothing",
    "advise": "decides and shows (sodactl jobs, explain), changes nothing",
    "enforce": "decides and changes Slurm",
}


@click.command()
@click.argument("new", type=click.Choice(MODES), required=False, metavar="[observe|advise|enforce]")
@on_site
def mode(site: SiteAccess, *, as_json: bool, new: str | None) -> None:
    """Show or set the mode: observe, advise or enforce.

    The setting overrides the configuration file, survives a restart of sodad, and is followed from its next cycle on.
    Nothing that was changed before is taken back: see `sodactl release-all`.

    \b
    Examples:
      sodactl mode              show it
      sodactl mode advise       decide and show, but change nothing
      sodactl mode enforce      let slurm-soda order and preempt
    """  # noqa: D301 - click reads the control character
    document, warning = _show_or_set(site, "mode", new, site.settings.mode)
    if as_json:
        output.print_json({**document, "modes": list(MODES)})
        return
    output.print_line(f"mode {document['value']}: {_MODE_MEANINGS.get(document['value'], 'unknown to this version')}")
    _print_source(document, warning)


_DESCRIPTION = (("what it does", "summary"), ("for whom", "for_whom"), ("source", "source"))
_LIST = "list"
"""In place of a policy's name: all of them."""


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    listing = [CompletionItem(_LIST)] if _LIST.startswith(incomplete) else []
    return [*listing, *POLICY.shell_complete(context, parameter, incomplete)]


@click.command()
@click.argument("word", metavar=f"[{_LIST}|NAME]", required=False, shell_complete=_complete)
@on_site
def policy(site: SiteAccess, *, as_json: bool, word: str | None) -> None:
    """Show, list or set the scheduling policy.

    The setting overrides the configuration file's `policy.name`, survives a restart of sodad, and is followed from its next
    cycle on.

    \b
    Examples:
      sodactl policy                    show it
      sodactl policy list               what there is, and for whom
      sodactl policy tiresias-gittins   set it
    """  # noqa: D301 - click reads the control character
    new = None if word == _LIST else word
    try:
        if new is not None:
            catalog.find_entry(new)
    except PolicyError as error:
        raise SodaError(str(error)) from error
    document, warning = _show_or_set(site, "policy", new, site.settings.policy.name)
    document |= {"parameters": _parameters(document["value"], site), "policies": catalog.describe_policies()}
    _warn_of_refusal(site)
    if as_json:
        output.print_json(document)
    elif word == _LIST:
        _draw_list(document)
    else:
        output.print_line(f"policy {document['value']}")
        _print_source(document, warning)
        _draw_description(document)


def _warn_of_refusal(site: SiteAccess) -> None:
    """Say what keeps sodad from starting: a policy or parameter that is not allowed; else it would be shown as in force."""
    configured = site.settings.policy
    try:
        catalog.make_policy(configured.name, configured.parameters)
    except PolicyError as error:
        path = site.config_path or CONFIG_FILE
        output.warn(f"{path}: policy: {error}; sodad does not start before this is corrected")


def _parameters(name: str, site: SiteAccess) -> Document:
    """Parameters in force: the configured ones belong to the configured policy, another one has its defaults."""
    own: list[Document] = next(
        (entry["parameters"] for entry in catalog.describe_policies() if entry["name"] == name), []
    )
    values = {parameter["name"]: parameter["default"] for parameter in own}
    return values | (site.settings.policy.parameters if name == site.settings.policy.name else {})


def _draw_list(document: Document) -> None:
    rows = [
        ("*" if entry["name"] == document["value"] else "", entry["name"], entry["for_whom"])
        for entry in document["policies"]
    ]
    output.print_table([Column(""), Column("policy"), Column("for whom")], rows)


def _draw_description(document: Document) -> None:
    known = next((entry for entry in document["policies"] if entry["name"] == document["value"]), None)
    if known is None:
        return
    output.print_fields((title, known[key]) for title, key in _DESCRIPTION)
    if not known["parameters"]:
        return
    output.print_line()
    rows = [
        (p["name"], _shown(document["parameters"][p["name"]]), _shown(p["default"]), p["unit"], p["doc"])
        for p in known["parameters"]
    ]
    columns = [Column("parameter"), Column("value"), Column("default"), Column("unit"), Column("meaning")]
    output.print_table(columns, rows)


def _shown(value: Any) -> str:
    """A parameter's value as `--set` takes it; `none` and `unset` for none."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, list | tuple):
        return ",".join(map(_shown, value)) or "none"
    return "unset" if value is None else str(value)


def _show_or_set(site: SiteAccess, key: str, new: str | None, configured: str) -> tuple[Document, str]:
    """The value in force, who set it, and whether somebody follows it; the configured one before sodad's first start.

    Also a warning if nobody follows it now, or an empty text.
    """
    setting, alive, warning = None, False, "sodad is not running; it will follow this when it starts"
    try:
        with site.store() as store:
            if new is not None:
                with store.write() as session:
                    queries.put_admin_setting(session, key, new, now_s=site.now_s(), by=site.context.who())
                wake_daemon(site)
            with store.read() as session:
                setting = queries.admin_settings(session).get(key)
                epoch = queries.latest_epoch(session)
                alive = is_daemon_alive(session, epoch, site)
                if stall := find_stall(session, epoch, site):
                    warning = f"{describe_absence(epoch, stall, site.now_s())}; it will follow this when it goes on"
    except StoreMissingError as error:
        if new is not None:
            raise
        warning = ""
        output.warn(f"this {key} is what the configuration of this host says, and another may be in force: {error}")
    document: Document = {
        "key": key,
        "value": configured if setting is None else setting.value,
        "configured": configured,
        "changed_by": None if setting is None else setting.changed_by,
        "changed_s": None if setting is None else setting.changed_s,
        "daemon_alive": alive,
    }
    return document, "" if alive else warning


def _print_source(document: Document, warning: str) -> None:
    if document["changed_s"] is None:
        output.print_line("as configured")
    else:
        output.print_line(f"set by {document['changed_by']} at {output.format_instant(document['changed_s'])}")
    if warning:
        output.warn(warning)
