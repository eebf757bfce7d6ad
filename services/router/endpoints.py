"""Instances that can be sent queries, for another router than ours."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPException

from slurm_soda.services.router.heartbeats import Heartbeats
from slurm_soda.services.router.service_folder import FolderContent, ServiceFolder
from slurm_soda.wire.services.instance_file import InstanceFile

CHECK_S = 2.0
"""For an instance's answer to a check."""
WATCH_S = 3.0
"""For how long a file is watched whose heartbeat is not of now by this host's clock; it is written every 2 s."""


def healthy_endpoints(folder: ServiceFolder, health: str) -> tuple[list[InstanceFile], FolderContent]:
    """Instances that are ready by their files, still write them, and answer the health path with 200; and all that was read.

    Raises:
        OSError, FolderError: the folder cannot be read.
    """
    heartbeats, content = Heartbeats(), folder.read()
    heartbeats.observe(content.instances, time.monotonic(), time.time())
    if any(heartbeats.silent(stem, time.monotonic()) for stem in _ready(content.instances)):
        time.sleep(WATCH_S)
        content = folder.read()
        heartbeats.observe(content.instances, time.monotonic(), time.time())
    now_s = time.monotonic()
    alive = [
        instance
        for stem, instance in _ready(content.instances).items()
        if stem not in content.drains and not heartbeats.silent(stem, now_s)
    ]
    with ThreadPoolExecutor(max_workers=max(1, min(32, len(alive)))) as pool:
        answers = list(pool.map(lambda instance: _answers(instance, health), alive))
    return [instance for instance, well in zip(alive, answers, strict=True) if well], content


def _ready(instances: Mapping[str, InstanceFile]) -> dict[str, InstanceFile]:
    return {stem: instance for stem, instance in instances.items() if instance.state == "ready"}


def _answers(instance: InstanceFile, health: str) -> bool:
    try:
        with closing(HTTPConnection(instance.host, instance.port, timeout=CHECK_S)) as connection:
            connection.request("GET", health)
            return connection.getresponse().status == 200
    except (OSError, HTTPException, ValueError):
        return False
