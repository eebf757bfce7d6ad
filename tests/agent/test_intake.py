"""The agent's socket, with real connections from handover and from strangers."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_soda.agent.job_events.event_socket import EventSocket, EventSocketError
from slurm_soda.wire.event_delivery import MAX_EVENT_BYTES, deliver_event

EVENT: dict[str, object] = {"kind": "open", "job_id": 1, "start_s": 2}


class Desk:
    """An intake that keeps what it is given, or refuses."""

    def __init__(self, path: Path, refusal: str = "") -> None:
        self.lines: list[bytes] = []
        self.taken = 0
        self._refusal = refusal
        self.event_socket = EventSocket(str(path), self._take, self._count)

    def _take(self, line: bytes) -> str:
        self.lines.append(line)
        return self._refusal

    def _count(self) -> None:
        self.taken += 1


def test_prolog_and_agent_understand_each_other(tmp_path: Path) -> None:
    path, spool = tmp_path / "run" / "agent.sock", tmp_path / "spool"

    async def scene() -> None:
        desk = Desk(path)
        await desk.event_socket.start()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        said = await asyncio.gather(
            *(asyncio.to_thread(deliver_event, EVENT, str(path), str(spool)) for _ in range(20))
        )
        assert said == [""] * 20
        assert desk.lines == [b'{"kind":"open","job_id":1,"start_s":2}\n'] * 20
        await asyncio.sleep(0)
        await desk.event_socket.stop()
        assert desk.taken == 20
        assert not path.exists()
        assert not spool.exists()

    asyncio.run(scene())


def test_a_refusal_reaches_the_prolog_which_keeps_the_event(tmp_path: Path) -> None:
    async def scene() -> str:
        desk = Desk(tmp_path / "sock", "spool: disk full\n\xff")
        await desk.event_socket.start()
        said = await asyncio.to_thread(deliver_event, EVENT, str(tmp_path / "sock"), str(tmp_path / "spool"))
        await desk.event_socket.stop()
        assert desk.taken == 0
        return said

    assert "did not take the event: no spool: disk full" in asyncio.run(scene())
    assert (tmp_path / "spool" / "1.2.open").exists()


@pytest.mark.parametrize("sent", [b"", b"half a line", b"x" * (MAX_EVENT_BYTES + 9) + b"\n"])
def test_no_line_half_a_line_and_a_huge_line_are_no_events(tmp_path: Path, sent: bytes) -> None:
    async def scene() -> bytes:
        desk = Desk(tmp_path / "sock")
        await desk.event_socket.start()
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "sock"))
        writer.write(sent)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        await desk.event_socket.stop()
        assert desk.lines == []
        return answer

    assert asyncio.run(scene()).startswith(b"no no whole line")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_is_not_heard(tmp_path: Path) -> None:
    """Even with the socket's mode opened by mistake, the kernel's word on the peer decides."""
    tmp_path.chmod(0o755)
    program = (
        "import os, socket; os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.connect('sock'); print(s.recv(99))"
    )

    async def scene() -> bytes:
        desk = Desk(tmp_path / "sock")
        await desk.event_socket.start()
        (tmp_path / "sock").chmod(0o666)
        argv = [sys.executable, "-ISc", program]
        done = await asyncio.to_thread(subprocess.run, argv, cwd=tmp_path, capture_output=True, timeout=20)
        await desk.event_socket.stop()
        assert desk.lines == []
        return bytes(done.stdout + done.stderr)

    assert b"no uid 65534 may not speak here" in asyncio.run(scene())


def test_a_dead_agents_socket_is_replaced_a_living_ones_not(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()

    async def scene() -> None:
        desk = Desk(path)
        await desk.event_socket.start()
        with pytest.raises(EventSocketError, match="another agent listens there; stop it first"):
            await Desk(path).event_socket.start()
        assert path.exists()
        await desk.event_socket.stop()

    asyncio.run(scene())


def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "sock").write_text("precious")
    with pytest.raises(EventSocketError, match="something else is there; remove it"):
        asyncio.run(Desk(tmp_path / "sock").event_socket.start())
    assert (tmp_path / "sock").read_text() == "precious"
