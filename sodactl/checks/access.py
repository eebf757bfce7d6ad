"""Checks of who may do what: rights in Slurm, MUNGE, and the users' associations."""

from __future__ import annotations

import re

from slurm_soda.sodactl.checks.finding import Config, Finding, Probe, complaint


def rights(probe: Probe, config: Config, *, uid: int, user: str) -> Finding:
    """Whoever runs this may change other people's jobs, as sodad must."""
    slurm_user = config.get("SlurmUser", "")
    match = re.search(r"\((\d+)\)", slurm_user)
    if uid == 0 or (match and int(match[1]) == uid):
        return Finding("rights", "ok", f"{user} may change every job (SlurmUser={slurm_user})")
    level = (probe.text("sacctmgr", "-n", "-P", "show", "user", user, "format=adminlevel") or "").strip()
    if level in ("Operator", "Administrator"):
        return Finding("rights", "ok", f"{user} is {level} in Slurm's accounting")
    remedy = "run sodad, undo and release-all as SlurmUser or root; looking needs no rights"
    return Finding("rights", "warn", f"{user} may not change other users' jobs", remedy)


def munge(probe: Probe) -> Finding:
    """A credential made here can be read here."""
    remedy = "start munged, with the same key on every node: agents prove with it who they are"
    made = probe.run("munge", "-n")
    if made.status != 0:
        return Finding("MUNGE", "fail", complaint(made), remedy)
    read = probe.run("unmunge", stdin=made.stdout)
    if read.status != 0:
        return Finding("MUNGE", "fail", complaint(read), remedy)
    return Finding("MUNGE", "ok", "a credential made here can be read here")


def associations(probe: Probe, config: Config) -> Finding:
    """Users with jobs have associations: without one `scontrol update` of a partition fails at random."""
    if not config.get("AccountingStorageType", "").endswith("/slurmdbd"):
        return Finding("associations", "skip", "no slurmdbd", "see accounting")
    listed = probe.run("sacctmgr", "-n", "-P", "show", "assoc", "format=user")
    if listed.status != 0:
        return Finding("associations", "fail", complaint(listed), "start slurmdbd; jobs run on meanwhile")
    known = set(listed.stdout.decode("utf-8", "surrogateescape").split())
    queued = set((probe.text("squeue", "-h", "-a", "-o", "%u") or "").split())
    if missing := sorted(queued - known):
        remedy = f"sacctmgr -i add user {missing[0]} account=ACCOUNT: without one, changes fail at random"
        return Finding("associations", "warn", f"none for {', '.join(missing[:5])}", remedy)
    return Finding("associations", "ok", f"{len(known)} users, all {len(queued)} with jobs among them")
