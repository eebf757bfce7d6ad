"""Checks of who may do what: rights in Slurm, MUNGE, the users' associations, and limits on them."""

from __future__ import annotations

from slurm_soda.slurm_ext.errors import NOT_FOUND, SlurmError
from slurm_soda.slurm_ext.read.accounting_limits import AccountingLimitsReader, enforces_limits
from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig, slurm_user_id
from slurm_soda.sodactl.checks.check_result import CHECK_TIMEOUT_S, CheckResult, CommandProbe, failure_text

_MAX_SHOWN = 3


def check_rights(probe: CommandProbe, config: SlurmConfig, *, uid: int, user: str) -> CheckResult:
    """Whoever runs this may change other people's jobs, as sodad must."""
    slurm_user = config.get("SlurmUser", "")
    if uid in (0, slurm_user_id(config)):
        return CheckResult("rights", "ok", f"{user} may change every job (SlurmUser={slurm_user})")
    level = (probe.text("sacctmgr", "-n", "-P", "show", "user", user, "format=adminlevel") or "").strip()
    if level in ("Operator", "Administrator"):
        return CheckResult("rights", "ok", f"{user} is {level} in Slurm's accounting")
    remedy = "run sodad, undo and release-all as SlurmUser or root; looking needs no rights"
    return CheckResult("rights", "warn", f"{user} may not change other users' jobs", remedy)


def check_munge(probe: CommandProbe) -> CheckResult:
    """A credential made here can be read here."""
    remedy = "start munged, with the same key on every node: agents and users prove with it who they are"
    made = probe.run("munge", "-n")
    if made.status == NOT_FOUND:
        return CheckResult("MUNGE", "fail", failure_text(made), f"install munge, then {remedy}")
    if made.status != 0:
        return CheckResult("MUNGE", "fail", failure_text(made), remedy)
    read = probe.run("unmunge", stdin=made.stdout)
    if read.status != 0:
        return CheckResult("MUNGE", "fail", failure_text(read), remedy)
    return CheckResult("MUNGE", "ok", "a credential made here can be read here")


def check_associations(probe: CommandProbe, config: SlurmConfig) -> CheckResult:
    """Users with jobs have associations: without one `scontrol update` of a partition fails at random."""
    if not config.get("AccountingStorageType", "").endswith("/slurmdbd"):
        return CheckResult("associations", "skip", "no slurmdbd", "see accounting")
    cluster = config.get("ClusterName", "")
    of_cluster = (f"cluster={cluster}",) if cluster else ()
    listed = probe.run("sacctmgr", "-n", "-P", "show", "assoc", *of_cluster, "format=user")
    if listed.status != 0:
        return CheckResult("associations", "fail", failure_text(listed), "start slurmdbd; jobs run on meanwhile")
    known = set(listed.stdout.decode("utf-8", "surrogateescape").split())
    queued = set((probe.text("squeue", "-h", "-a", "-o", "%u") or "").split())
    if missing := sorted(queued - known):
        remedy = f"sacctmgr -i add user {missing[0]} account=ACCOUNT: without one, changes fail at random"
        return CheckResult("associations", "warn", f"none for {', '.join(missing[:5])}", remedy)
    among = f"all {len(queued)} with jobs among them" if queued else "nobody has jobs now"
    return CheckResult("associations", "ok", f"{len(known)} users, {among}")


def check_limits(probe: CommandProbe, config: SlurmConfig, *, rewrites: bool) -> CheckResult:
    """Limits of accounting that keep CPU fit from changing requests; ``rewrites``: this site wants it to."""
    if not enforces_limits(config):
        return CheckResult("limits", "ok", f"AccountingStorageEnforce={config.get('AccountingStorageEnforce', 'none')}")
    if not rewrites:
        return CheckResult("limits", "ok", 'enforced; [cpu_fit] rewrite is "off"')
    try:
        limits = AccountingLimitsReader(probe.runner, CHECK_TIMEOUT_S).read()
    except SlurmError as error:
        remedy = "start slurmdbd; while it does not answer, CPU fit changes no request"
        return CheckResult("limits", "warn", f"not known: {error}", remedy)
    named = [f"{limit} of QOS {name}" for name, limit in sorted(limits.qos.items()) if limit]
    named += [f"{one.limit} of account {name}" for name, one in sorted(limits.accounts.items()) if one.limit]
    own = [(user, one.limit) for user, found in sorted(limits.users.items()) for one in found if one.limit]
    named += [f"{limit} of user {user}" for user, limit in own]
    if not named:
        return CheckResult("limits", "ok", "enforced, and none on CPUs, memory, nodes or billing")
    more = f" and {len(named) - _MAX_SHOWN} more" if len(named) > _MAX_SHOWN else ""
    remedy = (
        "jobs that such a limit may bind keep the CPUs that they ask for, because Slurm exempts a job from limits on what "
        "an operator changed; to have them fitted, limit gres/gpu instead (docs/policies/cpu-fit.md)"
    )
    return CheckResult("limits", "warn", ", ".join(named[:_MAX_SHOWN]) + more, remedy)
