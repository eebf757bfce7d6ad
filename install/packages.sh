#!/bin/sh
# install/packages.sh PYTHON STORE LOCK...: a folder with what these locks name, for this Python, below STORE; prints its path.
#
# One that is there, whole and of the same locks is taken as it is: a new release with the locks of the one before downloads
# nothing. It never changes once it has its key, so what runs goes on. TOOLS: an environment with pip and setuptools.
set -eu
python=$1 store=$2
shift 2
top=$(cd "$(dirname "$0")/.." && pwd)
key=$( ("$python" -c 'import platform, sys; print(sys.implementation.cache_tag, platform.machine())'; sort "$@") | sha256sum)
for packages in "$store"/packages.*; do
    [ "$(cat "$packages/key" 2>/dev/null)" = "$key" ] || continue
    ! "$TOOLS/bin/python" "$top/install/roles.py" whole "$packages" || exec echo "$packages"
done
packages=$(mktemp -d "$store/packages.XXXXXX")
chmod 755 "$packages"
# Unquoted: several flags, and several files.
"$TOOLS/bin/python" -m pip --disable-pip-version-check --quiet --python "$python" \
    install --root-user-action=ignore ${PIP_FLAGS:-} --no-deps --target "$packages" $(for lock; do echo "-r $lock"; done) >&2
rm -rf "$packages/bin"
echo "$key" >"$packages/key"
echo "$packages"
