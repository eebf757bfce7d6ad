"""A Python function as a service: ``python own_function.py PORT BATCH WINDOW_MS``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from http_service import Service


def count_words(texts: Sequence[str]) -> list[int]:
    """All that is yours: a function from a list of queries to the list of their answers."""
    return [len(text.split()) for text in texts]


if __name__ == "__main__":
    port, batch, window_ms = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    Service(count_words, batch, window_ms).run(port)
