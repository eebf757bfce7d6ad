"""What a hostile user tries: each attempt is a command of carol's, and whether it may succeed.

An attempt that must be refused has status 0 where it was not. The others may submit a job, which then is one like any other,
or may be refused; nothing else may come of them.
"""

from __future__ import annotations

from dataclasses import dataclass

JOB_NAME = "hostile"
_SBATCH = f"sbatch --parsable --output=/dev/null --time=2 --job-name={JOB_NAME}"
_JUNK = """
import os, random, socket
draw = random.Random()
for _ in range(20):
    try:
        with socket.create_connection(("ctl", 6830), 2) as link:
            link.settimeout(1)
            head = draw.choice([b"GET ", b"POST ", b"\\x16\\x03\\x01", b"", b"PUT /v1/reports HTTP/9.9\\r\\n"])
            link.sendall(head + os.urandom(draw.randrange(3000)) + draw.choice([b"", b"\\r\\n\\r\\n"]))
            link.recv(100)
    except OSError:
        pass
"""
_HALF_OPEN = """
import socket, time
links = []
for at in range(120):
    try:
        link = socket.create_connection(("ctl", 6830), 2)
        link.sendall(b"POST /v1/reports HTTP/1.1\\r\\nHost: ctl\\r\\nContent-Length: 4000000\\r\\n" + b"\\r\\n" * (at % 2))
        links.append(link)
    except OSError:
        pass
time.sleep(4)
"""
_FORGED = """
import json, subprocess, sys, urllib.request
body = json.dumps({"version": 1, "node": "n1", "agent_id": "forged", "seq": 1, "sent_s": 0.0}).encode()
own = subprocess.run(["munge"], input=body, capture_output=True).stdout.strip()
taken = 0
for credential in (own, own[:-9] + b"AAAAAAAA:", b"MUNGE:AwQDAAA=:", b"", b"M" * 7000):
    request = urllib.request.Request("http://ctl:6830/v1/reports", body, {"X-Soda-Munge": credential.decode()})
    try:
        taken += urllib.request.urlopen(request, timeout=5).status == 200
    except OSError:
        pass
sys.exit(taken == 0)
"""

_QUESTIONS = """
import urllib.request
for path in ("status?cycles=99999999999999999999", "jobs/%00", "jobs/-1", "fit?limit=5000&user=%ff", "jobs/" + "9" * 3000):
    try:
        urllib.request.urlopen("http://ctl:6830/v1/" + path, timeout=5).read()
    except OSError:
        pass
"""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt."""

    command: str
    """For a shell."""
    refused: bool = True
    """It must not succeed."""
    on_node: bool = False
    """Made on a compute node, else on the controller."""


def _python(script: str, **about: bool) -> Attempt:
    return Attempt(f"python3 - <<'END'{script}END\n", **about)


ATTEMPTS: dict[str, Attempt] = {
    "flag-checkpoint": Attempt(f"{_SBATCH} '--soda-checkpoint=KILL@-1' --wrap=true"),
    "flag-batch-size": Attempt(f"{_SBATCH} --soda-batch-size=$(printf '9%.0s' $(seq 4000)) --wrap=true"),
    "flag-model": Attempt(f"{_SBATCH} \"--soda-model=$(printf 'a\\n;$(id)')\" --wrap=true"),
    "huge-comment": Attempt(f"{_SBATCH} \"--comment=$(printf 'soda:%.0s' $(seq 6000))\" --wrap=true", refused=False),
    "odd-comment": Attempt(
        f"{_SBATCH} \"--comment=$(printf 'soda:v1,checkpoint_signal=KILL,iterations=1\\033[2J\\377|')\" --wrap=true",
        refused=False,
    ),
    "digits": Attempt(f"{_SBATCH} --cpus-per-task=1 --gres=gpu:$(printf '9%.0s' $(seq 4000)) --wrap=true"),
    "shared-gres": Attempt(f"{_SBATCH} --gres=cog:g0:1 --wrap='sleep 1'", refused=False),
    "odd-account": Attempt(f"{_SBATCH} \"--account=$(printf 'lab\\377')\" --wrap=true", refused=False),
    "site-factor": Attempt("id=$(" + _SBATCH + " --hold --wrap=true); scontrol update jobid=$id SiteFactor=100000; "
                           "s=$?; scancel $id; exit $s"),
    "negative-nice": Attempt("id=$(" + _SBATCH + " --hold --wrap=true); scontrol update jobid=$id Nice=-100000; "
                             "s=$?; scancel $id; exit $s"),
    "others-job": Attempt("id=$(squeue -h -o %i -u alice,bob | head -n 1); [ -n \"$id\" ] || exit 1; "
                          "scontrol hold $id || scontrol requeue $id || scancel --signal=STOP $id"),
    "mode": Attempt("sodactl mode observe"),
    "release-all": Attempt("sodactl release-all"),
    "release-lifts": Attempt("sodactl release-lifts"),
    "undo": Attempt("sodactl undo --last 5"),
    "store": Attempt("cat /var/lib/slurm-soda/soda.db || echo x >>/var/lib/slurm-soda/sodad.lock"),
    "spool": Attempt("ls /var/spool/slurm-soda || echo '{}' >/var/spool/slurm-soda/1.1.open", on_node=True),
    "agent-socket": _python("""
import socket
link = socket.socket(socket.AF_UNIX)
link.connect("/run/slurm-soda-agent/agent.sock")
link.sendall(b'{"kind": "close", "job_id": 1}\\n')
""", on_node=True),
    "junk": _python(_JUNK, refused=False, on_node=True),
    "half-open": _python(_HALF_OPEN, refused=False, on_node=True),
    "forged": _python(_FORGED, on_node=True),
    "questions": _python(_QUESTIONS, refused=False, on_node=True),
}  # fmt: skip
