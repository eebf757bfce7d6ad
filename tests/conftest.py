"""Hypothesis for all tests: no time limits, since nothing here is a test of speed and CI machines are slow.

The same examples every time, so that a result tells about the change and not about the day;
``--hypothesis-profile=thorough`` draws new ones, ten times as many.

Ctrl-C works in all tests, also where pytest runs in the background of a shell that made it deaf to that.
"""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "thorough", max_examples=500, deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and so would what tests start
