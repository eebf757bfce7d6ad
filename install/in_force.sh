#!/bin/sh
# install/in_force.sh PREFIX: leaves with status 1, and says what to do, where Slurm still has something that sodad did here.
set -eu
sodactl=$1/bin/sodactl python=$1/bin/python
fail() { echo "$*"; exit 1; }

# Slurm does not tell the SiteFactor of a job that is held: a change without an old value says nothing.
left=$(timeout 120 "$sodactl" release-all --dry-run --json 2>/dev/null | "$python" -c '
import json, sys
found = json.load(sys.stdin)
print(*found["running_guests"], sep=", ")
jobs = {change["job_id"] for change in found["changes"] if change["old"] or change["kind"] == "requeue"}
print(*sorted(jobs | set(found["unfinished"])), sep=", ")
' 2>/dev/null) || fail "$sodactl does not tell whether changes of jobs are in force; make install mends it"
guests=$(echo "$left" | sed -n 1p | cut -c 1-60) left=$(echo "$left" | sed 1d)
[ -z "$guests" ] || fail "guests run on GPUs of other jobs ($guests), which our prolog and epilog guard:" \
    "wait until they have ended, or scontrol requeue Incomplete JOB, named as here; then" \
    "sodactl release-all"
[ -z "$left" ] || fail "changes of jobs are in force (of $(echo "$left" | cut -c 1-60)):" \
    "sodactl release-all; where these SiteFactors are the site's own"
status=0
timeout 60 "$sodactl" pools status >/dev/null 2>&1 || status=$?
[ $status = 3 ] || fail "pools are in force: sodactl pools revert --wait"
