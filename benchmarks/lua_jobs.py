"""Jobs that make job_submit.lua work as hard as their owners can: texts by a seeded search, for tests and measurements."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

TRES_FIELDS = ("tres_per_node", "tres_per_job", "tres_per_socket", "tres_per_task", "gres")
_TRES = (
    "gpu",
    "gres/gpu",
    "gres/",
    ":",
    "=",
    ",",
    "/",
    "1",
    "0",
    "a",
    "!",
    "\xff",
    "gpu:1,",
    "gres/gpu:a:1,",
    "shard:1,",
)
_NAMES = ("n", "1", "[", "]", ",", "-", "gpu", "gpu_small", "gpu_large,", " ", "|", "&")
_COMMENT = (" ", "x", "soda:", "soda:1:", "1", ":", "a=1,", "checkpoint=", "@", "\xff")
_VALUE = ("=", "a", "A", "1", "0", ".", "@", "SIG", "TERM", "yes", "m", "G", "/", "\xff", " ")
TOKENS = {
    **dict.fromkeys(TRES_FIELDS, _TRES),
    **dict.fromkeys(("partition", "req_nodes", "exc_nodes", "features", "reservation", "clusters"), _NAMES),
    "cpus_per_tres": _TRES,
    "comment": _COMMENT,
}
"""What the text of each field of a job is made of: the characters that lua's patterns tell apart, and one that is none."""
VARIABLES = ("MODEL", "CATEGORY", "BATCH_SIZE", "MAX_SLOWDOWN", "GPU_MEMORY", "CHECKPOINT", "SHARE")
TOKENS |= {f"SODA_{name}": _VALUE for name in VARIABLES}
"""Fields whose name is a variable's go into the job's SPANK environment."""

SLURMS_LIMITS = dict.fromkeys(TOKENS, 1024) | dict.fromkeys(("req_nodes", "exc_nodes"), 64 * 1024)
"""Bytes of each field up to which slurmctld takes a job. Node lists have no limit of their own, and variables none."""
SCRIPT_MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Shape:
    """A text of any length: a motif repeated between a beginning and an end."""

    beginning: str
    motif: str
    end: str

    def text(self, length: int) -> bytes:
        """So many bytes of it."""
        rest = max(length - len(self.beginning) - len(self.end), 0)
        repeated = (self.motif * (rest // len(self.motif) + 1))[:rest]
        return (self.beginning + repeated + self.end).encode("latin-1")[:length]


def hardest(field: str, work: Callable[[bytes], float], *, length: int = 256, tries: int = 60, seed: int = 0) -> Shape:
    """The shape of a field's text that takes most work, among random ones and changes of the best so far."""
    rng = random.Random(f"{seed} {field}")
    tokens = TOKENS[field]

    def drawn(most: int) -> str:
        return "".join(rng.choices(tokens, k=rng.randint(0, most)))

    best, most = Shape("", tokens[0], ""), -1.0
    for _ in range(tries):
        if rng.random() < 0.4:
            candidate = Shape(drawn(2), drawn(3) or tokens[0], drawn(1))
        else:
            part = rng.choice(("beginning", "motif", "end"))
            candidate = replace(best, **{part: drawn(2) or (tokens[0] if part == "motif" else "")})
        taken = work(candidate.text(length))
        if taken > most:
            best, most = candidate, taken
    return best
