#!/bin/sh
# install/place.sh MODE FOLDER [-e SED]... FILE...: copies files into a folder, each with its name, this mode and these edits.
#
# Each copy is made beside its place and renamed into it: slurmd and slurmctld may run, read or load the file at any instant,
# and a prolog that is missing or half there drains the node.
set -eu
mode=$1 folder=$2
shift 2
edits=
while [ "${1:-}" = -e ]; do edits="$edits
$2"; shift 2; done
install -d "$folder"
new=
trap '[ -z "$new" ] || rm -f "$new"' EXIT
for file; do
    # A name of its own, as two installations may run at once.
    new=$(mktemp "$folder/.${file##*/}.XXXXXX")
    if [ -n "$edits" ]; then sed "$edits" "$file" >"$new"; else cat "$file" >"$new"; fi
    chmod "$mode" "$new"
    mv -f "$new" "$folder/${file##*/}"
done
