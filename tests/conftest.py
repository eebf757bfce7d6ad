"""Hypothesis for all tests: no time limits, since nothing here is a test of speed and CI machines are slow.

``--hypothesis-profile=thorough`` tries ten times as many examples.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("default", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")
