"""Stands in for MUNGE's programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count


@dataclass
class FakeMunged:
    """Answers for munge and unmunge: a credential is good once."""

    uid: int = 0
    """Who makes credentials, and reads them."""
    restricted: dict[str, int] = field(default_factory=dict)
    """Who alone may read a credential."""
    sealed: dict[str, tuple[int, bytes] | None] = field(default_factory=dict)
    is_silent: bool = False
    """munged does not run."""
    refusal: int = 0
    """What unmunge exits with, whatever it is given."""
    decoded: int = 0
    """Calls of unmunge."""
    numbers: count[int] = field(default_factory=count)

    def __call__(self, argv: tuple[str, ...], stdin: bytes, timeout_s: float) -> tuple[int, bytes, bytes]:
        if self.is_silent:
            return 6, b"", f"{argv[0]}: Error: Unable to access the socket".encode()
        if argv[0] == "munge":
            name = f"MUNGE:{next(self.numbers):08d}:"
            self.sealed[name] = self.uid, stdin
            for word in argv:
                if word.startswith("--restrict-uid="):
                    self.restricted[name] = int(word.partition("=")[2])
            return 0, name.encode() + b"\n", b""
        self.decoded += 1
        if self.refusal:
            return self.refusal, b"", b"unmunge: Error: no"
        found = self.sealed.get(stdin.decode())
        if found is None:
            return 17, b"", b"unmunge: Error: Replayed credential"
        if self.restricted.get(stdin.decode(), self.uid) != self.uid:
            return 18, b"", b"unmunge: Error: Unauthorized credential"
        self.sealed[stdin.decode()] = None
        uid, payload = found
        return 0, f"STATUS: Success (0)\nUID: {uid}\nENCODE_HOST: n1 (10.0.0.2)\n\n".encode() + payload, b""
