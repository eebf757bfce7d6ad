#!/bin/sh
# install/named_by_slurm.sh PREFIX [PART...]: prints what of Slurm's configuration on this machine names a file below PREFIX, or
# below one of these parts of it (libexec, lib/soda); status 1 where nothing does. A slurmctld that does not answer is no reason to
# stop: then the files that it reads tell.
set -u
given=$(echo "$1" | sed 's|//*|/|g; s|/$||')
prefix=$(readlink -f "$1" || echo "$given")
shift
[ $# -gt 0 ] || set -- ''
shown=$(timeout 30 scontrol show config 2>/dev/null) || shown=
conf=$(echo "$shown" | sed -n 's|^SLURM_CONF *= *\(/.*\)/.*|\1|p')
[ -n "$conf" ] || conf=${SLURM_CONF:+${SLURM_CONF%/*}}
conf=${conf:-/etc/slurm}

for part; do
    named=$(echo "$shown" | grep -F -e "$given/$part" -e "$prefix/$part" | tr -s ' ' | head -n 1)
    [ -z "$named" ] || { echo "$named"; exit 0; }
done
# Unquoted: Prolog and Epilog may be globs. A script of the site's may call ours; comments do not count.
for file in $(echo "$shown" | sed -n 's,^[PE][pr][io]log[^ ]* *= */,/,p' | tr , ' ') \
    "$conf"/*.conf "$conf"/*.lua "$conf"/plugstack.conf.d/* "$conf"/prolog.d/* "$conf"/epilog.d/*; do
    [ ! -e "$file" ] && [ ! -L "$file" ] && continue
    # A link in a directory of hooks, or a directory that is one itself: also where what it leads to is gone already.
    leads=$(readlink -m -- "$file")
    for part; do
        case $leads in
        "$prefix/$part"*) echo "$file links to $leads"; exit 0 ;;
        esac
        named=$(grep -sIHnF -e "$given/$part" -e "$prefix/$part" "$file" | grep -v ':[0-9]*:[[:space:]]*\(#\|--\)' | head -n 1)
        [ -z "$named" ] || { echo "$named"; exit 0; }
    done
done
exit 1
