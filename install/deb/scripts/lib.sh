# Of every maintainer script, which dpkg runs as root: build.py puts this before it. Each may be run again after it was interrupted.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin:/opt/slurm/bin:/usr/local/slurm/bin
LC_ALL=C
export PATH LC_ALL
unset CDPATH ENV IFS
umask 022
cd /
prefix=/opt/slurm-soda
store=$prefix/lib/slurm-soda
running=/run/slurm-soda-upgrade # root's, as /run is: which units an upgrade has stopped

say() { echo "$self: $*" >&2; }
with_systemd() { [ -d /run/systemd/system ]; }
# Also a daemon that fails, and that systemd tries again and again.
is_active() {
    with_systemd || return 1
    case $(systemctl show --property=ActiveState --value "$1" 2>/dev/null) in
    '' | inactive | failed) return 1 ;;
    esac
}
# As the site's policy has it, where there is one. Not by deb-systemd-invoke: it starts no unit that runs without being enabled.
unit() { # start|stop|restart UNIT
    if [ -x /usr/sbin/policy-rc.d ]; then
        status=0
        /usr/sbin/policy-rc.d "${2%.*}" "$1" >/dev/null 2>&1 || status=$?
        [ "$status" != 101 ] || return 0
    fi
    systemctl "$@"
}
stop_for_upgrade() {
    for unit; do
        is_active "$unit" || continue
        mkdir -p "$running" && : >"$running/$unit"
        unit stop "$unit"
        # What the timer has begun would find half of the files.
        [ "$unit" != sodad-expiry.timer ] || unit stop sodad-expiry.service || true
    done
}
stop_for_good() {
    # In a node's image nothing runs, and the links that enable units are there.
    command -v systemctl >/dev/null || return 0
    for unit; do
        ! with_systemd || unit stop "$unit" || true
        systemctl --quiet disable "$unit" 2>/dev/null || true
    done
}
state_folder() { # where sodad has its lock
    named=$(sed -n "s/^[[:space:]]*state_dir[[:space:]]*=[[:space:]]*[\"']\(\/[^\"']*\)[\"'].*/\1/p" /etc/slurm-soda/soda.toml 2>/dev/null) || named=
    echo "${named:-/var/lib/slurm-soda}"
}
# Before the files of any package change, whichever dpkg takes first: daemons stop, which import some modules late.
prepare_for_another() {
    stop_for_upgrade sodad-expiry.timer sodad.service soda-agent.service
    make_store_ready "$@"
}
# The sodad that is installed, while it is whole, makes its store ready for the version to come. $1: newest revision of the store
# that this one knows; $2: the version to come.
make_store_ready() {
    state=$(state_folder)
    [ -x $prefix/bin/sodad ] && [ -e "$state/sodad.lock" ] || return 0
    mkdir -p "$running"
    # Not where a sodad has had it since: dpkg was interrupted, and somebody started that again.
    [ "$(cat "$running/store" 2>/dev/null)" = "ready $2" ] && [ "$running/store" -nt "$state/sodad.lock" ] && return
    # As whoever owns the store: root is not led anywhere by what is in his directory.
    owner=$(stat -c %U -- "$state/")
    runuser -u "$owner" -- $prefix/bin/sodad --prepare-for "$1" || {
        if [ -n "${SLURM_SODA_FORCE:-}" ]; then
            say "the store is as it was, and may not suit $2"
            return 0
        fi
        say "the store was not made ready for $2, and nothing was changed; mend that, or go on with the store as it is: SLURM_SODA_FORCE=1"
        exit 1
    }
    echo "ready $2" >"$running/store"
}
# What an upgrade stopped; nothing else, so that what nobody has enabled stays off.
start_again() {
    rm -f "$running/store"
    rmdir "$running" 2>/dev/null || true
    with_systemd || return 0
    systemctl daemon-reload || true
    for unit; do
        [ -e "$running/$unit" ] || continue
        rm -f "$running/$unit"
        unit start "$unit" || say "$unit does not start: journalctl -u $unit"
    done
    rmdir "$running" 2>/dev/null || true
}
start_all_again() { start_again sodad.service sodad-expiry.timer soda-agent.service; }
# What a package has made; a folder that is a mount stays, empty.
remove_folders() {
    for folder; do
        rm -rf --one-file-system "$folder" || say "left: $folder"
    done
}
# Which file that Slurm reads still names ours, or nothing. slurmd drains a node whose Prolog is gone, and cancels the job.
refuse_while_slurm_uses_it() {
    # The plugin's package may be removed after the one with the script.
    [ -z "${SLURM_SODA_FORCE:-}" ] && [ -x "$store/packaged/named_by_slurm.sh" ] || return 0
    used=$("$store/packaged/named_by_slurm.sh" "$prefix" "$@") || return 0
    say "nothing was removed: Slurm still uses $prefix ($used); take that out, run scontrol reconfigure, and then this again"
    say "or SLURM_SODA_FORCE=1, on a machine that Slurm has left"
    exit 1
}
# What `make install` of the same files has left; the packages have their own.
take_over() {
    for unit; do
        file=/etc/systemd/system/$unit
        [ -f "$file" ] && [ ! -L "$file" ] && grep -qsF "=$prefix/" "$file" || continue
        rm -f "$file"
        say "$file, of make install, has made way for the package's"
        command -v systemctl >/dev/null || continue
        ! with_systemd || systemctl daemon-reload || true
        ! systemctl --quiet is-enabled "$unit" 2>/dev/null || systemctl --quiet reenable "$unit" || true
        ! is_active "$unit" || unit restart "$unit" || say "$unit does not start: journalctl -u $unit"
    done
    missing= coming=
    for role in $(cat "$store"/environment.??????/roles 2>/dev/null | sort -u); do
        case $(dpkg-query -W -f '${db:Status-Status}' "slurm-soda-$role" 2>/dev/null) in
        half-configured | triggers-* | installed) ;;
        unpacked) coming=1 ;;
        *) missing="$missing slurm-soda-$role" ;;
        esac
    done
    [ -z "$missing" ] || say "make install has been here for more than these packages are for: apt-get install$missing"
    # Daemons of these roles may still run from there.
    [ -n "$missing$coming" ] || rm -rf "$store"/environment.?????? "$store"/packages.?????? "$store"/.work.?????? "$store/.lock"
    for command in sodactl soda-agent; do
        link=/usr/local/bin/$command
        [ "$(readlink "$link")" != "$prefix/bin/$command" ] || rm -f "$link"
    done
}
