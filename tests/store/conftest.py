"""Real SQLite stores, made by the migrations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_soda.daemon.store.engine import Store, open_store


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/soda.db"


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    opened = open_store(store_url)
    yield opened
    opened.close()
