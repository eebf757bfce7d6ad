"""What the controller, or whatever else answers in its place, may say to a report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from slurm_soda.agent.reporting.upload import MOST_BYTES, HttpUploader, UploadError
from slurm_soda.wire.core_tuning import ReportAnswer
from slurm_soda.wire.munge import CREDENTIAL_HEADER, KNOWN_HEADER, Munge
from slurm_soda.wire.records import NodeReport
from tests.wire.fake_munged import FakeMunged

REPORT = NodeReport("n1", "agent", 1, 1000.0)
MUNGED = FakeMunged()
MUNGE = Munge(MUNGED)

Reply = Callable[[bytes], bytes]
"""What somebody answers to a report."""


def post(
    reply: Reply | None, *, host: str = "127.0.0.1", timeout_s: float = 20.0, controller_user: str = "slurm"
) -> tuple[ReportAnswer | None, bytes]:
    """Send a report to somebody who answers so, or never; what the report came to, and what was received."""

    async def scene() -> tuple[ReportAnswer | None, bytes]:
        received = bytearray()
        connections = []

        async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(writer)
            received.extend(await reader.readuntil(b"\r\n\r\n"))
            length = next(
                int(line.partition(b":")[2])
                for line in received.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            )
            body = await reader.readexactly(length)
            received.extend(body)
            if reply is not None:
                writer.write(reply(body))
                writer.close()

        server = await asyncio.start_server(answers, host, 0)
        try:
            port = server.sockets[0].getsockname()[1]
            address = f"[{host}]" if ":" in host else host
            uploader = HttpUploader(f"http://{address}:{port}/", MUNGE, timeout_s, controller_user)
            return await uploader.send(REPORT), bytes(received)
        finally:
            server.close()
            for writer in connections:
                writer.close()

    return asyncio.run(scene())


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body


def by_sodad(said: bytes, body: bytes) -> Reply:
    """An answer with this body and, after its status line, sodad's credential."""

    def reply(report: bytes) -> bytes:
        credential = f"\r\n{CREDENTIAL_HEADER}: {MUNGE.encode(body, report)}\r\n".encode()
        before, line, after = said.rpartition(b" 20")
        return before + line + after.replace(b"\r\n", credential, 1)

    return reply


TAKEN = b'{"node": "n1", "seq": 1}'
NO_CONTENT = by_sodad(b"HTTP/1.1 204 No Content\r\n\r\n", b"")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_report_is_one_request_with_its_credential(host: str) -> None:
    taken, received = post(NO_CONTENT, host=host)
    assert taken is None
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert first == "POST /v1/reports HTTP/1.1"
    assert headers["Host"].rpartition(":")[0] == (f"[{host}]" if ":" in host else host)
    assert headers[CREDENTIAL_HEADER] in MUNGED.sealed
    assert (headers["Content-Type"], headers["Connection"]) == ("application/json", "close")
    assert NodeReport.from_json(body) == REPORT


@pytest.mark.parametrize(
    "said",
    [
        answer("200 OK", TAKEN),
        b"HTTP/1.0 200 OK\r\n\r\n" + TAKEN,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"5\r\n%b\r\n13\r\n%b\r\n0\r\n\r\n" % (TAKEN[:5], TAKEN[5:]),
        b"HTTP/1.1 100 Continue\r\n\r\n" + answer("201 Created", TAKEN),
    ],
    ids=["length", "until the end", "chunked", "after 100"],
)
def test_an_answer_is_read_however_its_length_is_told(said: bytes) -> None:
    taken, _ = post(by_sodad(said, TAKEN))
    assert taken == ReportAnswer.from_json(TAKEN)


def test_a_controller_of_another_version_took_it_too() -> None:
    thanks = json.dumps({"thanks": 1}).encode()
    assert post(by_sodad(answer("200 OK", thanks), thanks))[0] is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "RemoteDisconnected"),
        (b"munge\n", "BadStatusLine"),
        (b"HTTP/1.1 204 No\r\n" + b"x: y\r\n" * 200 + b"\r\n", "more than 100 headers"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "IncompleteRead"),
        (answer("200 OK", b" " * MOST_BYTES), f"an answer of more than {MOST_BYTES} bytes"),
        (answer("302 Found", b"", "Location: http://127.0.0.1:1/"), "answered 302"),
        (answer("503 Busy", b"come\x20back\nlater"), "answered 503: come back later"),
        (answer("403 No", b"\xff"), "answered 403: \N{REPLACEMENT CHARACTER}"),
    ],
)
def test_what_is_no_receipt_is_an_error_of_one_line(said: bytes, why: str) -> None:
    with pytest.raises(UploadError, match=why) as caught:
        post(lambda _: said)
    assert "\n" not in str(caught.value)


ORDER = {"job_id": 7, "restart": 0, "search": 0, "step": 1, "cores": 1}
PLANTED = json.dumps({"node": "n1", "seq": 1, "cores": [ORDER]}).encode()


def of_user(uid: int, body: bytes, report: bytes) -> str:
    MUNGED.uid = uid
    try:
        return MUNGE.encode(body, report)
    finally:
        MUNGED.uid = 0


def of_nobody(_report: bytes) -> str:
    return ""


def of_a_user(report: bytes) -> str:
    return of_user(12345, PLANTED, report)


def of_another_report(report: bytes) -> str:
    return MUNGE.encode(PLANTED, report + b" ")


def of_another_answer(report: bytes) -> str:
    return MUNGE.encode(TAKEN, report)


def of_a_report(_report: bytes) -> str:
    return MUNGE.encode(PLANTED)


@pytest.mark.parametrize("credential", [of_nobody, of_a_user, of_another_report, of_another_answer, of_a_report])
def test_an_impostor_on_sodads_port_is_not_believed(credential: Callable[[bytes], str]) -> None:
    """Neither that the report is taken, nor his order."""
    with pytest.raises(
        UploadError, match=r"answer refused: .*; only sodad, run by slurm \(controller_user\)"
    ) as caught:
        post(lambda report: answer("200 OK", PLANTED, f"{CREDENTIAL_HEADER}: {credential(report)}"))
    assert "\n" not in str(caught.value)


def test_the_agents_own_credential_is_no_answers() -> None:
    sent = []

    def reflect(report: bytes) -> bytes:
        sent.append(list(MUNGED.sealed)[-1])
        return answer("200 OK", report, f"{CREDENTIAL_HEADER}: {sent[0]}")

    with pytest.raises(UploadError, match="about another body"):
        post(reflect)


@pytest.mark.parametrize("user", ["nobody-of-this-name", "12345"])
def test_who_runs_sodad_can_be_named(user: str) -> None:
    def by_user(report: bytes) -> bytes:
        return answer("204 No", b"", f"{CREDENTIAL_HEADER}: {of_user(12345, b'', report)}")

    if user == "12345":
        assert post(by_user, controller_user=user)[0] is None
    else:
        with pytest.raises(
            UploadError, match=r"uid 12345 from .*; allowed is 0; only sodad, run by nobody-of-this-name"
        ):
            post(by_user, controller_user=user)


def test_who_never_answers_is_not_waited_for() -> None:
    with pytest.raises(UploadError, match=r"no answer within 0\.2 s"):
        post(None, timeout_s=0.2)


def test_without_munge_nothing_is_sent() -> None:
    uploader = HttpUploader("http://127.0.0.1:9/", Munge(FakeMunged(is_silent=True)), 1.0)
    with pytest.raises(UploadError, match="check that munged runs on this host"):
        asyncio.run(uploader.send(REPORT))


def test_no_proxy_of_the_site_gets_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert post(NO_CONTENT)[0] is None


@pytest.mark.parametrize("address", ["http://127.0.0.1:99999", "http://no.such.host.invalid:1", "http://\u20ac:1"])
def test_an_address_that_leads_nowhere(address: str) -> None:
    with pytest.raises(UploadError, match="/v1/reports: "):
        asyncio.run(HttpUploader(address, MUNGE, 20.0).send(REPORT))


def test_what_sodad_gave_is_shown_next_time() -> None:
    given, shown = iter(["a" * 64, "b" * 64, "no token", ""]), []

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict(line.split(": ", 1) for line in head[1:] if line)
        shown.append(fields[KNOWN_HEADER])
        report = await reader.readexactly(int(fields["Content-Length"]))
        writer.write(by_sodad(answer("200 OK", TAKEN, f"{KNOWN_HEADER}: {next(given)}"), TAKEN)(report))
        writer.close()

    async def scene() -> None:
        server = await asyncio.start_server(answers, "127.0.0.1", 0)
        uploader = HttpUploader(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", MUNGE, 5.0)
        for _ in range(4):
            await uploader.send(REPORT)
        server.close()

    asyncio.run(scene())
    assert shown == ["", "a" * 64, "b" * 64, ""]
