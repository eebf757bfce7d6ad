"""Fixtures that other tests have too."""

from tests.prolog.conftest import deliver_event_program, desk  # noqa: F401 - found by their names
