#!/bin/sh
# install/named_by_slurm.sh PREFIX [FILE...]: prints what of Slurm's configuration on this machine names something below PREFIX, or
# one of these files of it (libexec/prolog, lib/soda.lua); status 1 where nothing does. Where slurmctld does not answer, the files
# that it reads tell; on a node that has no files of its own (configless) those that slurmd keeps in /run/slurm/conf. Where there are
# none either and slurmd runs, nobody knows, and that is printed.
set -u
given=$(echo "$1" | sed 's|//*|/|g; s|/$||')
prefix=$(readlink -f "$1" || echo "$given")
shift
[ $# -gt 0 ] || set -- ''
shown=$(timeout 30 scontrol show config 2>/dev/null) || shown=
conf=$(echo "$shown" | sed -n 's|^SLURM_CONF *= *\(/.*\)/.*|\1|p')
[ -n "$conf" ] || conf=${SLURM_CONF:+${SLURM_CONF%/*}}
conf=${conf:-/etc/slurm}
kept=/run/slurm/conf

regular() { echo "$1" | sed 's/[][\.*^$+?(){}|]/\\&/g'; }
# A line with one of the files, and not with another whose name begins like it; anything below the prefix without files.
wanted=
for file; do
    for place in "$given" "$prefix"; do
        wanted="$wanted${wanted:+|}$(regular "$place/$file")${file:+([^A-Za-z0-9_-]|\$)}"
    done
done
leads_to_one() {
    for wanted_file; do
        case $leads in
        "$prefix/$wanted_file") return 0 ;;
        "$prefix"/*) [ -n "$wanted_file" ] || return 0 ;;
        esac
    done
    return 1
}

named=$(echo "$shown" | grep -E -e "$wanted" | tr -s ' ' | head -n 1)
[ -z "$named" ] || { echo "$named"; exit 0; }
# Unquoted: Prolog and Epilog may be globs. A script of the site's may call ours; comments do not count.
for file in $(echo "$shown" | sed -n 's,^[PE][pr][io]log[^ ]* *= */,/,p' | tr , ' ') \
    "$conf"/*.conf "$conf"/*.lua "$conf"/*/*.conf "$conf"/*.d/* $kept/* $kept/*/*; do
    [ ! -e "$file" ] && [ ! -L "$file" ] && continue
    # A link in a directory of hooks, or a directory that is one itself: also where what it leads to is gone already.
    leads=$(readlink -m -- "$file")
    leads_to_one "$@" && { echo "$file links to $leads"; exit 0; }
    named=$(grep -sIHnE -e "$wanted" "$file" | grep -v ':[0-9]*:[[:space:]]*\(#\|--\)' | head -n 1)
    [ -z "$named" ] || { echo "$named"; exit 0; }
done
if [ -z "$shown" ] && [ ! -e "$conf/slurm.conf" ] && [ ! -e $kept/slurm.conf ] && pidof slurmd >/dev/null; then
    echo "perhaps: slurmd runs, slurmctld does not answer, and there is no $conf/slurm.conf"
    exit 0
fi
exit 1
