"""Damaged input for parsers: drawn by Hypothesis from good input, a moment in each test run, or as long as one likes.

``FUZZ_S=3600 pytest --timeout 0 tests/fuzz`` (``make fuzz HOURS=1``) looks at each target for so many seconds, with new
examples; what fails is shrunk, printed, and kept in ``.hypothesis``, from where the next run repeats it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.sampling import examples

FUZZ_S = float(os.environ.get("FUZZ_S") or 0)
"""Seconds for each target; 0: a fixed number of examples, always the same."""

_QUIET = [
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.function_scoped_fixture,
    HealthCheck.large_base_example,
]
_AT_ONCE = 2000

ODD = (
    b"\x00", b"\xff", b"\x1f", b"\x1e", b"\x04", b"\n", b"\r", b"\t", b" ", b"|", b"=", b",", b"[", b"]", b"{", b"}", b'"',
    b"'", b"\\", b"(null)", b"N/A", b"UNLIMITED", b"-1", b"0", b"4294967294", b"18446744073709551615", b"9" * 400, b"1e999",
    b"nan", b"-", b":", b"[0-999999999]", b"\xe2\x80\xa8", b"\xed\xb2\x80", b"\xf0\x9f\x9a\x80", b"%s%n", b"../",
    b"null", b"true",
)  # fmt: skip
"""What parsers stumble over."""


def fuzz(whole: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator above ``@given``: ``whole`` examples with ``--thorough``, an eighth else, or as many as fit into FUZZ_S."""

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        if not FUZZ_S:
            return settings(max_examples=examples(whole), deadline=None, suppress_health_check=_QUIET)(test)
        part = settings(max_examples=_AT_ONCE, deadline=None, derandomize=False, suppress_health_check=_QUIET)(test)

        @wraps(part)
        def for_long(*args: Any, **named: Any) -> None:
            until_s = time.monotonic() + FUZZ_S
            while time.monotonic() < until_s:
                part(*args, **named)

        return for_long

    return decorated


@st.composite
def damaged(draw: st.DrawFn, samples: Sequence[bytes], keep: int = 0) -> bytes:
    """One of the samples after up to eight faults: bytes changed, cut out, repeated, moved in from another, or odd ones.

    Args:
        samples: good input.
        keep: so many bytes at the end stay, as a parser that misses them looks at nothing else.
    """
    whole = draw(st.sampled_from(samples))
    text, end = (whole[:-keep], whole[-keep:]) if keep else (whole, b"")
    for _ in range(draw(st.integers(0, 8))):
        at = draw(st.integers(0, len(text)))
        length = draw(st.sampled_from([0, 1, 1, 2, 8, 100]))
        other = draw(st.sampled_from(samples))
        start = draw(st.integers(0, len(other)))
        new = draw(
            st.one_of(
                st.sampled_from(ODD),
                st.binary(max_size=8),
                st.just(text[at : at + length] * 2),
                st.just(other[start : start + length]),
                st.just(b""),
            )
        )
        text = text[:at] + new + text[at + length :]
    return text + end


def anything(samples: Sequence[bytes], keep: int = 0) -> st.SearchStrategy[bytes]:
    """Damaged samples, and now and then bytes that are nothing at all."""
    return st.one_of(damaged(samples, keep), damaged(samples, keep), damaged(samples, keep), st.binary(max_size=300))
