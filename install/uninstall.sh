#!/bin/sh
# install/uninstall.sh PREFIX UNITS UNIT...: removes what `make install` made on this machine, once Slurm no longer names it. HOOKS are
# the names of what it put into libexec.
#
# slurmd drains a node whose Prolog is gone and cancels the job, so whatever still names our files, or cannot be asked, stops
# this before anything is removed. FORCE=1 asks nobody: for a machine that Slurm has left.
set -eu
# Slurm may name our files by the path that was given or, if that leads over a link, by the real one.
given=$(echo "$1" | sed 's|//*|/|g; s|/$||') units=$2
prefix=$(readlink -f "$1" || echo "$given")
shift 2
refuse() { echo "nothing was removed: $*" >&2; exit 1; }

store=$prefix/lib/slurm-soda
[ ! -e "$store/packaged" ] || refuse "packages of Debian are installed there; apt-get remove 'slurm-soda-*'"
[ -e "$prefix/lib/soda_spank.so" ] || [ -d "$store" ] || refuse "$prefix holds no slurm-soda; PREFIX= names another place"
if [ -z "${FORCE:-}" ]; then
    timeout 30 scontrol show config >/dev/null 2>&1 ||
        refuse "scontrol show config fails, so Slurm may still run our files; start slurmctld, or say FORCE=1"
    named=$("${0%/*}/named_by_slurm.sh" "$given") || named=
    [ -z "$named" ] ||
        refuse "Slurm still uses $prefix ($named); take that out, run scontrol reconfigure, and then this again"
fi
for unit; do
    # activating: also a daemon that cannot start, which systemd tries again and again.
    now=$(systemctl show --property=ActiveState --value "$unit" 2>/dev/null) || now=
    case $now in
    '' | inactive | failed) ;;
    *) refuse "$unit is $now; systemctl disable --now $unit" ;;
    esac
done
if [ -z "${FORCE:-}" ] && left=$("${0%/*}/limits_left.sh" "${AGENT_STATE:-/var/lib/slurm-soda-agent}"); then
    refuse "still limited by an agent that was killed: $left; systemctl start soda-agent, then stop it, or say FORCE=1"
fi
# What sodad did of which Slurm still has something: only sodactl takes it back, and goes with the rest.
if [ -z "${FORCE:-}" ] && [ -e "$prefix/bin/sodad" ]; then
    "${0%/*}/in_force.sh" "$prefix" >"${said:=$(mktemp)}" 2>&1 || {
        said=$(tail -n 1 "$said"; rm -f "$said")
        refuse "$said, or FORCE=1"
    }
    rm -f "$said"
fi
if [ -e "$store/.lock" ]; then
    chmod 600 "$store/.lock"
    exec 9>>"$store/.lock"
    flock --nonblock 9 || refuse "an installation works in $prefix; this again, once it has ended"
fi
had_units=
for unit; do
    [ ! -e "$units/$unit" ] || had_units=1
    rm -f "$units/$unit" "$units/.$unit".??????
done
[ -z "$had_units" ] || ! command -v systemctl >/dev/null || systemctl daemon-reload || true

# PREFIX may be /usr/local: only what install put there goes, and the folders that are empty then.
for name in $HOOKS; do
    rm -f "$prefix/libexec/.$name".??????
    # A site may have a prolog of its own there, on a machine whose role brings none.
    case $name in prolog | epilog*) grep -qsi soda "$prefix/libexec/$name" || continue ;; esac
    rm -f "$prefix/libexec/$name"
done
for command in sodactl sodad soda-agent; do
    case $(readlink "$prefix/bin/$command") in "$store"/*) rm -f "$prefix/bin/$command" ;; esac
done
! grep -qsF "$store/current" "$prefix/bin/python" || rm -f "$prefix/bin/python"
rm -rf "$store"
"${0%/*}/old_environment.sh" "$prefix"
# soda_spank.so last: it tells of an installation, should this be interrupted.
for name in soda_hints.lua soda_routes.lua soda_guests.lua soda.lua soda_spank.so; do
    rm -f "$prefix/lib/$name" "$prefix/lib/.$name".??????
done
for name in job_submit.lua prometheus.yml slurm-soda.rules.yml slurm-soda-dashboard.json; do
    rm -f "$prefix/share/slurm-soda/$name" "$prefix/share/slurm-soda/.$name".??????
done
for folder in share/slurm-soda include share bin libexec lib lib64; do
    [ -L "$prefix/$folder" ] || rmdir "$prefix/$folder" 2>/dev/null || true
done
[ ! -L "$prefix/lib64" ] || [ -e "$prefix/lib64" ] || rm -f "$prefix/lib64"
rmdir "$prefix" 2>/dev/null || echo "left: $prefix, which holds other files than those of slurm-soda"
# The example, as long as nobody has changed it.
! cmp -s "${0%/*}/sharing.conf" /etc/slurm-soda/sharing.conf || rm -f /etc/slurm-soda/sharing.conf
echo "removed slurm-soda from $prefix, and its units; configuration and history are left in /etc/slurm-soda and /var/lib/slurm-soda"
