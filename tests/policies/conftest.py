"""``pytest --hypothesis-profile=thorough tests/policies`` shows every property 500 clusters."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("thorough", max_examples=500)
