"""Commands in containers, against an engine that answers as Docker does, on a socket of its own."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from slurm_soda.containers.container_commands import run_in_container

UPGRADED = (
    b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.multiplexed-stream\r\n"
    b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
)


def frame(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxL", stream, len(data)) + data


def answer(document: dict[str, object]) -> bytes:
    body = json.dumps(document).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Engine:
    """Takes one request a connection; the started command says ``pieces``, each in one packet."""

    def __init__(self, path: Path) -> None:
        self.url = f"unix://{path}"
        self.pieces: list[bytes] = []
        self.pause_s = 0.05
        self.statuses: list[int | None] = [3]
        """What it says of the command's end, one after the other; the last one from then on."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as requests:
            while line := requests.readline():
                length = 0
                while (header := requests.readline()) not in (b"\r\n", b""):
                    name, _, value = header.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                requests.read(length)
                if b"/start " in line:
                    for piece in self.pieces:
                        connection.sendall(piece)
                        time.sleep(self.pause_s)
                    return
                if line.startswith(b"GET"):
                    status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
                    connection.sendall(answer({"ExitCode": status}))
                else:
                    connection.sendall(answer({"Id": "e1"}))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(tmp_path / "docker.sock")
    yield engine
    engine.close()


SAID = frame(1, b"first\n") + frame(2, b"careful\n") + frame(1, b"x" * 20_000)


@pytest.mark.parametrize(
    "pieces",
    [
        [UPGRADED, SAID],
        [UPGRADED + SAID],
        [UPGRADED + SAID[:3], SAID[3:30], SAID[30:]],
        [UPGRADED[:40], UPGRADED[40:] + SAID[:11], SAID[11:]],
    ],
    ids=["headers first", "all at once", "torn", "torn headers"],
)
def test_output_is_whole_however_it_comes(engine: Engine, pieces: list[bytes]) -> None:
    engine.pieces = pieces
    client = docker.DockerClient(base_url=engine.url, version="1.43")
    done = run_in_container(client, "c1", ("say",))
    assert (done.stdout, done.stderr, done.status) == ("first\n" + "x" * 20_000, "careful\n", 3)


def test_silence_says_nothing(engine: Engine) -> None:
    engine.pieces = [UPGRADED]
    client = docker.DockerClient(base_url=engine.url, version="1.43")
    assert run_in_container(client, "c1", ("true",)).stdout == ""


def test_a_status_that_the_engine_does_not_know_yet_is_asked_for_again(engine: Engine) -> None:
    engine.pieces, engine.statuses = [UPGRADED], [None, None, 4]
    client = docker.DockerClient(base_url=engine.url, version="1.43")
    assert run_in_container(client, "c1", ("false",)).status == 4


def test_a_command_may_be_silent_for_longer_than_the_clients_time_limit(engine: Engine) -> None:
    engine.pieces, engine.pause_s = [UPGRADED, frame(1, b"late")], 1.25
    client = docker.DockerClient(base_url=engine.url, version="1.43", timeout=1)
    assert run_in_container(client, "c1", ("wait",)).stdout == "late"
