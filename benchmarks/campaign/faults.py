"""Each fault as a shell script for one host. What lasts for some time is taken back there, by a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.campaign.schedule import Event

CONTROLLER = "ctl"
CLOCK = "/run/campaign/clock"
"""libfaketime's file: the offset of sodad's clock."""
HOOK = "/run/campaign/hook"

_PID = "pid=$(cat /run/cluster/{daemon}.pid)"
_PAUSE = _PID + "; kill -STOP $pid; later {for_s} kill -CONT $pid"
_DATABASE = "/var/lib/slurm-soda/soda.db"
_SPOOL = "/var/spool/slurm-soda"

LATER = r"""
later() { # later SECONDS COMMAND…: in a process of its own
    seconds=$1; shift
    setsid sh -c 'sleep "$0"; "$@"' "$seconds" "$@" </dev/null >/dev/null 2>&1 &
}
"""

KILL_SODAD = r"""
for _ in $(seq 100); do # it may be between two lives
    [ -e /run/cluster/sodad.keep ] || exit 1
    old=$(cat /run/cluster/sodad.pid 2>/dev/null) && kill -KILL $old && killed=1 && break; sleep 0.1
done
[ -n "$killed" ] || exit 1
"""

KILL_AGAIN = (
    KILL_SODAD
    + r"""
for _ in $(seq 80); do
    new=$(cat /run/cluster/sodad.pid 2>/dev/null) && [ "$new" != "$old" ] && break; sleep 0.05
done
sleep {again_s}; kill -KILL $new
"""
)

_NETWORK = {
    "cut": "nft add table inet campaign; nft 'add chain inet campaign out {{ type filter hook output priority 0 ; }}';"
    " nft add rule inet campaign out tcp dport 6830 drop; later {for_s} nft delete table inet campaign",
    "garbage": "nft add table ip campaign; nft 'add chain ip campaign out {{ type nat hook output priority -150 ; }}';"
    " nft add rule ip campaign out tcp dport 6830 redirect to :16830; later {for_s} nft delete table ip campaign;"
    " setsid timeout {for_s} python3 /usr/local/share/campaign/impostor.py {how} </dev/null >/dev/null 2>&1 &",
}
_NETWORK["slow"] = _NETWORK["garbage"]

_SPOOLS = {
    "full": f"mount -t tmpfs -o size=4k,mode=700 campaign {_SPOOL}; head -c 4096 /dev/zero >{_SPOOL}/.campaign;"
    f" later {{for_s}} umount -l {_SPOOL}",
    "readonly": f"mount -t tmpfs -o ro,mode=700 campaign {_SPOOL}; later {{for_s}} umount -l {_SPOOL}",
}

_SET_CLOCK = f"echo TO >{CLOCK}.new; mv {CLOCK}.new {CLOCK}"

_SECOND = {
    # Status 3: refused, because the first one has the lock. Where that one has ended meanwhile there is no second one.
    "same": "flock -n /var/lib/slurm-soda/sodad.lock true && exit 0; first=$(head -n 1 /var/lib/slurm-soda/sodad.lock);"
    " setpriv --reuid slurm --regid slurm --init-groups timeout {for_s} /opt/slurm-soda/bin/sodad >/dev/null 2>&1;"
    " [ $? = 3 ] || ! kill -0 $first",
    "other-lock": "install -d -o slurm /run/campaign/second; sed -e '1i state_dir = \"/run/campaign/second\"'"
    " -e '$a [api]\\nport = 6899' /etc/slurm-soda/soda.toml >/run/campaign/second.toml;"
    " later 0 setpriv --reuid slurm --regid slurm --init-groups timeout {for_s} /opt/slurm-soda/bin/sodad"
    " --config /run/campaign/second.toml",
}

_SCRIPTS: dict[str, str] = {
    "kill-sodad": KILL_SODAD,
    "pause-sodad": _PAUSE.replace("{daemon}", "sodad"),
    "bury-sodad": "daemonctl kill sodad norestart; later {for_s} daemonctl start sodad",
    "kill-agent": "daemonctl kill soda-agent",
    "pause-agent": _PAUSE.replace("{daemon}", "soda-agent"),
    "hook": "echo '{signal} {after_ms} {for_s}' >" + HOOK + ".{hook}",
    "kill-slurmctld": "daemonctl kill slurmctld",
    "pause-slurmctld": _PAUSE.replace("{daemon}", "slurmctld"),
    "kill-slurmd": "daemonctl kill slurmd",
    "kill-slurmdbd": "daemonctl kill slurmdbd",
    # What sodad may write to any file ends here, as on a full disk; Python and SQLite get an error, not the signal.
    "store-full": _PID.replace("{daemon}", "sodad") + "; as='setpriv --reuid slurm --regid slurm --clear-groups';"
    " $as prlimit --pid $pid --fsize=8192:; later {for_s} $as prlimit --pid $pid --fsize=unlimited:",
    "store-readonly": f"chmod a-w {_DATABASE}* /var/lib/slurm-soda; kill -KILL $(cat /run/cluster/sodad.pid);"
    f" later {{for_s}} sh -c 'chmod u+w {_DATABASE}* /var/lib/slurm-soda'",
    # Stopped, copied, damaged; the copy comes back later, so that nothing is lost that was sent.
    "store-corrupt": "[ ! -d /run/campaign/store ] || exit 0; kill -CONT $(cat /run/cluster/sodad.pid);"
    " daemonctl stop sodad; mkdir -p /run/campaign/store;"
    f" cp -p {_DATABASE}* /run/campaign/store/ && dd if=/dev/urandom of={_DATABASE} bs=4096 seek=1 count=40 conv=notrunc"
    " 2>/dev/null; daemonctl start sodad; later {for_s} /usr/local/share/campaign/mend-store",
    "clock": _SET_CLOCK.replace("TO", "{sign}{hours}h")
    + "; later {for_s} sh -c '"
    + _SET_CLOCK.replace("TO", "+0")
    + "'",
}

MEND_STORE = f"""#!/bin/sh
# Bring back the copy of the store that was made before it was damaged.
[ -d /run/campaign/store ] || exit 0
kill -CONT $(cat /run/cluster/sodad.pid)
daemonctl stop sodad
rm -f {_DATABASE}*
cp -p /run/campaign/store/* /var/lib/slurm-soda/
rm -rf /run/campaign/store
daemonctl start sodad
"""

HOOK_WRAPPER = f"""#!/bin/sh
# A site's own hook that calls slurm-soda's, and has it killed or paused after a while if the campaign says so.
PATH=/usr/bin:/bin
hook=${{0##*-}}
mv {HOOK}.$hook {HOOK}.$$ 2>/dev/null || exec /opt/slurm-soda/libexec/$hook
read -r signal after_ms for_s <{HOOK}.$$
rm -f {HOOK}.$$
python3 -IS /usr/local/share/campaign/hit_hook.py $hook $signal $after_ms $for_s
exit 0
"""

HEAL_CONTROLLER = (
    """
rm -f /run/campaign/second.toml; """
    + _SET_CLOCK.replace("TO", "+0")
    + """
chmod u+w /var/lib/slurm-soda /var/lib/slurm-soda/soda.db*
for name in sodad slurmctld; do kill -CONT $(cat /run/cluster/$name.pid); done
/usr/local/share/campaign/mend-store
setpriv --reuid slurm --regid slurm --clear-groups prlimit --pid $(cat /run/cluster/sodad.pid) --fsize=unlimited:
for name in slurmdbd slurmctld sodad; do daemonctl start $name; done
rm -rf /run/campaign/second
"""
)

HEAL_NODE = f"""
nft delete table inet campaign; nft delete table ip campaign
while mountpoint -q {_SPOOL}; do umount -l {_SPOOL}; done
kill -CONT $(cat /run/cluster/soda-agent.pid)
for name in slurmd soda-agent; do daemonctl start $name; done
rm -f {HOOK}.*
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """A script for a shell of root's on one host."""

    host: str
    script: str


def fault(event: Event) -> Fault:
    """What does it."""
    values: Mapping[str, Any] = event.values
    host = str(values.get("node", CONTROLLER))
    if event.kind == "kill-sodad" and values["again_s"]:
        script = KILL_AGAIN.replace("{again_s}", str(values["again_s"]))
    elif event.kind in _BY_HOW:
        script = _BY_HOW[event.kind][values["how"]].format(**values)
    else:
        sign = "+" if values.get("hours", 0) > 0 else ""
        script = _SCRIPTS[event.kind].format(**values, sign=sign)
    return Fault(host, LATER + script)


_BY_HOW = {"network": _NETWORK, "spool": _SPOOLS, "second-sodad": _SECOND}


def kills(event: Event) -> tuple[str, int]:
    """Whom an event kills, and how often; of a hook that is only known later."""
    if event.kind == "kill-sodad":
        return "sodad", 2 if event.values["again_s"] else 1
    target = {"bury-sodad": "sodad", "store-readonly": "sodad"}.get(event.kind)
    if target is None and event.kind.startswith("kill-"):
        target = event.kind.removeprefix("kill-")
    return (target or "", 1 if target else 0)
