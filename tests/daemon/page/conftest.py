"""A site with a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_soda.daemon.api import viewers
from slurm_soda.daemon.page import routes
from slurm_soda.daemon.store.engine import open_store
from tests.daemon.page.page_site import USERS, PageSite


@pytest.fixture
def site(fresh_store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageSite]:
    for module in (viewers, routes):
        monkeypatch.setattr(module, "user_name", lambda uid: USERS[uid])
    monkeypatch.setattr(viewers.os, "getuid", lambda: 64030)
    store = open_store(f"sqlite:///{fresh_store}/soda.db")
    yield PageSite(store)
    store.close()
