#!/bin/sh
# install/python.sh all|agent|controller|login PREFIX [postgresql]: the Python part of a role, into a virtual environment at
# PREFIX; on a controller with the driver for a store on PostgreSQL.
#
# Only what the role's lock names is there afterwards, and slurm-soda itself: no pip, no setuptools, nothing of a release
# before. A second environment with pip and setuptools (requirements-build.lock) does the work and goes away; TOOLS keeps it
# in a folder. PYTHON makes both. PIP_FLAGS='--no-index --find-links FOLDER' takes all wheels from a folder.
set -eu
role=${1:-} prefix=${2:-} store=${3:-}
umask 022
top=$(cd "$(dirname "$0")/.." && pwd)
case $role in
all) locks="requirements-controller.lock requirements-agent.lock" ;;
agent) locks=requirements-agent.lock ;;
controller) locks=requirements-controller.lock ;;
login) locks=requirements.lock ;;
*) echo "there is no role '$role': all, agent, controller or login" >&2; exit 64 ;;
esac
case $store:$role in
:*) ;;
postgresql:all | postgresql:controller | postgresql:login) locks="$locks requirements-postgresql.lock" ;;
*) echo "STORE is '$store' for $role: it may be postgresql, where sodad or sodactl runs" >&2; exit 64 ;;
esac
[ -n "$prefix" ] || { echo "usage: $0 all|agent|controller|login PREFIX" >&2; exit 64; }
python=${PYTHON:-python3}
case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
cd "$top" # whose path may have spaces, so that locks are named without it
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tools=${TOOLS:-$work/tools}

pip() { "$tools/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
here() { pip --python "$prefix/bin/python" "$@"; }

[ -x "$tools/bin/pip" ] || "$python" -m venv "$tools"
# Unquoted below: several flags, and several files.
pip install ${PIP_FLAGS:-} --no-deps -r "$top/requirements-build.lock" || {
    echo "without a network, bring the wheels and say PIP_FLAGS='--no-index --find-links FOLDER': docs/install.md" >&2
    exit 1
}

# From a copy: a checkout that root builds in would be left with files of root's.
mkdir "$work/source" "$work/whole"
cp -RL "$top/src" "$top/pyproject.toml" "$top/README.md" "$top/LICENSE" "$work/source"
pip wheel --no-index --no-deps --no-build-isolation --wheel-dir "$work/whole" "$work/source"
wheel=$("$tools/bin/python" "$top/install/roles.py" wheel "$role" "$work"/whole/*.whl "$work")

[ -x "$prefix/bin/python" ] || "$python" -m venv --without-pip "$prefix"
here install ${PIP_FLAGS:-} --no-deps $(for lock in $locks; do echo "-r $lock"; done)
here install --no-index --no-deps --force-reinstall "$wheel"
site=$("$prefix/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
leftovers=$("$tools/bin/python" "$top/install/roles.py" leftovers "$site" $locks)
[ -z "$leftovers" ] || here uninstall --yes $leftovers
