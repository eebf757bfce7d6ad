"""Real SQLite stores, made by the migrations."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_soda.daemon.store.engine import Store, open_store


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/soda.db"


@pytest.fixture
def store(made_store: Path, store_url: str, tmp_path: Path) -> Iterator[Store]:
    shutil.copy(made_store, tmp_path / "soda.db")
    opened = open_store(store_url)
    yield opened
    opened.close()
