#!/bin/sh
# install/old_environment.sh PREFIX: removes a virtual environment of slurm-soda that is PREFIX itself, as releases made it that
# had no lib/slurm-soda. PREFIX may be /usr/local: what is not of that environment stays, and so does what leads into lib/slurm-soda.
set -eu
prefix=$1
ours() { case $(readlink "$1") in "$prefix"/lib/slurm-soda/*) ;; *) return 1 ;; esac; }
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
        bin/* | share/*) ours "$prefix/$file" || rm -f "$prefix/$file" ;;
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
rmdir "$prefix"/include/python3* "$prefix/include" "$prefix"/share/man/man1 "$prefix"/share/man 2>/dev/null || true
