"""How prolog and epilog hand an event to the agent: over its socket, else into the spool by themselves.

One JSON line each way: the event, then ``ok`` once the agent has it in its spool, or ``no`` and the reason. As a rule
``deliver_event.c`` has done it already and none of this is imported; it is what prolog and epilog do otherwise. Imported by
them: keep the imports few (typing alone costs 3 ms), they are paid by every job.
"""

from __future__ import annotations

import json
import socket
import time

from slurm_soda.wire.errors import SodaError, SpoolError
from slurm_soda.wire.spool import SPOOL_DIRECTORY, Spool

AGENT_SOCKET = "/run/slurm-soda-agent/agent.sock"
AGENT_TIMEOUT_S = 0.3
"""A job waits for its prolog: after this the agent counts as away."""

MAX_EVENT_BYTES = 32 << 10


class AgentUnreachableError(SodaError):
    """The agent did not take an event; the text says why."""


def deliver_event(event: dict[str, object], agent_socket: str = AGENT_SOCKET, spool: str = SPOOL_DIRECTORY) -> str:
    """Give an event to the agent, or put it into the spool with the reason why under ``fault``; that reason is returned.

    An event has at least ``kind``, ``job_id`` and ``start_s``.

    Raises:
        SpoolError: neither was possible.
    """
    try:
        _send_to_agent(encode_event(event), agent_socket)
    except AgentUnreachableError as error:
        event = {**event, "fault": str(error)}
        directory = Spool(spool)
        try:
            directory.trim()  # an agent that never comes back must not fill the disk
            name = f"{event['job_id']}.{event['start_s']}.{event['kind']}"
            directory.write(name, encode_event(event), durable=True)
        finally:
            directory.close()
        return str(error)
    return ""


def encode_event(event: dict[str, object]) -> bytes:
    """An event as it is sent and kept.

    Raises:
        SpoolError: it is too long.
    """
    line = json.dumps(event, separators=(",", ":")).encode("ascii") + b"\n"
    if len(line) > MAX_EVENT_BYTES:
        raise SpoolError(f"event of {len(line)} bytes; at most {MAX_EVENT_BYTES} are kept")
    return line


def _send_to_agent(line: bytes, path: str) -> None:
    deadline_s = time.monotonic() + AGENT_TIMEOUT_S
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(AGENT_TIMEOUT_S)
        connection.connect(path)
        connection.sendall(line)
        answer = b""
        while not answer.endswith(b"\n"):
            connection.settimeout(max(0.001, deadline_s - time.monotonic()))
            part = connection.recv(512)
            if not part or len(answer) > 512:
                break
            answer += part
    except OSError as error:
        raise AgentUnreachableError(f"agent at {path} is away ({error.strerror or error})") from error
    finally:
        connection.close()
    if answer != b"ok\n":
        said = answer.decode("ascii", "backslashreplace").strip() or "no answer"
        raise AgentUnreachableError(f"agent at {path} did not take the event: {said[:200]}")
