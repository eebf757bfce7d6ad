"""The service that is served: its server, which answers in stated times, its file, its profile, and sodad's configuration.

The server sleeps for as long as a batch takes, so that its times are known and the machine's cores are left to Slurm, sodad,
router and load; everything else of it is the example's (``examples/serving/http_service.py``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from slurm_soda.demo.services_day.owner_commands import OWNER

SERVICE = "answers"
FOLDER = f"/home/{OWNER}/faults"
SERVICE_FILE = f"{FOLDER}/{SERVICE}.toml"
SERVER = f"{FOLDER}/server.py"
PROFILE_FOLDER = f"{FOLDER}/services/{SERVICE}"
ROUTER_PORT = 8080
WINDOW_MS = 20.0
TASKS = 30
"""Of each array: an instance that is killed spends its task."""

BATCH_TIMES: Mapping[str, tuple[int, float, float]] = {"cpu": (2, 10.0, 20.0), "gpu": (8, 5.0, 2.0)}
"""Most queries at once, milliseconds of a batch, and of each query in it: 40 and 381 queries a second."""
HEADROOM = 0.6
"""Part of that sodad counts on: less than its default, so that a load above the switching point does not yet queue."""
LOW_QPS, HIGH_QPS = 14.0, 28.0
"""Below and above what sodad counts on for one instance on cores, with the hysteresis."""
BURST_QPS = 8.0
"""Before a burst and after; ten times as much takes four instances on cores."""

SERVER_TEXT = f"""\
import sys, time
sys.path.insert(0, "{FOLDER}")
from http_service import Service
port, device, batch, window_ms = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
base_ms, each_ms = {json.dumps({device: times[1:] for device, times in BATCH_TIMES.items()})}[device]
def answer_all(queries):
    time.sleep((base_ms + each_ms * len(queries)) / 1000)
    return queries
Service(answer_all, batch=batch, window_ms=window_ms).run(port=port)
"""

DAEMON_TOML = f"""\
mode = "enforce"
[policy]
name = "fifo"
[cycle]
interval_s = 1
[change_limits]
min_change_interval_s = 0.2
breaker_failures = 1000
[services]
headroom = {HEADROOM}
cool_down_s = 4
retry_s = 10
lease_s = 60
"""
"""Seconds stand for minutes: sodad's default cool-down is 300 s, and it replaces a failed instance after 30 s."""


def service_text(target_ms: float) -> str:
    """The service file: one instance at first, on cores or on a GPU."""
    devices = "".join(f"[{device}]\ncores = 1\nbatch = {times[0]}\n" for device, times in BATCH_TIMES.items())
    return f"""\
name = "{SERVICE}"
command = "exec python3 {SERVER} {{port}} {{device}} {{batch}} {{window_ms}}"
target_ms = {target_ms:g}
window_ms = {WINDOW_MS:g}
folder = "{FOLDER}/services"
[replicas]
least = 1
most = 1
{devices}"""


def profile_document(target_ms: float, now_s: float) -> dict[str, Any]:
    """What a profile of this server would say, since its times are known."""
    devices = [
        {"device": device, "batch": batch, "batch_ms": base_ms + batch * each_ms, "cores": 1}
        for device, (batch, base_ms, each_ms) in BATCH_TIMES.items()
    ]
    return {"target_ms": target_ms, "window_ms": WINDOW_MS, "measured_at_s": now_s, "devices": devices}
