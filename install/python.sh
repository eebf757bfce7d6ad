#!/bin/sh
# install/python.sh all|agent|controller|login PREFIX [postgresql]: the Python part of a role; on a controller with the driver
# for a store on PostgreSQL.
#
# In PREFIX/lib/slurm-soda are
#   packages.*      what the roles' locks name, and nothing else (install/packages.sh)
#   environment.*   a virtual environment with slurm-soda itself, which finds these packages
#   current         a link to the environment that PREFIX/bin leads to
# Each is made apart, and tried, before `current` is switched by one rename: whatever ends an installation, the commands are those
# of before or the new ones. Roles that are installed there stay. What nothing runs from any more is removed.
#
# Another environment with pip and setuptools (requirements-build.lock) does the work and goes away; TOOLS keeps it in a
# folder. PYTHON makes both. PIP_FLAGS='--no-index --find-links FOLDER' takes all wheels from a folder.
set -eu
role=${1:-} prefix=${2:-} driver=${3:-}
umask 022
top=$(cd "$(dirname "$0")/.." && pwd)
case $role in
all) roles='agent controller' ;;
agent | controller | login) roles=$role ;;
*) echo "there is no role '$role': all, agent, controller or login" >&2; exit 64 ;;
esac
case $driver:$role in
:*) ;;
postgresql:all | postgresql:controller | postgresql:login) roles="$roles postgresql" ;;
*) echo "STORE is '$driver' for $role: it may be postgresql, where sodad or sodactl runs" >&2; exit 64 ;;
esac
[ -n "$prefix" ] || { echo "usage: $0 all|agent|controller|login PREFIX" >&2; exit 64; }
prefix=$(readlink -m -- "$prefix")
store=$prefix/lib/slurm-soda
[ ! -e "$store/packaged" ] || { echo "packages of Debian are installed in $prefix; apt-get remove 'slurm-soda-*' first" >&2; exit 1; }
cd "$top" # whose path may have spaces, so that locks are named without it
python=$(command -v "${PYTHON:-python3}") || { echo "there is no ${PYTHON:-python3}; PYTHON= names another" >&2; exit 1; }

# One at a time. Whatever this starts keeps the lock too, so an installation whose first process was killed is waited for.
mkdir -p "$store" "$prefix/bin"
(umask 077 && : >>"$store/.lock") && chmod 600 "$store/.lock" # whoever can open it, if only to read it, can lock it for ever
exec 9>>"$store/.lock"
flock --nonblock 9 || { echo "another installation works in $prefix; waiting for it" >&2; flock 9; }
[ "$store/.lock" -ef /proc/self/fd/9 ] || { echo "$prefix was removed meanwhile; make install again" >&2; exit 1; }

for had in $("$top/install/installed.sh" "$prefix"); do
    case " $roles " in
    *" $had "*) ;;
    *) roles="$roles $had"; echo "$prefix has $had already, and keeps it; make uninstall removes everything" >&2 ;;
    esac
done
locks=
for one in $roles; do
    case $one:" $roles " in
    login:*" controller "*) ;; # has all of it
    login:*) locks="$locks requirements.lock" ;;
    *) locks="$locks requirements-$one.lock" ;;
    esac
done

# What a killed one left takes room that this one needs.
rm -rf "$store"/.work.*
for made in "$store"/packages.*; do [ -e "$made/key" ] || rm -rf "$made"; done
# Here, and all that pip makes, so that what a kill leaves is found by the next installation.
work=$(mktemp -d "$store/.work.XXXXXX")
export TMPDIR="$work"
clean() {
    # Of an installation that failed, or was killed; of a release before. Nobody else installs now.
    current=$(readlink -f "$store/current") || current=
    for made in "$store"/environment.*; do
        [ "$made" = "$current" ] || used "$made/" || rm -rf "$made"
    done
    for made in "$store"/packages.*; do
        cat "$store"/environment.*/lib/python3*/site-packages/slurm-soda.pth 2>/dev/null | grep -qxF "$made" || rm -rf "$made"
    done
    rm -rf "$store"/.work.* "$store"/.current.*
}
used() { # a process was started by such a path, or has loaded a library from there
    echo "$1" | grep -qsaF -f - /proc/[0-9]*/cmdline /proc/[0-9]*/maps
}
trap clean EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
export TOOLS=${TOOLS:-$work/tools}

pip() { "$TOOLS/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }

[ -x "$TOOLS/bin/pip" ] || "$python" -m venv "$TOOLS"
# Unquoted: several flags.
pip install ${PIP_FLAGS:-} --no-deps -r requirements-build.lock || {
    echo "without a network, bring the wheels and say PIP_FLAGS='--no-index --find-links FOLDER': docs/install.md" >&2
    exit 1
}

# From a copy: a checkout that root builds in would be left with files of root's.
mkdir "$work/source" "$work/whole"
cp -RL "$top/src" "$top/pyproject.toml" "$top/README.md" "$top/LICENSE" "$work/source"
pip wheel --no-index --no-deps --no-build-isolation --wheel-dir "$work/whole" "$work/source"
wheel=$("$TOOLS/bin/python" "$top/install/roles.py" wheel "$roles" "$work"/whole/*.whl "$work")

# Unquoted: several files.
packages=$("$top/install/packages.sh" "$python" "$store" $locks)
environment=$(mktemp -d "$store/environment.XXXXXX")
chmod 755 "$environment"
"$python" -m venv --without-pip "$environment"
site=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$packages" >"$site/slurm-soda.pth"
pip --python "$environment/bin/python" install --no-index --no-deps "$wheel"
for one in $roles; do echo "$one"; done >"$environment/roles"
commands=
for command in sodactl sodad soda-agent; do
    [ ! -e "$environment/bin/$command" ] || commands="$commands $command"
done
for command in $commands; do
    "$environment/bin/$command" --help >"$work/said" 2>&1 || {
        cat "$work/said" >&2
        echo "the new $command does not start; $prefix stays as it was" >&2
        exit 1
    }
done

place() { # NAME: what was made at PREFIX/bin/.NAME.new, or STORE/.current.new
    mv -fT "${1%/*}/.${1##*/}.new" "$1"
}
rm -f "$store/.current.new"
ln -s "${environment##*/}" "$store/.current.new"
place "$store/current"
for command in $commands; do
    rm -f "$prefix/bin/.$command.new"
    ln -s "$store/current/bin/$command" "$prefix/bin/.$command.new"
    place "$prefix/bin/$command"
done
# Not a link: Python looks for its environment beside the name by which it was called. It goes on in that one.
rm -f "$prefix/bin/.python.new"
printf '#!/bin/sh\nexec "$(/usr/bin/readlink -f "%s")/bin/python" "$@"\n' "$store/current" >"$prefix/bin/.python.new"
chmod 755 "$prefix/bin/.python.new"
place "$prefix/bin/python"
# As releases before this one had it: the environment was the prefix itself.
[ ! -e "$prefix/pyvenv.cfg" ] || used "$prefix/bin/python" || "$top/install/old_environment.sh" "$prefix"
