"""The base of every error that slurm-soda raises on purpose, and the errors of what travels between machines."""

from __future__ import annotations


class SodaError(Exception):
    """Base of every error that slurm-soda raises on purpose; its text is one line meant for a person."""


class RecordError(SodaError):
    """A record from outside that is not what it should be; names the record, the field, the value and what is allowed."""


class MungeError(SodaError):
    """A MUNGE credential could not be made, or does not vouch for what it came with."""


class MungeUnavailableError(MungeError):
    """MUNGE itself cannot be asked: nothing is said of the credential."""


class SpoolError(SodaError):
    """The node's spool cannot be used safely; names the path, what is wrong and what to do."""
