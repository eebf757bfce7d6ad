"""``--set KEY=VALUE``: parameters of policies on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from slurm_soda.policies.errors import PolicyError, did_you_mean
from slurm_soda.policies.registry.catalog import find_entry, make_policy, policy_names
from slurm_soda.policies.registry.parameters import Parameter
from slurm_soda.simulator.runs.policy_choice import PolicyChoice
from slurm_soda.simulator.runs.systems import find_system


def choose_policies(
    names: Sequence[str], assignments: Sequence[str], systems: Sequence[str] = (), curves: Path | None = None
) -> tuple[PolicyChoice, ...]:
    """Systems, then policies, with the parameters that were set for them; each once.

    ``KEY=VALUE`` is for every policy that has such a parameter, ``POLICY.KEY=VALUE`` (or a system's name) for that one;
    the last one counts.

    Args:
        curves: a site's own curves, for the systems.

    Raises:
        click.UsageError: it is no assignment, nobody has the parameter, its value is not allowed, or a policy has the name
            of a system that takes part.
    """
    known = {name: find_system(name) for name in systems}
    if both := [name for name in names if name in known]:
        raise click.UsageError(f"{both[0]} is a system and a policy here: name it once, by --system or by --policy")
    policies = {**{name: system.policy for name, system in known.items()}, **{name: name for name in names}}
    values: dict[str, dict[str, Any]] = {label: {} for label in policies}
    for text in assignments:
        _assign_parameter(values, policies, text)
    for label, parameters in values.items():
        try:
            make_policy(policies[label], parameters)
        except PolicyError as error:
            raise click.UsageError(f"--set: {error}") from error
    return tuple(
        PolicyChoice(
            policies[label], parameters, label, replace(known[label].rules, curves=curves), known[label].serves
        )
        if label in known
        else PolicyChoice(label, parameters)
        for label, parameters in values.items()
    )


def complete_assignment(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For the shell: parameters of the policies and systems that stand on the command line, of all if there are none."""
    given = ctx.params
    names = [*(given.get("policies") or ()), *([given["policy"]] if given.get("policy") else [])]
    systems = [*(given.get("systems") or ()), *([given["system"]] if given.get("system") else [])]
    names += [find_system(name).policy for name in systems]
    owner, dot = incomplete.rpartition(".")[:2]
    entries = [find_entry(name) for name in ([owner] if owner in policy_names() else names or policy_names())]
    prefix = owner + dot if owner in policy_names() else ""
    found = {
        f"{prefix}{p.name}=": CompletionItem(f"{prefix}{p.name}=", help=p.doc) for e in entries for p in e.parameters
    }
    return [item for text, item in found.items() if text.startswith(incomplete)]


def _assign_parameter(values: dict[str, dict[str, Any]], policies: Mapping[str, str], text: str) -> None:
    path, equals, written = text.partition("=")
    owner, dot, key = path.strip().rpartition(".")
    if not equals or not key:
        raise click.UsageError(f"--set {text!r}: write KEY=VALUE or POLICY.KEY=VALUE, such as min_run_s=0")
    if dot and owner not in values:
        raise click.UsageError(f"--set {text!r}: policy {owner!r} does not take part; these do: {', '.join(values)}")
    found = False
    for name in [owner] if dot else values:
        parameter = next((p for p in find_entry(policies[name]).parameters if p.name == key), None)
        if parameter is not None:
            values[name][key] = _value(parameter, written.strip())
            found = True
    if not found:
        known = dict.fromkeys(p.name for name in values for p in find_entry(policies[name]).parameters)
        raise click.UsageError(
            f"--set {text!r}: no parameter {key!r} here; there are: {', '.join(known) or 'none'}{did_you_mean(key, known)}"
        )


def _value(parameter: Parameter, written: str) -> Any:
    """Text as the value that a configuration file would hold."""
    if isinstance(parameter.default, tuple):
        inner = written.removeprefix("[").removesuffix("]")
        return [_scalar(part.strip()) for part in inner.split(",") if part.strip()]
    return _scalar(written)


def _scalar(written: str) -> Any:
    if written in ("true", "false"):
        return written == "true"
    for read in (int, float):
        try:
            return read(written)
        except ValueError:
            continue
    return written
