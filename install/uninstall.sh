#!/bin/sh
# install/uninstall.sh PREFIX UNITS UNIT...: removes what `make install` made on this machine, once Slurm no longer names it.
#
# slurmd drains a node whose Prolog is gone and cancels the job, so whatever still names our files, or cannot be asked, stops
# this before anything is removed. FORCE=1 asks nobody: for a machine that Slurm has left.
set -eu
prefix=${1%/} units=$2
shift 2
refuse() { echo "nothing was removed: $*" >&2; exit 1; }

[ -e "$prefix/lib/soda_spank.so" ] || refuse "$prefix holds no slurm-soda; PREFIX= names another place"
if [ -z "${FORCE:-}" ]; then
    shown=$(timeout 30 scontrol show config 2>/dev/null) ||
        refuse "scontrol show config fails, so Slurm may still run our files; start slurmctld, or say FORCE=1"
    conf=$(echo "$shown" | sed -n 's|^SLURM_CONF *= *\(/.*\)/.*|\1|p')
    named=$(echo "$shown" | grep -F "$prefix/" | tr -s ' ' | head -n 1)
    # Unquoted: Prolog and Epilog may be globs. A script of the site's may call ours; comments do not count.
    for file in $(echo "$shown" | sed -n 's,^[PE][pr][io]log[^ ]* *= */,/,p' | tr , ' ') \
        "$conf"/*.conf "$conf"/*.lua "$conf"/plugstack.conf.d/*; do
        [ -n "$named" ] ||
            named=$(grep -sIHnF "$prefix/" "$file" | grep -v ':[0-9]*:[[:space:]]*\(#\|--\)' | head -n 1)
    done
    [ -z "$named" ] ||
        refuse "Slurm still uses $prefix ($named); take that out, run scontrol reconfigure, and then this again"
fi
for unit; do
    ! systemctl is-active -q "$unit" 2>/dev/null || refuse "$unit is active; systemctl disable --now $unit"
done
for unit; do rm -f "$units/$unit"; done
rm -rf "$prefix"
echo "removed $prefix and its units; configuration and history are left in /etc/slurm-soda and /var/lib/slurm-soda"
