"""Checks of ``[scope]``: whether Slurm knows the names, and how many jobs are in scope."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from sqlalchemy.orm import Session

from slurm_soda.daemon.settings.scope import ScopeSettings
from slurm_soda.daemon.store import queries
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig
from slurm_soda.sodactl.checks.check_result import CheckResult, CommandProbe, failure_text

_CHECK = "scope"
_MOST_NAMED = 20


def check_scope_names(
    settings: ScopeSettings, probe: CommandProbe, config: SlurmConfig, partitions: Callable[[], Collection[str]]
) -> Iterator[CheckResult]:
    """Whether partitions, accounts, QOS and users are Slurm's; nothing where the scope names none.

    Args:
        settings: of the site.
        probe: asks slurmdbd.
        config: slurmctld's.
        partitions: asks Slurm for the names of all; it may raise :class:`.SlurmError`.
    """
    if settings.partitions:
        try:
            yield _named("partitions", settings.partitions, partitions())
        except SlurmError as error:
            yield CheckResult(f"{_CHECK}: partitions", "skip", str(error).split("\n", 1)[0], "see slurmctld")
    in_accounting = {"accounts": settings.accounts, "qos": settings.qos, "users": settings.users}
    wanted = {key: names for key, names in in_accounting.items() if names}
    if not wanted:
        return
    if not config.get("AccountingStorageType", "").endswith("/slurmdbd"):
        named = " and ".join(f"scope.{key}" for key in wanted)
        yield CheckResult(f"{_CHECK}: names", "skip", f"no slurmdbd knows what {named} may say", "see accounting")
        return
    cluster = config.get("ClusterName", "")
    of_cluster = [f"cluster={cluster}"] if cluster else []
    for key, names in wanted.items():
        what = ["qos", "format=name"] if key == "qos" else ["assoc", *of_cluster, f"format={key.removesuffix('s')}"]
        listed = probe.run("sacctmgr", "-n", "-P", "show", *what)
        if listed.status != 0:
            yield CheckResult(f"{_CHECK}: {key}", "skip", failure_text(listed), "start slurmdbd")
        else:
            known = listed.stdout.decode("utf-8", "surrogateescape").splitlines()
            yield _named(key, names, known)


def _named(key: str, names: Collection[str], known: Collection[str]) -> CheckResult:
    unknown = sorted(set(names) - set(known))
    if not unknown:
        return CheckResult(f"{_CHECK}: {key}", "ok", ", ".join(names))
    word = "QOS" if key == "qos" else key.removesuffix("s")
    shown = sorted({name for name in known if name})[:_MOST_NAMED]
    found = f"Slurm has no {word} {', '.join(unknown)}: no job is in scope by that name"
    remedy = f"correct scope.{key} in soda.toml ({', '.join(shown) or 'Slurm has none'}), then systemctl reload sodad"
    return CheckResult(f"{_CHECK}: {key}", "fail", found, remedy)


def check_scope_counts(settings: ScopeSettings, session: Session) -> Iterator[CheckResult]:
    """Jobs in scope and others, by the last cycle; nothing where every job is in scope."""
    if settings == ScopeSettings():
        return
    last = next(iter(queries.recent_cycles(session, 1)), None)
    counts = None if last is None else last.facts.get("scope")
    if not isinstance(counts, dict):
        remedy = "systemctl reload sodad, if soda.toml was changed since it started"
        yield CheckResult(f"{_CHECK}: jobs", "warn", "sodad's last cycle knew no scope", remedy)
        return
    inside = counts["in_scope"]
    nobody = not (inside["waiting"] or inside["running"])
    remedy = "look whether [scope] names what jobs say (squeue -O Partition,Account,QOS,UserName)" if nobody else ""
    yield CheckResult(f"{_CHECK}: jobs", "warn" if nobody else "ok", describe_scope(counts), remedy)


def describe_scope(counts: Mapping[str, Any]) -> str:
    """In scope and not, and what would have been done to the others, in one line."""
    inside, outside = counts["in_scope"], counts["not_in_scope"]
    text = (
        f"{inside['waiting']} waiting and {inside['running']} running jobs in scope,"
        f" {outside['waiting']} and {outside['running']} only observed"
    )
    words = {"start": "put first", "preempt": "preempted", "resize": "resized", "join": "made guests", "route": "moved"}
    would = counts.get("would_have", {})
    told = [f"{would[key]} {word}" for key, word in words.items() if would.get(key)]
    return f"{text}; of these would have been: {', '.join(told)}" if told else text
