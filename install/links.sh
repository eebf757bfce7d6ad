#!/bin/sh
# install/links.sh PREFIX FOLDER [remove]: FOLDER, which is in people's PATH, gets links to the commands of PREFIX that people type,
# or loses them. What is there and no such link stays.
set -eu
umask 022
prefix=$(echo "$1" | sed 's|//*|/|g; s|/$||') folder=$2
[ -n "$folder" ] && ! [ "$prefix/bin" -ef "$folder" ] || exit 0
for command in sodactl soda-agent; do
    link=$folder/$command
    if [ "$(readlink "$link")" = "$prefix/bin/$command" ]; then
        [ "${3:-}" != remove ] || rm -f "$link"
    elif [ "${3:-}" = remove ] || [ ! -e "$prefix/bin/$command" ]; then
        continue
    elif [ -e "$link" ] || [ -L "$link" ]; then
        echo "$link is something else and stays; LINKS=… names another folder for links to $prefix/bin" >&2
    else
        mkdir -p "$folder"
        ln -s "$prefix/bin/$command" "$link"
    fi
done
