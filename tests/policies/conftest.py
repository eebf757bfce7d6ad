"""``pytest --hypothesis-profile=thorough tests/policies`` shows every property some thousand clusters."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("thorough", max_examples=2000)
