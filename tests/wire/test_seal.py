"""The MUNGE seal: with unmunge's real answers as recorded, and with a real munged where one can be started."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from slurm_soda.wire.errors import MungeError, MungeUnavailableError
from slurm_soda.wire.munge import Munge, MungeSender, run_program

BODY = b'{"node":"n1"}'
CREDENTIAL = "MUNGE:AwQFAAACy4mpN6mM5ZljdS9o49l+uGEvdZQ7Q326uJUdUofNXhz3Li==:"
PAYLOAD = b"slurm-soda report 1 sha256 " + sha256(BODY).hexdigest().encode()


def answer(status: int, uid: str = "0", payload: bytes = PAYLOAD) -> tuple[int, bytes, bytes]:
    """What `unmunge --numeric --keys=STATUS,UID,ENCODE_HOST` of MUNGE 0.5.16 writes."""
    head = f"STATUS:          {status}\nENCODE_HOST:     172.17.0.4\nUID:             {uid}\n\n"
    return status, head.encode() + payload, b""


class Recorded:
    """Plays one recorded outcome and keeps what it was asked."""

    def __init__(self, outcome: tuple[int, bytes, bytes] | Exception) -> None:
        self.outcome = outcome
        self.asked: list[tuple[tuple[str, ...], bytes]] = []

    def __call__(self, argv: tuple[str, ...], stdin: bytes, timeout_s: float) -> tuple[int, bytes, bytes]:
        self.asked.append((argv, stdin))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def test_the_digest_is_sealed_and_nothing_secret_is_in_argv() -> None:
    run = Recorded((0, CREDENTIAL.encode() + b"\n", b""))
    assert Munge(run).encode(BODY) == CREDENTIAL
    assert run.asked == [(("munge",), PAYLOAD)]


def test_a_good_credential_tells_who_sent_it() -> None:
    run = Recorded(answer(0))
    assert Munge(run).check(BODY, CREDENTIAL, {0}) == MungeSender(0, "172.17.0.4")
    assert run.asked == [(("unmunge", "--numeric", "--keys=STATUS,UID,ENCODE_HOST"), CREDENTIAL.encode())]


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (answer(15), "has expired"),
        (answer(16), "comes from the future"),
        (answer(17), "was used before"),
        (answer(0, uid="1000"), "uid 1000 from 172.17.0.4; allowed is 0"),
        (answer(0, payload=PAYLOAD[:-1] + b"!"), "about another body"),
        (answer(0, payload=sha256(BODY).hexdigest().encode()), "about another body"),
        (answer(0, uid="root"), "cannot be read"),
        ((0, b"", b""), "cannot be read"),
        ((8, b"", b"unmunge: Error: Failed to match armor prefix\n"), "status 8: unmunge: Error: Failed to match"),
        (subprocess.TimeoutExpired("unmunge", 5), "did not answer within 5 s"),
        (FileNotFoundError(2, "No such file or directory"), "install munge"),
    ],
)
def test_everything_else_is_refused_in_one_line(outcome: tuple[int, bytes, bytes] | Exception, said: str) -> None:
    with pytest.raises(MungeError) as caught:
        Munge(Recorded(outcome)).check(BODY, CREDENTIAL, {0})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "junk", ["", "x", "MUNGE::", "MUNGE:a b:", CREDENTIAL + "\n", "MUNGE:" + "A" * 5000 + ":", "MUNGE:\x00:"]
)
def test_what_munge_never_made_does_not_reach_unmunge(junk: str) -> None:
    run = Recorded(answer(0))
    with pytest.raises(MungeError, match="not one that munge made"):
        Munge(run).check(BODY, junk, {0})
    assert not run.asked


def test_a_munge_that_fails_says_what_to_do() -> None:
    with pytest.raises(MungeError, match="status 6: munge: Error: no socket; check that munged runs"):
        Munge(Recorded((6, b"", b"munge: Error:\n no socket\n"))).encode(BODY)


def test_programs_run_with_a_fixed_environment_and_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/evil.so")
    status, out, _ = run_program(("env",), b"", 10)
    assert status == 0
    assert b"evil" not in out
    with pytest.raises(subprocess.TimeoutExpired):
        run_program(("sleep", "30"), b"", 0.05)


@pytest.fixture
def munged(tmp_path: Path) -> Iterator[Munge]:
    """A private munged with a key of its own."""
    if not (shutil.which("munged") and shutil.which("munge") and shutil.which("unmunge")):
        pytest.skip("munge is not installed on this machine (the cluster's tests use the real one)")
    tmp_path.chmod(0o711)
    key, sock = tmp_path / "key", tmp_path / "sock"
    key.write_bytes(b"k" * 128)
    key.chmod(0o600)
    files = [f"--{name}-file={tmp_path / name}" for name in ("pid", "log", "seed")]
    argv = ["munged", "--foreground", "--force", f"--socket={sock}", f"--key-file={key}", *files]
    daemon = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if sock.exists():
                break
            time.sleep(0.05)
        yield Munge(socket=str(sock))
    finally:
        daemon.terminate()
        daemon.wait()


def test_an_answer_is_vouched_for_together_with_its_report() -> None:
    run = Recorded((0, f"{CREDENTIAL}\n".encode(), b""))
    Munge(run).encode(BODY, b"report")
    ((_, payload),) = run.asked
    assert payload == f"slurm-soda answer 1 sha256 {sha256(b'report').hexdigest()} {sha256(BODY).hexdigest()}".encode()
    Munge(Recorded(answer(0, payload=payload))).check(BODY, CREDENTIAL, {0}, b"report")
    for body, report in [(BODY, b"other"), (BODY, None), (b"report", BODY)]:
        with pytest.raises(MungeError, match="about another body"):
            Munge(Recorded(answer(0, payload=payload))).check(body, CREDENTIAL, {0}, report)


def test_real_munge_vouches_once_and_only_for_this_body(munged: Munge) -> None:
    credential = munged.encode(BODY)
    assert munged.check(BODY, credential, {os.getuid()}).uid == os.getuid()
    with pytest.raises(MungeError, match="was used before"):
        munged.check(BODY, credential, {os.getuid()})
    with pytest.raises(MungeError, match="about another body"):
        munged.check(BODY + b" ", munged.encode(BODY), {os.getuid()})
    with pytest.raises(MungeError, match=f"uid {os.getuid()} "):
        munged.check(BODY, munged.encode(BODY), {os.getuid() + 1})


def test_a_request_is_vouched_for_by_any_user_and_for_nothing_else() -> None:
    run = Recorded((0, f"{CREDENTIAL}\n".encode(), b""))
    Munge(run).encode_request(b"GET /v1/jobs?")
    ((_, payload),) = run.asked
    assert payload == f"slurm-soda request 1 sha256 {sha256(b'GET /v1/jobs?').hexdigest()}".encode()
    message = Munge(Recorded(answer(0, uid="1000", payload=payload))).decode(CREDENTIAL)
    assert message.sender.uid == 1000
    message.check_request(b"GET /v1/jobs?")
    for other in (b"GET /v1/jobs/7?", b"", payload):
        with pytest.raises(MungeError, match="about another request"):
            message.check_request(other)
    with pytest.raises(MungeError, match="about another body"):
        message.check_body(b"GET /v1/jobs?")


@pytest.mark.parametrize(
    ("outcome", "is_munges_fault"),
    [
        ((6, b"", b"unmunge: Error: Unable to access the socket"), True),
        (subprocess.TimeoutExpired("unmunge", 5), True),
        (FileNotFoundError(2, "No such file or directory"), True),
        (answer(8), False),
        (answer(14), False),
        (answer(18), False),
    ],
)
def test_a_munge_that_cannot_be_asked_is_told_from_a_bad_credential(
    outcome: tuple[int, bytes, bytes] | Exception, is_munges_fault: bool
) -> None:
    with pytest.raises(MungeError) as caught:
        Munge(Recorded(outcome)).decode(CREDENTIAL)
    assert isinstance(caught.value, MungeUnavailableError) == is_munges_fault


def test_a_secret_is_not_in_argv_and_is_told_from_other_messages() -> None:
    run = Recorded((0, f"{CREDENTIAL}\n".encode(), b""))
    assert Munge(run).encode_secret(b"s3cret", 1000) == CREDENTIAL
    assert run.asked == [(("munge", "--restrict-uid=1000"), b"slurm-soda secret 1 s3cret")]
    assert Munge(Recorded(answer(0, payload=b"slurm-soda secret 1 s3cret"))).decode_secret(CREDENTIAL) == b"s3cret"
    with pytest.raises(MungeError, match="carries no secret"):
        Munge(Recorded(answer(0))).decode_secret(CREDENTIAL)
    with pytest.raises(MungeError, match="status 18: unmunge: Error: Unauthorized"):
        Munge(Recorded((18, b"", b"unmunge: Error: Unauthorized credential\n"))).decode_secret(CREDENTIAL)


def test_real_munge_gives_a_secret_to_its_user_alone(munged: Munge) -> None:
    credential = munged.encode_secret(b"s3cret", os.getuid())
    assert b"s3cret" not in credential.encode()
    assert munged.decode_secret(credential) == b"s3cret"
    with pytest.raises(MungeError, match="status 18"):
        munged.decode_secret(munged.encode_secret(b"s3cret", os.getuid() + 1))
