"""A mounted stand-in for resctrl, one process a test session, a fresh machine for each test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SERVER = Path(__file__).parents[3] / "emulation" / "resctrl" / "serve.py"


@dataclass(frozen=True)
class Machine:
    """The stand-in: its mount, and what no file shows."""

    mount: Path
    server: subprocess.Popen[str]

    def tell(self, **command: Any) -> Any:
        """One command of ``serve.Control``."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(command) + "\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())

    def run(self, tasks: dict[int, dict[int, float]]) -> None:
        """Threads with the bytes/s that each wants of each domain."""
        self.tell(run=tasks)

    def look(self) -> dict[str, dict[str, list[int]]]:
        """All groups as the model holds them."""
        found: dict[str, dict[str, list[int]]] = self.tell(look=None)["groups"]
        return found

    def log(self) -> list[str]:
        """What was made, written and removed."""
        found: list[str] = self.tell(look=None)["log"]
        return found


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    point = tmp_path_factory.mktemp("resctrl")
    process = subprocess.Popen(
        [sys.executable, str(SERVER), str(point)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    said = json.loads(process.stdout.readline() or '{"refused": "the stand-in did not start"}')
    if "refused" in said:
        process.wait(10)
        pytest.skip(f"the resctrl stand-in needs /dev/fuse and the right to mount: {said['refused']}")
    yield Machine(Path(said["mount"]), process)
    process.stdin.close()
    process.wait(10)


@pytest.fixture
def machine(server: Machine) -> Machine:
    """Two sockets of 100 GB/s, MBA in steps of 10 %, MBM, CAT; 4 control ids, 16 monitoring ids."""
    server.tell(reset={})
    return server
