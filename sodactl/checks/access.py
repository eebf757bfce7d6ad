"""Checks of who may do what: rights in Slurm, MUNGE, and the users' associations."""

from __future__ import annotations

from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig, slurm_user_id
from slurm_soda.sodactl.checks.check_result import CheckResult, CommandProbe, failure_text


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
    listed = probe.run("sacctmgr", "-n", "-P", "show", "assoc", "format=user")
    if listed.status != 0:
        return CheckResult("associations", "fail", failure_text(listed), "start slurmdbd; jobs run on meanwhile")
    known = set(listed.stdout.decode("utf-8", "surrogateescape").split())
    queued = set((probe.text("squeue", "-h", "-a", "-o", "%u") or "").split())
    if missing := sorted(queued - known):
        remedy = f"sacctmgr -i add user {missing[0]} account=ACCOUNT: without one, changes fail at random"
        return CheckResult("associations", "warn", f"none for {', '.join(missing[:5])}", remedy)
    return CheckResult("associations", "ok", f"{len(known)} users, all {len(queued)} with jobs among them")
