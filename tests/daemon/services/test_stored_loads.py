"""Load by minute as a new daemon finds it in the store."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from slurm_soda.daemon.services.known_service import KnownService, ServiceKey
from slurm_soda.daemon.services.service_load import LoadMinute
from slurm_soda.daemon.store.engine import open_store
from slurm_soda.daemon.store.services import add_minutes, load_loads, save_services
from slurm_soda.wire.services.service_file import read_service_file
from tests.daemon.harness import store_url
from tests.daemon.services.service_site import report

START = 28_000_000
"""Minutes since 1970."""


def test_minutes_of_known_services_come_back_since_an_instant(fresh_store: Path) -> None:
    store, sent = open_store(store_url(fresh_store)), report()
    kept = KnownService(ServiceKey("alice", "answers"), read_service_file(sent.service_file, "file"), sent, 0.0, 0.0)
    keys = [kept.key, ServiceKey("alice", "forgotten")]
    with store.write() as session:
        save_services(session, [kept], {})
        for owner, name in keys:
            minutes = [(0, 1.0), (3, 4.0), (1, 2.5)]
            add_minutes(session, [LoadMinute(owner, name, 60.0 * (START + at), 1, qps) for at, qps in minutes])
    with store.read() as session:
        for first, expected in ((0, [1.0, 2.5, np.nan, 4.0]), (1, [2.5, np.nan, 4.0])):
            ((key, history),) = load_loads(session, 60.0 * (START + first))
            assert (key, history.start) == (kept.key, START + first)
            np.testing.assert_array_equal(history.qps, expected)
        assert list(load_loads(session, 60.0 * (START + 9))) == []
