from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agent.bench import Controller


@pytest.fixture
def controller() -> Iterator[Controller]:
    server = Controller()
    yield server
    server.stop()
