#!/bin/sh
# install/uninstall.sh PREFIX UNITS UNIT...: removes what `make install` made on this machine, once Slurm no longer names it.
#
# slurmd drains a node whose Prolog is gone and cancels the job, so whatever still names our files, or cannot be asked, stops
# this before anything is removed. FORCE=1 asks nobody: for a machine that Slurm has left.
set -eu
# Slurm may name our files by the path that was given or, if that leads over a link, by the real one.
given=$(echo "$1" | sed 's|//*|/|g; s|/$||') units=$2
prefix=$(readlink -f "$1" || echo "$given")
shift 2
refuse() { echo "nothing was removed: $*" >&2; exit 1; }

[ -e "$prefix/lib/soda_spank.so" ] || refuse "$prefix holds no slurm-soda; PREFIX= names another place"
if [ -z "${FORCE:-}" ]; then
    shown=$(timeout 30 scontrol show config 2>/dev/null) ||
        refuse "scontrol show config fails, so Slurm may still run our files; start slurmctld, or say FORCE=1"
    conf=$(echo "$shown" | sed -n 's|^SLURM_CONF *= *\(/.*\)/.*|\1|p')
    named=$(echo "$shown" | grep -F -e "$given/" -e "$prefix/" | tr -s ' ' | head -n 1)
    # Unquoted: Prolog and Epilog may be globs. A script of the site's may call ours; comments do not count.
    for file in $(echo "$shown" | sed -n 's,^[PE][pr][io]log[^ ]* *= */,/,p' | tr , ' ') \
        "$conf"/*.conf "$conf"/*.lua "$conf"/plugstack.conf.d/*; do
        [ -z "$named" ] || break
        [ ! -e "$file" ] && [ ! -L "$file" ] && continue
        # A link in a directory of hooks, or a directory that is one itself: also where what it leads to is gone already.
        leads=$(readlink -m -- "$file")
        case $leads in
        "$prefix"/*) named="$file links to $leads" ;;
        *)
            named=$(grep -sIHnF -e "$given/" -e "$prefix/" "$file" | grep -v ':[0-9]*:[[:space:]]*\(#\|--\)' | head -n 1) ;;
        esac
    done
    [ -z "$named" ] ||
        refuse "Slurm still uses $prefix ($named); take that out, run scontrol reconfigure, and then this again"
fi
for unit; do
    ! systemctl is-active -q "$unit" 2>/dev/null || refuse "$unit is active; systemctl disable --now $unit"
done
had_units=
for unit; do
    [ ! -e "$units/$unit" ] || had_units=1
    rm -f "$units/$unit"
done
[ -z "$had_units" ] || ! command -v systemctl >/dev/null || systemctl daemon-reload || true

# PREFIX may be /usr/local: only what install put there goes, and the folders that are empty then.
for name in prolog epilog epilogctld soda-deliver-event; do
    rm -f "$prefix/libexec/.$name.new"
    # A site may have a prolog of its own there, on a machine whose role brings none.
    ! grep -qsi soda "$prefix/libexec/$name" || rm -f "$prefix/libexec/$name"
done
venv=
for site in "$prefix"/lib/python3*/site-packages "$prefix"/lib64/python3*/site-packages; do
    [ -d "$site/slurm_soda" ] || continue
    if [ ! -e "$prefix/pyvenv.cfg" ] || [ -e "${site%/*}/os.py" ]; then
        echo "left: $site, which is no virtual environment of slurm-soda; $prefix/bin/python -m pip uninstall slurm-soda"
        continue
    fi
    venv=1
    # Programs and manual pages of the packages, which lie outside of their folder.
    sed -n 's,^\.\./\.\./\.\./\([^,]*\)\,.*,\1,p' "$site"/*.dist-info/RECORD | while read -r file; do
        case $file in
        *..*) ;;
        bin/* | share/*) rm -f "$prefix/$file" ;;
        esac
    done
    rm -rf "$site"
    rmdir "${site%/*}" 2>/dev/null || true
done
if [ -n "$venv" ]; then
    base=$(sed -n 's|^executable *= *||p' "$prefix/pyvenv.cfg")
    for file in "$prefix"/bin/*thon "$prefix"/bin/python3*; do
        [ ! -L "$file" ] || [ "$(readlink -f "$file")" != "$(readlink -f "$base")" ] || rm -f "$file"
    done
    rm -f "$prefix/bin/activate" "$prefix/bin/activate.csh" "$prefix/bin/activate.fish" "$prefix/bin/Activate.ps1"
    rm -f "$prefix/pyvenv.cfg" "$prefix/.gitignore"
fi
# soda_spank.so last: it tells of an installation, should this be interrupted.
for name in soda_hints.lua soda_routes.lua soda.lua soda_spank.so; do
    rm -f "$prefix/lib/$name" "$prefix/lib/.$name.new"
done
rmdir "$prefix"/include/python3* "$prefix"/share/man/man1 "$prefix"/share/man 2>/dev/null || true
for folder in include share bin libexec lib lib64; do
    [ -L "$prefix/$folder" ] || rmdir "$prefix/$folder" 2>/dev/null || true
done
[ ! -L "$prefix/lib64" ] || [ -e "$prefix/lib64" ] || rm -f "$prefix/lib64"
rmdir "$prefix" 2>/dev/null || echo "left: $prefix, which holds other files than those of slurm-soda"
echo "removed slurm-soda from $prefix, and its units; configuration and history are left in /etc/slurm-soda and /var/lib/slurm-soda"
