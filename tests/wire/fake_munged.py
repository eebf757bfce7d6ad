"""Stands in for MUNGE's programs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class FakeMunged:
    """Answers for munge and unmunge: a credential is good once."""

    uid: int = 0
    sealed: dict[str, bytes] = field(default_factory=dict)

    def __call__(self, argv: tuple[str, ...], stdin: bytes, timeout_s: float) -> tuple[int, bytes, bytes]:
        if argv[0] == "munge":
            name = f"MUNGE:{len(self.sealed):08d}:"
            self.sealed[name] = stdin
            return 0, name.encode() + b"\n", b""
        payload = self.sealed.get(stdin.decode())
        if payload is None:
            return 17, b"", b"unmunge: Error: Replayed credential"
        self.sealed[stdin.decode()] = None  # type: ignore[assignment]
        return 0, f"STATUS: Success (0)\nUID: {self.uid}\nENCODE_HOST: n1 (10.0.0.2)\n\n".encode() + payload, b""
