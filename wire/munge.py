"""Authenticates reports, the answers to them, and requests for views with MUNGE, which every Slurm site runs.

A credential is over the SHA-256 of the body and, in an answer, that of the report; of a request for a view it is over the
SHA-256 of what is asked for.

MUNGE vouches for the sender's uid, refuses credentials past their time to live and, on the decoding host, a credential
that was decoded before. Its binaries are called because they are everywhere that Slurm is; see munge(1), unmunge(1).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import subprocess
from collections.abc import Callable, Collection
from dataclasses import dataclass

from slurm_soda.wire.errors import MungeError, MungeUnavailableError

CREDENTIAL_HEADER = "X-Soda-Munge"
"""HTTP header that carries the credential."""

KNOWN_HEADER = "X-Soda-Known"
"""HTTP header with what sodad gives agents whose report it took: false credentials of others on their host then do not count
against them. It proves nothing."""

MAX_CREDENTIAL_LENGTH = 4096

_REPORT, _ANSWER = "slurm-soda report 1 sha256", "slurm-soda answer 1 sha256"
_REQUEST = "slurm-soda request 1 sha256"
_SECRET = b"slurm-soda secret 1 "
"""Part of the sealed text, so that a credential made for anything else on the cluster, or for another of these, is worth
nothing here."""

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin", "LC_ALL": "C"}
_CREDENTIAL = re.compile(r"MUNGE:[A-Za-z0-9+/=]+:")
_CHECK_CLOCKS = "check the clocks of node and controller"
_REASONS = {
    14: ("was made with another key, or altered", "give all hosts the same munge.key and restart their munged"),
    15: ("has expired", _CHECK_CLOCKS),
    16: ("comes from the future", _CHECK_CLOCKS),
    17: ("was used before", "send it again with a new one"),
}
"""What unmunge's exit status says of a credential, and what to do."""

_FIRST_CREDENTIAL_STATUS = 8
"""Exit statuses of unmunge from here on are about the credential, lower ones about munged or the machine (munge.h)."""

RunProgram = Callable[[tuple[str, ...], bytes, float], tuple[int, bytes, bytes]]
"""Runs ``argv`` with standard input and a time limit in seconds; gives exit status, standard output and error."""


def run_program(argv: tuple[str, ...], stdin: bytes, timeout_s: float) -> tuple[int, bytes, bytes]:
    """Run a program with a fixed environment.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it took longer than ``timeout_s``; it has been killed.
    """
    done = subprocess.run(argv, input=stdin, capture_output=True, env=_ENVIRONMENT, timeout=timeout_s, check=False)
    return done.returncode, done.stdout, done.stderr


@dataclass(frozen=True, slots=True)
class MungeSender:
    """Who sealed a body, as MUNGE vouches for it."""

    uid: int
    address: str
    """Address of the host that made the credential."""


@dataclass(frozen=True, slots=True)
class MungeMessage:
    """What a valid credential of an allowed user carried."""

    sender: MungeSender
    payload: bytes

    def check_body(self, body: bytes, report: bytes | None = None) -> None:
        """Check that it is about this very body: a report or, to a ``report``, an answer.

        Raises:
            MungeError: it is about another one.
        """
        expected = _payload(_REPORT, body) if report is None else _payload(_ANSWER, report, body)
        if not hmac.compare_digest(self.payload, expected):
            raise MungeError(f"credential from {self.sender.address} is about another body")

    def check_request(self, target: bytes) -> None:
        """Check that it is about this very request, as :meth:`Munge.encode_request` makes it.

        Raises:
            MungeError: it is about another one.
        """
        if not hmac.compare_digest(self.payload, _payload(_REQUEST, target)):
            raise MungeError(f"credential from {self.sender.address} is about another request")


def check_form(credential: str) -> None:
    """Check that munge could have made this, which costs nothing.

    Raises:
        MungeError: it could not.
    """
    if len(credential) > MAX_CREDENTIAL_LENGTH or not _CREDENTIAL.fullmatch(credential):
        raise MungeError(f"credential {credential[:20]!a} is not one that munge made")


@dataclass(frozen=True, slots=True)
class Munge:
    """Seals and checks through the ``munge`` and ``unmunge`` programs."""

    run: RunProgram = run_program
    timeout_s: float = 5.0
    socket: str | None = None
    """Path of munged's socket where it is not the default."""

    def encode(self, body: bytes, report: bytes | None = None) -> str:
        """A credential of this process's user for ``body``, a report or the answer to one, on one line.

        Raises:
            MungeError: munge is missing, failed or did not answer in time.
        """
        return self._make(_payload(_REPORT, body) if report is None else _payload(_ANSWER, report, body))

    def encode_request(self, target: bytes) -> str:
        """A credential of this process's user for one request of a view: ``GET PATH?QUERY``.

        Raises:
            MungeError: munge is missing, failed or did not answer in time.
        """
        return self._make(_payload(_REQUEST, target))

    def encode_secret(self, secret: bytes, uid: int) -> str:
        """A credential in which this user alone can read ``secret``: MUNGE encrypts what it carries.

        Raises:
            MungeError: munge is missing, failed or did not answer in time.
        """
        return self._make(_SECRET + secret, f"--restrict-uid={uid}")

    def decode_secret(self, credential: str) -> bytes:
        """What :meth:`encode_secret` put there for this process's user.

        Raises:
            MungeError: it is for somebody else, is no such credential, or was read before; or unmunge does not answer.
        """
        payload = self.decode(credential).payload
        if not payload.startswith(_SECRET):
            raise MungeError("a credential carries no secret of slurm-soda")
        return payload.removeprefix(_SECRET)

    def check(
        self, body: bytes, credential: str, allowed_uids: Collection[int], report: bytes | None = None
    ) -> MungeSender:
        """Who sent ``body``, if ``credential`` is valid, fresh, unused, about this very body and of an allowed user.

        With ``report`` the body is sodad's answer to it.

        Raises:
            MungeError: it is not, or unmunge is missing, failed or did not answer in time.
        """
        message = self.decode(credential, allowed_uids)
        message.check_body(body, report)
        return message.sender

    def decode(self, credential: str, allowed_uids: Collection[int] | None = None) -> MungeMessage:
        """What ``credential`` carries, if it is valid, fresh, unused and of an allowed user (``None``: of any). It is
        used then.

        Raises:
            MungeUnavailableError: unmunge is missing, failed or did not answer in time.
            MungeError: it is not.
        """
        check_form(credential)
        keys = ("--numeric", "--keys=STATUS,UID,ENCODE_HOST")
        status, out, err = self._call("unmunge", keys, credential.encode())
        if status in _REASONS:
            raise MungeError("credential {}; {}".format(*_REASONS[status]))
        if status:
            kind = MungeError if status >= _FIRST_CREDENTIAL_STATUS else MungeUnavailableError
            raise kind(f"unmunge exited with status {status}: {_line(err)}; check munged and its key")
        sender, payload = _decoded(out)
        if allowed_uids is not None and sender.uid not in allowed_uids:
            allowed = ", ".join(str(uid) for uid in sorted(allowed_uids))
            raise MungeError(f"credential of uid {sender.uid} from {sender.address}; allowed is {allowed}")
        return MungeMessage(sender, payload)

    def _make(self, payload: bytes, *options: str) -> str:
        status, out, err = self._call("munge", options, payload)
        credential = out.decode("ascii", "replace").strip()
        if status or not _CREDENTIAL.fullmatch(credential):
            raise MungeError(f"munge exited with status {status}: {_line(err)}; check that munged runs on this host")
        return credential

    def _call(self, program: str, arguments: tuple[str, ...], stdin: bytes) -> tuple[int, bytes, bytes]:
        socket = () if self.socket is None else (f"--socket={self.socket}",)
        try:
            return self.run((program, *arguments, *socket), stdin, self.timeout_s)
        except subprocess.TimeoutExpired as error:
            raise MungeUnavailableError(
                f"{program} did not answer within {self.timeout_s:g} s; check munged"
            ) from error
        except OSError as error:
            raise MungeUnavailableError(f"{program} cannot be started ({error.strerror}); install munge") from error


def _payload(kind: str, *parts: bytes) -> bytes:
    """What is sealed: fixed lengths, so that no two messages have the same."""
    return " ".join([kind, *(hashlib.sha256(part).hexdigest() for part in parts)]).encode()


def _decoded(out: bytes) -> tuple[MungeSender, bytes]:
    """Take unmunge's answer apart: ``KEY: value`` lines, an empty line, the payload."""
    head, _, payload = out.partition(b"\n\n")
    values = dict(line.split(":", 1) for line in head.decode("ascii", "replace").splitlines() if ":" in line)
    try:
        return MungeSender(uid=int(values["UID"]), address=values["ENCODE_HOST"].strip()), payload
    except (KeyError, ValueError) as error:
        raise MungeError(f"unmunge's answer cannot be read: {_line(head)}") from error


def _line(raw: bytes) -> str:
    return " ".join(raw.decode("utf-8", "backslashreplace").split())[:200] or "no message"
